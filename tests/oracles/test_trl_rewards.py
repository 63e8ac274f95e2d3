"""The reward functions of examples/sort_digits in TRL's own GRPOTrainer and in the world `prompts`.

A trainer of the real package plays a step with a small model; what it computed and logged for its
prompts and completions is what the world pays for the same ones.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the extra llm")
pytest.importorskip("trl", reason="trl is not installed")
datasets = pytest.importorskip("datasets", reason="datasets is not installed")

from support.environments import EXAMPLES
from trl import GRPOConfig, GRPOTrainer

import fedrl
from fedrl.core.registry import load
from fedrl.envs.batch import Batch
from fedrl.envs.prompts.rewards import KEY, REWARDS
from fedrl.envs.prompts.settings import Settings
from fedrl.envs.prompts.world import Prompts

pytestmark = pytest.mark.slow

SIZES = {"train": 24, "test": 4, "public": 60}
PICKY = """
def even(prompts, completions, answer, **columns):
    both = zip(completions, answer)
    return [None if int(right[-1]) % 2 else float(len(said)) for said, right in both]

async def upwards(completions, kind, **columns):
    both = zip(completions, kind)
    return [float(said == "".join(sorted(said))) if k == "up" else None for said, k in both]
"""
CASES = {
    "the example's": (("digits:correct", "digits:right_places"), (1.0, 0.2)),
    "one alone": (("digits:right_places",), ()),
    "some without an opinion": (("digits:right_places", "picky:even"), (0.5, -2.0)),
    "nobody has one": (("picky:even", "picky:upwards"), (1.0, 3.0)),
}


class Watched(GRPOTrainer):
    """GRPOTrainer that keeps what it asked its reward functions, and what it made of it."""

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        found = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        self.seen = (prompts, completions, completion_ids_list, found.numpy())
        return found


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sys.path.insert(0, str(EXAMPLES / "sort_digits" / "src"))
    try:
        from fedrl_sort_digits import write
    finally:
        sys.path.pop(0)
    folder = write(tmp_path_factory.mktemp("digits"), sizes=SIZES)
    (folder / "picky.py").write_text(PICKY)
    return folder


@pytest.fixture(scope="module")
def model(data: Path) -> Path:
    """It answers with digits, now and then with the right ones."""
    world = {"name": "prompts", "source": str(data), "answer": "answer", "reward": ["exact_match"]}
    how = {"tasks": 60, "steps": 60, "batch": 32, "width": 32, "layers": 1, "lr": 1e-2}
    return fedrl.warm_start(world, data / "model", **how)


@pytest.mark.parametrize("case", CASES)
def test_a_trainer_pays_what_the_world_pays(case: str, data: Path, model: Path, tmp_path: Path):
    files = {
        "digits": EXAMPLES / "sort_digits" / "src" / "fedrl_sort_digits" / "__init__.py",
        "picky": data / "picky.py",
    }
    named, weights = CASES[case]
    names = tuple(f"{files[name.split(':')[0]]}:{name.split(':')[1]}" for name in named)
    rows = [json.loads(line) for line in (data / "train.jsonl").read_text().splitlines()]
    how = GRPOConfig(
        output_dir=str(tmp_path), max_steps=1, per_device_train_batch_size=32, num_generations=4,
        max_completion_length=6, reward_weights=list(weights) or None, logging_steps=1,
        report_to=[], save_strategy="no", use_cpu=True, seed=0, bf16=False,
    )  # fmt: skip
    trainer = Watched(
        model=str(model),
        reward_funcs=[load(REWARDS.find(name), KEY, name) for name in names],
        train_dataset=datasets.Dataset.from_list(rows),
        args=how,
    )
    trainer.train()
    prompts, completions, tokens, theirs = trainer.seen
    assert len(completions) == 32

    world = Prompts(Settings(source=str(data), reward=names, weights=weights))
    tasks = {world.row(task.id)["prompt"]: task.id for task in world.tasks("train")}
    batch = Batch(world)
    batch.reset([tasks[prompt] for prompt in prompts])
    turns = batch.step(completions, tokens)
    ours = np.array([[np.nan if part is None else part for part in turn.info["rewards"].values()]
                     for turn in turns], float)  # fmt: skip
    np.testing.assert_allclose(ours, theirs, atol=1e-6)
    assert len(np.unique(ours[~np.isnan(ours)])) > 1, "a test of nothing"

    scored = np.array([turn.info["scored"] for turn in turns])
    np.testing.assert_array_equal(scored, ~np.isnan(theirs).all(1))
    paid = np.array([turn.reward for turn in turns])[scored]
    (logged,) = [line for line in trainer.state.log_history if "reward" in line]
    assert paid.mean() == pytest.approx(logged["reward"], abs=1e-5)
    assert paid.std(ddof=1) == pytest.approx(logged["reward_std"], abs=1e-5)
    for name, column in zip(named, ours.T):
        mean = logged[f"rewards/{name.split(':')[1]}/mean"]
        assert np.nanmean(column) == pytest.approx(mean, abs=1e-5)
    assert scored.all() == (case != "nobody has one")
