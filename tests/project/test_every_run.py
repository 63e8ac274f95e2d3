"""Every `fedrl run` that README and docs show is run, as it stands there but for a round or two and
few episodes. What is not run here is named with the reason."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest
from support.page_commands import runs

from fedrl.cli import call

pytestmark = pytest.mark.slow
SKIPPED = {
    r"--help|--dry-run": "prints, and trains nobody: tests/cli",
    r"--engine flower": "tests/engines/flower follows docs/deploy.md, with SuperLinks and nodes",
    r"strategy own": "data of one's own: tests/partition, tests/algorithms/*/test_*own_data*",
    r"^prompts/organisations": "its data is made on the page: test_reader_paths.py",
    r"^fedagent/(household|webshop)( |$)": "genuine games and goals: test_card_recipes.py",
    r"^fedrlhf/imdb": "a model that is warm-started on the page: tests/algorithms/fedrlhf",
    r"feedback live": "a person answers: tests/feedback",
    r"--federation.clients 610": "minutes of all users: docs/results/fedrlhf.md has them",
}
NEEDS = {
    r"^fedagent": "torch",
    r"halfcheetah|walker": "jax mujoco",
    r"privacy\.noise": "jax dp_accounting",
    r"": "jax numba",
}
"""By command, what its recipe imports: the first that fits."""
AGENT = "--algorithm.local_epochs 1 --algorithm.tasks 2 --algorithm.eval_tasks 4"
SHORTER = {
    r"^fedagent/webshop": f"{AGENT} --algorithm.model {{models}}/webshop-tiny",
    r"^fedagent": f"{AGENT} --algorithm.model {{models}}/household-tiny",
    r"^fedrlhf": "--algorithm.rating_queries 5",
    r"fedqhd|feddqn|fedprox-dqn|truncate-qhd": "--algorithm.episodes 2 --algorithm.eval_episodes 1",
    r"": "--algorithm.eval_episodes 2",
}  # fmt: skip
"""By command, flags that make it short: the first that fits."""


WARM_STARTS = {
    "household-tiny": "household --listed --world.size tiny",
    "webshop-tiny": "webshop --tasks 20 --world.public 600 --world.validation 200",
}
COMMANDS = runs()
LEFT = [one for one in COMMANDS if not any(re.search(words, one) for words in SKIPPED)]


def first(table: dict[str, str], command: str) -> str:
    return next(value for words, value in table.items() if re.search(words, command))


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("models")


def warm_started(folder: Path, name: str) -> None:
    pytest.importorskip("torch", reason="language agents need the extra llm")
    if not (folder / name).is_dir():
        words = f"warmstart {WARM_STARTS[name]} --out {folder / name} --steps 3 --batch 4"
        assert call(shlex.split(words)) == 0


def test_what_is_skipped_is_there():
    assert all(any(re.search(words, one) for one in COMMANDS) for words in SKIPPED)
    assert len(LEFT) > 60


@pytest.mark.parametrize("command", LEFT)
def test_a_run_that_a_page_shows_runs(command: str, models: Path, tmp_path, monkeypatch, capfd):
    for module in first(NEEDS, command).split():
        pytest.importorskip(module, reason="part of an extra")
    if "source movielens" in command and "FEDRL_DATA" not in os.environ:
        pytest.skip("the genuine ratings: FEDRL_DATA names no folder")
    shorter = first(SHORTER, command)
    for name in WARM_STARTS:
        if name in shorter:
            warm_started(models, name)
    monkeypatch.chdir(tmp_path)
    flags = f"--rounds 1 --eval_every 1 {shorter.format(models=models)}"
    assert call(["run", *shlex.split(command), *shlex.split(flags)]) == 0, capfd.readouterr().err
    [run] = tmp_path.glob("runs/*/*/summary.json")
    assert run.stat().st_size > 0
