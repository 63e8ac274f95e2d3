"""Every command that README and docs show on a run is called on one: evaluated, exported, recorded,
measured."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from support.page_commands import SHOWN

from fedrl.cli import call

pytestmark = pytest.mark.slow
CALLED = re.compile(r"^fedrl ((eval|export|gap|label|record|report) RUN\b|(partition|plan)( |$))")
ELSEWHERE = re.compile(
    r"plan RUN|\./mine\.py|partition (WORLD|prompts)|partition$|runs/|--client |--split test"
)
"""What test_commands_accounted.py names another test for."""
SMALL = "--rounds 1 --eval_every 1"
AGENT = (
    "--algorithm.local_epochs 1 --algorithm.tasks 2 --algorithm.eval_tasks 4 "
    "--world.train 20 --world.unseen 8 --federation.clients 4 --partition.size 4 "
    "--world.withheld kitchen-5"
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
LEFT = [
    one.line
    for one in SHOWN
    if CALLED.match(one.line) and one.whole and not ELSEWHERE.search(one.line)
]


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> dict[str, Path]:
    pytest.importorskip("jax", reason="needs the extra classic")
    pytest.importorskip("torch", reason="needs the extra llm")
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
    places = {"RUN": str(made[name]), "ORACLE_RUN": str(made["oracle"]), "FOLDER": "made"}
    places["FILE"] = "labels.json"
    words = [places.get(word, word) for word in shlex.split(command)[1:]]
    assert call(words) == 0, capfd.readouterr().err
    if "--out" in words:
        assert Path(words[words.index("--out") + 1]).exists()
