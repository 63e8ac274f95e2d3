"""Every command that README and docs show on a run is called on one: evaluated, exported, recorded,
measured. Commands that wait for people, machines or hours are named with where they are tested."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from project.test_every_command import COMMANDS

from fedrl.cli import call

pytest.importorskip("jax", reason="needs the extra classic")
pytest.importorskip("torch", reason="needs the extra llm")
pytestmark = pytest.mark.slow
ELSEWHERE = {
    r"^fedrl (watch|feedback|serve)": "they serve pages: tests/report/watch, feedback, project",
    r"^fedrl flower": "tests/engines/flower, and deploy.md's walk",
    r"^fedrl (sweep|reproduce|warmstart|data|new|verify|joining|play)": "cli, test_reader_paths",
    r"^fedrl plan RUN": "of a model that has learned something: tests/analysis",
    r"\./mine\.py|MODEL": "a world or a model of one's own: tests/cli",
    r"runs/|--client ": "the same with a run's path; of clients: tests/runs",
}
SMALL = "--rounds 1 --eval_every 1"
AGENT = (
    "--algorithm.local_epochs 1 --algorithm.tasks 2 --algorithm.eval_tasks 4 "
    "--world.train 20 --world.unseen 8 --federation.clients 4 --partition.size 5"
)
QHD = "--algorithm.episodes 3 --algorithm.features 64 --algorithm.eval_episodes 1"
OWN = "--algorithm.encoders own --algorithm.sizes 32,64"
MADE = {
    "agent": f"fedagent/demo {AGENT}",
    "qhd": f"fedqhd/cartpole {QHD} {OWN}",
    "oracle": f"fedqhd/cartpole {QHD} --federation.kind centralized",
    "policy": "momentum/cartpole --algorithm.eval_episodes 2",
}
OF = {r"^fedrl gap": "qhd", r"^fedrl record|mypolicy|eval RUN$": "policy", r"": "agent"}
"""By command, which of these runs it is called on: the first that fits."""
LEFT = [one for one in COMMANDS if not any(re.search(words, one) for words in ELSEWHERE)]


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("made")
    words = (
        f"warmstart household --out {folder}/model --steps 3 --batch 4 --listed --world.size tiny"
    )
    assert call(shlex.split(words)) == 0
    runs = {}
    for name, recipe in MADE.items():
        model = f"--algorithm.model {folder}/model" if name == "agent" else ""
        words = f"run {recipe} {SMALL} {model} --out {folder}/{name}"
        assert call(shlex.split(words)) == 0
        [config] = (folder / name).rglob("config.toml")
        runs[name] = config.parent
    return runs


def test_commands_were_found():
    kinds = {one.split()[1] for one in LEFT}
    assert kinds == {"eval", "export", "gap", "label", "partition", "plan", "record", "report"}


@pytest.mark.parametrize("command", LEFT)
def test_a_command_that_a_page_shows_on_a_run(command: str, made, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    name = next(value for words, value in OF.items() if re.search(words, command))
    places = {"RUN": str(made[name]), "ORACLE_RUN": str(made["oracle"])}
    words = [places.get(word, word) for word in shlex.split(command)[1:]]
    assert call(words) == 0, capfd.readouterr().err
    if "--out" in words:
        assert Path(words[words.index("--out") + 1]).exists()
