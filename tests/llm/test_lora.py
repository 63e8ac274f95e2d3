"""LoRA: only the adapters are trained and travel, and they mean the same wherever they are used."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch", reason="language models need torch (fedrl[llm])")
pytest.importorskip("peft", reason="LoRA needs peft (fedrl[llm])")

from support.tiny_model import samples, tiny

from fedrl.core.types import UserError
from fedrl.llm import lora
from fedrl.llm.generation.cuda import CudaSampler
from fedrl.llm.generation.hf import HFSampler
from fedrl.llm.model_setup import checkpoint_activations
from fedrl.llm.rl.batches import Batching, to_rows
from fedrl.llm.rl.logprobs import answer_logprobs
from fedrl.llm.rl.loss import Loss
from fedrl.llm.rl.policy_gradient import update
from fedrl.llm.rollout import Sample
from fedrl.llm.weights import MergedWeights

pytestmark = pytest.mark.slow

HERE = torch.device("cpu")
RANK, ALPHA = 4, 8


def adapted(seed: int = 3, filled: bool = True):
    """A tiny model with adapters; `filled`: none of them zero, so that they say something."""
    model = lora.with_adapters(tiny(), lora.Adapters(RANK, ALPHA))
    lora.draw_adapters(model, seed)
    if filled:
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if ".lora_B." in name:
                    parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    return model.eval()


def logs(model, found) -> torch.Tensor:
    with torch.no_grad():
        return answer_logprobs(model, to_rows(found, 0, HERE), 1.0)[0]


def test_only_adapters_are_trained_and_they_change_nothing_at_first():
    model, plain = adapted(filled=False), tiny()
    names = [name for name, p in model.named_parameters() if p.requires_grad]
    assert names
    assert all(".lora_A." in name or ".lora_B." in name for name in names)
    assert len(names) == 2 * 7 * 2  # A and B of the seven linear layers of both blocks
    assert torch.equal(logs(model, samples(5)), logs(plain, samples(5)))


@pytest.mark.parametrize(
    "targets, expected",
    [
        (("q_proj", "v_proj"), {"self_attn.q_proj", "self_attn.v_proj"}),
        (("layers.1.mlp.up_proj",), {"mlp.up_proj"}),
        (("mlp.down_proj", "k_proj"), {"mlp.down_proj", "self_attn.k_proj"}),
    ],
)
def test_targets_alone_get_adapters(targets, expected):
    model = lora.with_adapters(tiny(), lora.Adapters(RANK, ALPHA, targets))
    names = [name for name, p in model.named_parameters() if p.requires_grad]
    assert {name.partition(".lora_")[0].split(".", 5)[-1] for name in names} == expected
    layers = 1 if targets[0].startswith("layers.1") else 2
    assert len(names) == 2 * layers * len(expected)


def test_a_target_that_the_model_does_not_have_is_named():
    """peft says nothing as long as one of them is there."""
    with pytest.raises(UserError, match=r"no linear layer 'query'; it has q_proj, k_proj, v_proj"):
        lora.with_adapters(tiny(), lora.Adapters(RANK, ALPHA, ("q_proj", "query")))
    with pytest.raises(UserError, match="no linear layer 'lm_head'"):
        lora.with_adapters(tiny(), lora.Adapters(RANK, ALPHA, ("lm_head",)))


@pytest.mark.parametrize("stabilised, times", [(False, ALPHA / RANK), (True, ALPHA / RANK**0.5)])
def test_how_often_adapters_count(stabilised: bool, times: float):
    model = lora.with_adapters(tiny(), lora.Adapters(RANK, ALPHA, ("q_proj",), stabilised))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".lora_" in name:
                parameter.normal_(generator=torch.Generator().manual_seed(len(name)))
    name = "model.layers.0.self_attn.q_proj"
    a, b = (
        model.get_parameter(f"base_model.model.{name}.lora_{x}.default.weight").detach()
        for x in "AB"
    )
    expected = tiny().get_parameter(f"{name}.weight").detach() + times * b @ a
    torch.testing.assert_close(MergedWeights(model)[f"{name}.weight"], expected)


def test_the_seed_decides_what_adapters_begin_with():
    one, same, other = (adapted(seed, filled=False).state_dict() for seed in (3, 3, 4))
    first = [name for name in one if ".lora_A." in name]
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert all(not torch.equal(one[name], other[name]) for name in first)
    for name in first:
        bound = one[name].shape[1] ** -0.5
        assert 0.5 * bound < one[name].abs().max() <= bound


def test_the_samplers_draw_does_not_disturb_others():
    before = torch.random.get_rng_state()
    adapted()
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("kind", [HFSampler, CudaSampler])
@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_sampler_and_learner_agree(kind, temperature):
    model = adapted()
    prompts = [[3, 4, 5], [6, 7], [3, 4, 5], [8, 9, 10, 11, 2]]
    said = kind(model, [1], 0).generate(prompts, 7, temperature, torch.Generator().manual_seed(1))
    found = [Sample(i, 0, prompts[i], said.tokens[i], said.logprobs[i], "") for i in range(4)]
    with torch.no_grad():
        learned, _ = answer_logprobs(model, to_rows(found, 0, HERE), temperature)
    assert [x for s in found for x in s.logprobs] == pytest.approx(learned.tolist(), abs=1e-4)
    bare = logs(tiny(), found)
    assert (bare - learned).abs().max() > 0.1, "the adapters say nothing: an empty comparison"


def test_merged_weights_are_the_base_plus_the_scaled_product():
    model, base = adapted(), dict(tiny().named_parameters())
    state = dict(model.named_parameters())
    found = MergedWeights(model)
    assert set(found) == set(base)
    for name, weight in found.items():
        key = "base_model.model." + name.removesuffix(".weight")
        expected = base[name]
        if f"{key}.lora_A.default.weight" in state:
            a, b = (state[f"{key}.lora_{x}.default.weight"] for x in "AB")
            expected = expected + ALPHA / RANK * b @ a
            assert not torch.equal(weight, base[name]), name
        torch.testing.assert_close(weight, expected)


def test_merging_is_done_as_it_is_read(monkeypatch):
    """A model with adapters is not copied as a whole before the first weight is used."""
    model = adapted()
    layer = model.get_base_model().model.layers[0].mlp.up_proj
    calls, true = [], type(layer).get_delta_weight
    monkeypatch.setattr(
        type(layer), "get_delta_weight", lambda self, name: calls.append(1) or true(self, name)
    )
    weights = MergedWeights(model)
    assert not calls
    assert "model.layers.0.mlp.up_proj.weight" in weights
    weights["model.layers.0.mlp.up_proj.weight"]
    assert len(calls) == 1
    assert len(dict(weights)) == len(weights) == len(list(tiny().named_parameters()))


def test_the_reference_is_the_base_model():
    model, found = adapted(), samples(6)
    with lora.without_adapters(model):
        assert torch.equal(logs(model, found), logs(tiny(), found))
    assert not torch.equal(logs(model, found), logs(tiny(), found))
    with lora.without_adapters(tiny()):  # a model without adapters is its own
        pass


def step(model, reference, save_memory: bool = False, microbatch: int = 3) -> dict:
    """The gradients of one optimiser step, which goes nowhere, and what it logs."""
    if save_memory:
        checkpoint_activations(model)
    found = samples(7)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=1e-12)
    told = update(
        model, optimizer, found, [1.0, -1.0] * 3 + [0.5], Loss(kl=0.3),
        Batching(0, 7, microbatch, 1e9, torch.Generator().manual_seed(0)), reference,
    )  # fmt: skip
    grads = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return {"told": told, "grads": grads}


def same_gradients(one: dict, other: dict) -> None:
    assert one["grads"].keys() == other["grads"].keys()
    for name, gradient in one["grads"].items():
        torch.testing.assert_close(other["grads"][name], gradient, rtol=1e-4, atol=1e-7)
        assert gradient.abs().max() > 0, name


def test_a_step_with_itself_as_reference_equals_one_with_a_copy_of_the_base():
    model = adapted()
    one, other = step(model, model), step(adapted(), tiny())
    same_gradients(one, other)
    assert one["told"]["kl"] == pytest.approx(other["told"]["kl"])
    assert one["told"]["kl"] > 0.01
    assert all(".lora_" in name for name in one["grads"])


def test_saving_memory_gives_the_same_gradients():
    plain, saving = adapted(), adapted()
    same_gradients(step(plain, plain), step(saving, saving, save_memory=True))


def test_a_twin_shares_what_is_not_trained():
    model = adapted()
    other = lora.copy_trained(model)
    mine, theirs = dict(model.named_parameters()), dict(other.named_parameters())
    for name, parameter in mine.items():
        assert (theirs[name] is parameter) != parameter.requires_grad, name
    with torch.no_grad():
        for parameter in other.parameters():
            if parameter.requires_grad:
                parameter.add_(1.0)
    expected = logs(adapted(), samples(4))
    assert torch.equal(logs(model, samples(4)), expected)
    assert not torch.equal(logs(other, samples(4)), expected)
    assert torch.equal(logs(lora.copy_trained(copy.deepcopy(model)), samples(4)), expected)
