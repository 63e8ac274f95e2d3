"""Writing on and learning from it: whose likelihood counts, what moves, and what a text is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="models that write need the extra llm")
pytest.importorskip("transformers", reason="models that write need the extra llm")

from support.review_runs import make_model, recipe

from fedrl.algorithms.fedrlhf.text.trainer import Completions, PromptBatch, TextTrainer
from fedrl.core.types import UserError
from fedrl.llm.builtin_tokenizers import bpe_tokenizer, word_tokenizer
from fedrl.llm.policy import load
from fedrl.llm.pretrain.language_modelling import text_samples
from fedrl.llm.rollout import Sample

pytestmark = pytest.mark.slow

TEXTS = ["I saw this film last week with a friend.", "The plot is very good."]


@pytest.fixture(scope="session")
def model(tmp_path_factory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "reviews")


def trainer(model: Path, **settings) -> TextTrainer:
    return TextTrainer(recipe(model, algorithm=settings).algorithm)


def moved(weights, size: float = 0.3, seed: int = 0):
    random = np.random.default_rng(seed)
    return {
        k: (v + size * random.standard_normal(v.shape)).astype("f4") for k, v in weights.items()
    }


def by_hand(model: Path, prompt: list[int], answer: list[int]) -> float:
    """Mean log-probability of the answer under the model of the folder, by transformers alone."""
    plain = load(str(model), torch.device("cpu")).model
    with torch.no_grad():
        logs = plain(torch.tensor([[*prompt, *answer]])).logits[0].log_softmax(-1)
    rows = range(len(prompt) - 1, len(prompt) + len(answer) - 1)
    return float(np.mean([logs[i, token] for i, token in zip(rows, answer)]))


# Likelihood


@pytest.mark.parametrize("rank", [0, 2])
def test_likelihood_is_that_of_the_first_model_whatever_the_policy_has_become(model, rank):
    ours = trainer(model, lora_rank=rank)
    ours.actor.load(moved(ours.actor.initial_weights(0)))
    prompts = ours.prompts(TEXTS, [3, 5])
    written = ours.complete(prompts, ours.actor.generator(1))
    for i, sample in enumerate(written.samples):
        expected = by_hand(model, sample.prompt, sample.answer)
        assert written.likelihood[i] == pytest.approx(expected, abs=1e-4)
    assert written.kl > 0.05  # the policy is another one by now


@pytest.mark.parametrize("rank", [0, 2])
def test_training_moves_the_policy_and_not_the_reference(model, rank):
    ours = trainer(model, lora_rank=rank)
    theta = ours.actor.initial_weights(0)
    ours.actor.load(theta)
    before = ours.human_likelihood(TEXTS)
    fresh = ours.complete(ours.prompts(TEXTS * 20, [3, 5] * 20), ours.actor.generator(1))
    assert fresh.kl == pytest.approx(0, abs=1e-5)
    batches = [PromptBatch([0] * 4, ours.prompts(TEXTS * 2, [3, 5, 4, 2]))] * 3
    ours.train(theta, batches, lambda batch, w: (np.arange(4.0), {}), 1)
    after = ours.policy.weights()
    assert any(not np.array_equal(after[name], theta[name]) for name in theta)
    np.testing.assert_array_equal(ours.human_likelihood(TEXTS), before)


def test_people_are_judged_on_what_follows_the_beginning(model):
    ours = trainer(model, prompt_tokens=(2, 4))
    row = ours.tokens(TEXTS[:1])[0]
    expected = by_hand(model, row[:3], row[3 : 3 + 8])
    assert ours.human_likelihood(TEXTS[:1])[0] == pytest.approx(expected, abs=1e-4)


# Texts


def test_a_text_is_its_prompt_and_what_was_written_on(model):
    ours = trainer(model)
    prompts = ours.prompts(TEXTS, [4, 2])
    assert [len(prompt) for prompt in prompts] == [4, 2]
    ours.actor.load(ours.actor.initial_weights(0))
    written = ours.complete(prompts, ours.actor.generator(0))
    assert written.texts[0].startswith("i saw this film ")
    assert written.texts[1].startswith("the plot ")
    assert all(1 <= len(sample.answer) <= 8 for sample in written.samples)
    again = ours.complete(prompts, ours.actor.generator(0))
    assert again.texts == written.texts
    other = [ours.complete(prompts, ours.actor.generator(seed)).texts for seed in range(1, 4)]
    assert any(texts != written.texts for texts in other)


def test_a_model_that_expects_a_first_token_gets_it(model, tmp_path):
    from tokenizers.processors import TemplateProcessing
    from transformers import AutoTokenizer

    folder = tmp_path / "begins"
    known = load(str(model), torch.device("cpu"))
    known.model.save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.bos_token = tokenizer.eos_token
    begin = (tokenizer.bos_token, tokenizer.bos_token_id)
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{begin[0]} $A", special_tokens=[begin]
    )
    tokenizer.save_pretrained(folder)
    plain, begun = trainer(model), trainer(folder)
    assert begun.prompts(TEXTS, [2, 3]) == [
        [begin[1], *prompt] for prompt in plain.prompts(TEXTS, [2, 3])
    ]


def test_repetition_is_seen():
    def repeated(*answers: list[int]) -> float:
        samples = [Sample(i, 0, [1], a, [0.0] * len(a), "") for i, a in enumerate(answers)]
        return Completions(samples, [], np.zeros(0), 0.0).repeated

    assert repeated([1, 2, 3, 4]) == 0
    assert repeated([5, 5, 5, 5, 5]) == pytest.approx(3 / 4)
    assert repeated([1, 2, 1, 2], [1, 2, 3]) == pytest.approx((1 / 3 + 0) / 2)
    assert repeated([1]) == 0


# Learning


def test_what_is_paid_for_becomes_likely_and_kl_holds_it_back(model):
    """Every "the" is paid: the policy comes to say it, less so under a heavy penalty."""

    def reward(batch, written):
        paid = np.array([float(text.split().count("the")) for text in written.texts])
        return paid, {"reward": float(paid.mean())}

    found = {}
    for kl in (0.0, 5.0):
        ours = trainer(model, kl=kl, lr=3e-3, batch=16, minibatch=16, ppo_epochs=2)
        prompts = ours.prompts(TEXTS * 8, [3, 4] * 8)
        theta = ours.actor.initial_weights(0)
        ours.train(theta, [PromptBatch([0] * 16, prompts)] * 12, reward, 0)
        written = ours.complete(prompts * 4, ours.actor.generator(9))
        now = ours.policy.weights()
        ours.actor.load(theta)
        before = ours.complete(prompts * 4, ours.actor.generator(9))
        found[kl] = (reward(None, written)[0].mean(), reward(None, before)[0].mean(), written.kl)
        assert any(not np.array_equal(now[name], theta[name]) for name in theta)
    assert found[0.0][0] > found[0.0][1] + 0.5
    assert found[5.0][2] < found[0.0][2] / 3


def test_numbers_of_a_round_are_means_and_counts(model):
    ours = trainer(model)
    prompts = ours.prompts(TEXTS, [2, 3])
    paid = iter([1.0, 3.0])

    def reward(batch, written):
        value = next(paid)
        return np.array([value, 0.0]), {"reward": value} | ({"sentiment": 7.0} if value > 1 else {})

    found, moments = ours.train(
        ours.actor.initial_weights(0), [PromptBatch([0, 0], prompts)] * 2, reward, 0
    )
    assert not moments  # nobody asked to keep them
    assert found["train/reward"] == 2.0
    assert found["train/sentiment"] == 7.0  # of the batches that had one
    assert found["env/samples"] == 4.0
    assert found["env/tokens"] == pytest.approx(found["train/tokens"] * 4)


def test_divergence_is_the_mean_kl_over_new_tokens(model):
    ours = trainer(model)
    theta = ours.actor.initial_weights(0)
    ours.actor.load(theta)
    same = ours.complete(ours.prompts(TEXTS, [3, 4]), ours.actor.generator(0)).samples
    assert ours.divergence(same, theta) == pytest.approx(0, abs=1e-6)
    other = moved(theta, 0.05)
    ours.actor.load(other)
    samples = ours.complete(ours.prompts(TEXTS, [3, 4]), ours.actor.generator(0)).samples
    expected = []
    for sample in samples:
        logs = []
        for weights in (other, theta):
            ours.actor.load(weights)
            with torch.no_grad():
                out = ours.policy.model(torch.tensor([[*sample.prompt, *sample.answer]])).logits[0]
            first = len(sample.prompt) - 1
            logs.append(out[first : first + len(sample.answer)].log_softmax(-1))
        expected += (logs[0].exp() * (logs[0] - logs[1])).sum(-1).tolist()
    ours.actor.load(other)
    assert ours.divergence(samples, theta) == pytest.approx(np.mean(expected), rel=1e-3)
    assert np.mean(expected) > 1e-3
    left = ours.policy.weights()
    assert all(np.array_equal(left[name], theta[name]) for name in theta)


def test_adapters_and_the_value_head_are_all_that_travels(model):
    names = set(trainer(model, lora_rank=2).actor.initial_weights(0))
    assert {"value.weight", "value.bias"} < names
    assert all("lora_" in name for name in names - {"value.weight", "value.bias"})
    assert "model.embed_tokens.weight" in trainer(model).actor.initial_weights(0)


def test_a_missing_model_is_one_line():
    with pytest.raises(UserError, match="model is empty"):
        trainer("")
    with pytest.raises(UserError, match="there is no folder"):
        trainer("./nowhere")


# Reading


def test_built_in_tokenizers_give_texts_back():
    texts = ["A good film, isn't it?", "The plot was dull."]
    words = word_tokenizer(texts)
    assert words.decode(words("Isn't the plot good?")["input_ids"]) == "isn't the plot good ?"
    assert "<unknown>" in words.decode(words("zebra")["input_ids"])
    pieces = bpe_tokenizer(texts * 50, 320)
    strange = "Ein Zebra – naïve 映画, isn't it?"
    assert pieces.decode(pieces(strange)["input_ids"]) == strange
    assert 256 < len(pieces) <= 320


def test_lessons_are_beginnings_and_end_where_the_text_does():
    words = word_tokenizer(["a b c d e f"])
    ids = words("a b c d e f")["input_ids"]
    long, short = text_samples(words, ["a b c d e f", "a b"], 4)
    assert (long.prompt, long.answer) == (ids[:1], ids[1:4])
    assert (short.prompt, short.answer) == (ids[:1], [ids[1], words.eos_token_id])
