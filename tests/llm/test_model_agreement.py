"""Two models are taken for the same only if they are."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest

pytest.importorskip("torch", reason="needs the extra llm")

import torch
from support.agent_runs import make_model
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from fedrl.llm import lora
from fedrl.llm.model_agreement import model_agreement
from fedrl.llm.policy import Policy, load

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    return load(str(make_model(tmp_path_factory.mktemp("agreement") / "m")), torch.device("cpu"))


def tokenizer(merges: list[tuple[str, str]], lowercase: bool = False) -> PreTrainedTokenizerFast:
    made = Tokenizer(models.BPE({"a": 0, "b": 1, "c": 2, "ab": 3, "bc": 4}, merges))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    if lowercase:
        made.normalizer = normalizers.Lowercase()
    return PreTrainedTokenizerFast(tokenizer_object=made)


def test_a_tokenizer_is_more_than_its_vocabulary(policy: Policy):
    """With other merges or another normaliser the same text becomes other tokens."""
    kinds = [
        tokenizer([("a", "b"), ("b", "c")]),
        tokenizer([("b", "c"), ("a", "b")]),
        tokenizer([("a", "b"), ("b", "c")], lowercase=True),
    ]
    assert kinds[0].get_vocab() == kinds[1].get_vocab() == kinds[2].get_vocab()
    assert kinds[0]("abc")["input_ids"] != kinds[1]("abc")["input_ids"]
    found = [model_agreement(replace(policy, tokenizer=kind), None) for kind in kinds]
    assert len({each["tokenizer"] for each in found}) == 3
    kinds[0]("abc", truncation=True, max_length=1)
    assert model_agreement(replace(policy, tokenizer=kinds[0]), None) == found[0]
    assert len({each["model"] for each in found}) == 1


@pytest.mark.parametrize("personal", [0, 2])
def test_another_reference_is_noticed_with_and_without_adapters_of_ones_own(
    policy: Policy, personal: int
):
    """Where all of the model is trained, a KL divergence still goes to the first one."""
    pytest.importorskip("peft")
    first = lora.with_adapters(
        copy.deepcopy(policy.model), lora.Adapters(0, 32, (), False, personal)
    )
    other = copy.deepcopy(first)
    with torch.no_grad():
        next(p for n, p in other.named_parameters() if ".lora_" not in n).add_(0.5)
    here, there = (model_agreement(policy, model)["weights"] for model in (first, other))
    assert here != there


def test_what_travels_need_not_agree(policy: Policy):
    pytest.importorskip("peft")
    model = lora.with_adapters(copy.deepcopy(policy.model), lora.Adapters(2, 32, (), False, 0))
    adapted = replace(policy, model=model)
    before = model_agreement(adapted, model)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".lora_" in name:
                parameter.add_(1.0)
    assert model_agreement(adapted, model) == before
    with torch.no_grad():
        next(p for n, p in model.named_parameters() if ".lora_" not in n).add_(1.0)
    assert model_agreement(adapted, model) != before
