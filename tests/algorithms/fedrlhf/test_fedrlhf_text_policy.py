"""The model of FedRLHF for texts in use: it goes on from a text as it does in evaluation."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="models that write need the extra llm")
pytest.importorskip("transformers", reason="models that write need the extra llm")

from support.repository import ROOT
from support.review_runs import make_model, recipe, train

import fedrl
from fedrl.runs.agents import build, newest_checkpoint

pytestmark = pytest.mark.slow

TEXTS = ["this movie was", "i did not like", "the acting of the"]


def test_texts_are_gone_on_with_in_python_and_in_plain_transformers(tmp_path: Path) -> None:
    model = make_model(tmp_path / "model", steps=30)
    run = fedrl.Run(train(recipe(model, rounds=1), tmp_path / "runs"))
    config, algorithm = build(run.path)
    trainer = algorithm.trainer
    trainer.actor.load(newest_checkpoint(run.path, config).states[0]["theta"])
    prompts = trainer.prompts(TEXTS, [100] * len(TEXTS))
    likely = trainer.actor.sampler.generate(
        prompts, config.algorithm.answer_tokens, 0.0, trainer.actor.generator(0)
    )
    evaluated = trainer.policy.tokenizer.batch_decode(likely.tokens, skip_special_tokens=True)
    policy = run.policy()
    assert policy.act(TEXTS) == evaluated
    assert policy.act(TEXTS[0], np.random.default_rng(0)) != policy.act(
        TEXTS[0], np.random.default_rng(1)
    )
    folder = run.export(tmp_path / "writer").path
    plain = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "endpoint" / "plain.py"), str(folder)],
        input=json.dumps(TEXTS), capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(plain.stdout) == evaluated
    card = (folder / "README.md").read_text("utf-8")
    assert "THE BEGINNING OF A REVIEW" in card
    assert "reviews for training" in card
    assert "_client" not in card
