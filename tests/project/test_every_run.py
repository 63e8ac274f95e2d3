"""Every `fedrl run` that README and docs show is run, as it stands there but for a round or two and
few episodes. What is not run here, test_commands_accounted.py accounts for."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest
from support.page_commands import SHOWN, runs

from fedrl.cli import call
from fedrl.config.seeds import split_seeds

pytestmark = pytest.mark.slow
SKIPPED = (
    "--engine flower", "strategy own", "^prompts/organisations", "feedback live", "device cuda",
    "^fedagent/(household|webshop)( |$)", "^fedrlhf/imdb", "--federation.clients 610",
)  # fmt: skip
PRINTS = re.compile(r"--(help|dry-run)\b")
"""And trains nobody."""
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
WARM = [one.line for one in SHOWN if one.line.startswith("fedrl warmstart imdb ")]
"""Of reviews that fedrl makes up; those of other worlds are on the readers' paths."""
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
    assert len(LEFT) > 90


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
    if PRINTS.search(command):
        assert call(["run", *shlex.split(command)]) == 0, capfd.readouterr().err
        assert capfd.readouterr().out
        assert not (tmp_path / "runs").exists()
        return
    flags = f"--rounds 1 --eval_every 1 {shorter.format(models=models)}"
    words = shlex.split(command)
    assert call(["run", *words, *shlex.split(flags)]) == 0, capfd.readouterr().err
    runs = [*tmp_path.glob("runs/*/*/summary.json")]
    assert len(runs) == len(split_seeds(words[1:])[0])
    assert all(run.stat().st_size > 0 for run in runs)


@pytest.mark.parametrize("command", WARM)
def test_a_warm_start_that_a_page_shows_runs(command: str, tmp_path, monkeypatch, capfd):
    pytest.importorskip("torch", reason="language models need the extra llm")
    monkeypatch.chdir(tmp_path)
    words = shlex.split(re.sub(r"--steps \d+", "--steps 3", command))[1:]
    assert call(words) == 0, capfd.readouterr().err
    assert (tmp_path / words[words.index("--out") + 1]).is_dir()
