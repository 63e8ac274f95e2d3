"""Models in GPT-2's architecture: the built-in one, and any folder of Hugging Face's."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="models that write need the extra llm")
transformers = pytest.importorskip("transformers", reason="models that write need the extra llm")

from support.review_runs import WORLD, recipe, train

from fedrl.algorithms.fedrlhf.text.trainer import TextTrainer
from fedrl.config.build import build_algorithm
from fedrl.core.types import Job
from fedrl.envs.imdb.world import Settings as WorldSettings
from fedrl.envs.imdb.world import World
from fedrl.llm.builtin_tokenizers import bpe_tokenizer
from fedrl.llm.policy import load
from fedrl.runs.warmstart_reviews import Settings, warmstart

pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    """A tiny random GPT-2, written by transformers: its tokenizer's end is also its beginning."""
    place = tmp_path_factory.mktemp("models") / "gpt2"
    world = World(WorldSettings(**WORLD), 0, 0)
    words = bpe_tokenizer([review.text for review in world.public], 400)
    words.bos_token = words.eos_token
    config = transformers.GPT2Config(
        vocab_size=len(words), n_positions=64, n_embd=16, n_layer=2, n_head=2,
        initializer_range=0.2, bos_token_id=words.eos_token_id, eos_token_id=words.eos_token_id,
    )  # fmt: skip
    torch.manual_seed(0)
    transformers.GPT2LMHeadModel(config).save_pretrained(place)
    words.save_pretrained(place)
    return place


@pytest.mark.parametrize("rank", [0, 2])
def test_a_folder_is_written_on_trained_and_judged(folder, rank):
    ours = TextTrainer(recipe(folder, algorithm={"lora_rank": rank}).algorithm)
    ours.actor.load(ours.actor.initial_weights(0))
    prompts = ours.prompts(["I saw this film last week.", "The plot is very good."], [3, 6])
    written = ours.complete(prompts, ours.actor.generator(1))
    plain = load(str(folder), torch.device("cpu")).model
    for i, sample in enumerate(written.samples):  # prompts of other lengths: positions matter
        with torch.no_grad():
            logs = plain(torch.tensor([[*sample.prompt, *sample.answer]])).logits[0].log_softmax(-1)
        first = len(sample.prompt) - 1
        rows = [float(logs[first + j, token]) for j, token in enumerate(sample.answer)]
        assert written.likelihood[i] == pytest.approx(np.mean(rows), abs=1e-4)
        np.testing.assert_allclose(sample.logprobs, rows, atol=1e-4)
    algorithm = build_algorithm(recipe(folder, algorithm={"lora_rank": rank}))
    start = algorithm.init(3)
    found = algorithm.local(Job(1, start, None, 7))
    assert any(np.abs(change).max() > 0 for change in found.update.values())
    assert np.isfinite(found.metrics["personal/reward"])
    names = [name for name in start["theta"] if not name.startswith("value.")]
    assert all(("lora_" in name) == bool(rank) for name in names)


def test_the_built_in_model_may_have_that_architecture(tmp_path):
    world = World(WorldSettings(**WORLD), 0, 0)
    how = Settings(steps=60, width=32, layers=1, batch=16, lr=1e-2, architecture="gpt2")
    made = warmstart(world, how, tmp_path / "model")
    assert json.loads((made / "config.json").read_text())["model_type"] == "gpt2"
    path = train(recipe(made), tmp_path / "runs")
    rows = [json.loads(line) for line in (path / "metrics.jsonl").open()]
    assert len(rows) == 3
    assert all(np.isfinite(row["eval/reward"]) for row in rows)
