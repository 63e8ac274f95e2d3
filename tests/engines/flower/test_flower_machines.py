"""The engine on real processes: a SuperLink and nodes on loopback, with TLS and node keys.

Every family gives the numbers that it gives in one process; strangers and liars change nothing.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from support import realdata

pytest.importorskip("flwr", reason="needs the extra flower")

from support.flower_hostile import LIES
from support.flower_runs import (
    CLASSICS,
    CLIENTS,
    MOMENTUM,
    QUICK,
    config,
    on_flower,
    one_by_one,
    records,
    same_numbers,
    train,
    what_the_record_tells,
)
from support.repository import TESTS

from fedrl.config.loading import find_recipe, read_recipe
from fedrl.core import tree
from fedrl.core.types import UserError
from fedrl.engines.flower import child_processes, keys
from fedrl.engines.flower.connection import FOLDER, Connection, Lost, find
from fedrl.engines.flower.local_federation import LocalFederation
from fedrl.engines.flower.superlink_client import SuperLinkClient, wait_for
from fedrl.runs.run_dir import RunDir, read_checkpoint

pytestmark = pytest.mark.slow

ROUNDS = len(LIES) - 1
"""With the same recipe nodes keep the algorithm loaded from test to test."""
QHD = {"name": "fedqhd", "features": 300, "sizes": [100, 200, 300], "anchors": 20}
RATINGS = {
    "algorithm": {"name": "fedrlhf", "local_epochs": 1},
    "world": {"name": "movielens"},
    "aggregate": {"name": "weighted"},
}
FAMILIES = {
    "momentum": MOMENTUM,
    "shared encoder": {
        "algorithm": QHD | {"episodes": 3},
        "world": {"name": "cartpole-v1"},
    },
    "own encoders": {
        "algorithm": QHD | {"episodes": 3, "encoders": "own"},
        "world": {"name": "cartpole-v1"},
    },
    "ratings": RATINGS,
}


UNPICKLED = "unpickled.txt"
TELLTALE = f"""
import pathlib, pickle, sys

def note(event, _):
    if event != "pickle.find_class":
        return
    places, frame = [], sys._getframe(1)
    while frame is not None:
        places.append(frame.f_code.co_filename)
        frame = frame.f_back
    # A node and its worker are two processes of one machine, and talk in pickles.
    inside = any("multiprocessing" in p or p.endswith("engines/worker_pipe.py") for p in places)
    outside = [p for p in places if "/flwr/" in p or "engines/flower/" in p or p == "<string>"]
    if outside and not inside:
        with open(pathlib.Path(__file__).with_name({UNPICKLED!r}), "a") as file:
            file.write(outside[0] + "\\n")

sys.addaudithook(note)
"""


@pytest.fixture(scope="module")
def telltale(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder where processes that start from now on note what they unpickle off the wire."""
    folder = tmp_path_factory.mktemp("telltale")
    (folder / "sitecustomize.py").write_text(TELLTALE)
    (folder / UNPICKLED).touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]))
        yield folder


@pytest.fixture(scope="module")
def up(telltale: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFederation]:
    folder = tmp_path_factory.mktemp("federation")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FOLDER, str(folder / "connections"))
        models = ["algorithm.model"]  # lies where the test has made it
        with LocalFederation(
            folder, CLIENTS, name="test", program=QUICK, allowed=models
        ) as federation:
            yield federation


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return one_by_one(MOMENTUM, tmp_path_factory.mktemp("alone"), rounds=ROUNDS)


def last_state(run: Path) -> dict[str, np.ndarray]:
    (state,) = read_checkpoint(RunDir(run).checkpoints()[0])[0].states
    return {name: np.asarray(leaf) for name, leaf in tree.flatten(state).items()}


def close_numbers(a: Path, b: Path) -> None:
    """The same within rounding: a compiled call for many clients adds up in another order."""
    x, y = last_state(a), last_state(b)
    assert x.keys() == y.keys()
    for name in x:
        np.testing.assert_allclose(x[name], y[name], rtol=1e-4, atol=1e-5, err_msg=name)
    lines = [(run / "metrics.jsonl").read_text().splitlines() for run in (a, b)]
    for one, other in zip(*lines, strict=True):
        assert json.loads(one) == pytest.approx(json.loads(other), rel=1e-4, abs=1e-5)


def conforms(method: dict, folder: Path) -> Path:
    """Flower against client by client and against the default engine, after three rounds."""
    run = on_flower(method, folder / "flower")
    same_numbers(run, one_by_one(method, folder / "alone"))
    close_numbers(run, train(config(method, folder / "here")))
    first, last = RunDir(run).checkpoints()[-1], RunDir(run).checkpoints()[0]
    states = [tree.flatten(read_checkpoint(path)[0].states[0]) for path in (first, last)]
    assert any(not np.array_equal(states[0][name], states[1][name]) for name in states[0])
    return run


@pytest.mark.parametrize("family", FAMILIES)
def test_the_same_numbers_as_in_one_process(family: str, up: LocalFederation, tmp_path: Path):
    conforms(FAMILIES[family], tmp_path)


@pytest.mark.machines
@pytest.mark.parametrize("name", CLASSICS)
def test_the_same_numbers_for_the_classics(name: str, up: LocalFederation, tmp_path: Path):
    """Without SuperLinks, for every change: test_flower_classics.py."""
    conforms(CLASSICS[name], tmp_path)


@pytest.mark.machines
@pytest.mark.realdata
def test_the_same_numbers_on_genuine_ratings(up: LocalFederation, tmp_path: Path):
    realdata.data("movielens")
    conforms(RATINGS | {"world": {"name": "movielens", "source": "movielens"}}, tmp_path)


@pytest.mark.machines
def test_the_same_numbers_for_the_agents_of_the_demo(
    up: LocalFederation, tmp_path: Path, fedrl: Callable
):
    pytest.importorskip("torch")
    fedrl("warmstart", "household", "--out", "model", "--steps", "200", "--batch", "32",
          "--listed", "--world.size", "tiny")  # fmt: skip
    demo = read_recipe(find_recipe("fedagent/demo"))
    method = {key: demo[key] for key in ("federation", "algorithm", "world", "partition")}
    method["federation"] |= {"clients": CLIENTS, "cohort": 2}
    method["algorithm"] |= {"model": str(tmp_path / "model"), "tasks": 4, "group": 4}
    method["world"] |= {"train": 60, "unseen": 12}
    method["partition"] |= {"size": 8}
    conforms(method, tmp_path)


@pytest.mark.machines
def test_a_cold_node_gives_the_same_numbers(up: LocalFederation, tmp_path: Path):
    run = on_flower(MOMENTUM, tmp_path / "a", "--flower.warm", "false", rounds=1)
    same_numbers(run, one_by_one(MOMENTUM, tmp_path / "b", rounds=1))


# Strangers --------------------------------------------------------------------------------------


WORDS = {"other ca": "certificate", "plain text": "Uvicorn running"}
"""What strangers' own logs say when they have tried; in plain text one is never told anything."""


def words_of(up: LocalFederation, folder: Path, *identity: str) -> list[str]:
    return ["--client", "1", "--superlink", up.address, "--folder", str(folder), *identity]


@pytest.mark.machines
def test_strangers_stay_outside_and_harm_nobody(
    up: LocalFederation, tmp_path: Path, undisturbed: Path
):
    """A key that nobody registered; a registered key under another CA; plain text."""
    keys.make_node(tmp_path / "key")
    keys.make_server(tmp_path / "other", ["127.0.0.1"])
    ca, key = str(up.folder / "server" / "ca.pem"), str(up.folder / "node-1" / "key")
    strangers = {
        "unknown key": ("--ca", ca, "--key", str(tmp_path / "key")),
        "other ca": ("--ca", str(tmp_path / "other" / "ca.pem"), "--key", key),
        "plain text": ("--insecure",),
    }
    for name in strangers:  # a policy of its own, or a node with a member's key does not start
        (tmp_path / name).mkdir()
        (tmp_path / name / "policy.toml").touch()
    before = len((up.folder / "link.log").read_text())
    processes = {
        name: child_processes.start(
            [*QUICK, *words_of(up, tmp_path / name, *identity)],
            tmp_path / name / "flwr",
            tmp_path / f"{name}.log",
        )
        for name, identity in strangers.items()
    }
    logs = {name: tmp_path / name / "supernode.log" for name in strangers}

    def refused() -> list[bool]:
        said = (up.folder / "link.log").read_text()[before:]
        return [
            re.search(r"refused /v1/fleet/\S+ from 127\.0\.0\.1 \((401|412)\)", said) is not None,
            *(WORDS[name] in read(logs[name]) for name in WORDS),
        ]

    try:
        until = time.monotonic() + 600  # only to end what hangs
        while not all(refused()):
            ended = [name for name, process in processes.items() if process.poll() is not None]
            assert not ended, [read(tmp_path / f"{name}.log") for name in ended]
            assert time.monotonic() < until, refused()
            time.sleep(0.5)
        same_numbers(on_flower(MOMENTUM, tmp_path / "runs", rounds=ROUNDS), undisturbed)
        for name, process in processes.items():
            assert process.poll() is None, name  # it keeps trying
            assert "SuperNode ID" not in read(logs[name]), name
    finally:
        child_processes.stop(list(processes.values()))


def read(path: Path) -> str:
    return path.read_text() if path.is_file() else ""


@pytest.mark.machines
def test_a_plain_text_driver_gets_nothing(up: LocalFederation):
    plain = Connection(up.address, secret=find("test").secret)
    with pytest.raises(Lost):
        SuperLinkClient(plain).open()
    with socket.create_connection(("127.0.0.1", up.port), timeout=10) as visit:
        visit.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert not visit.recv(100).startswith(b"HTTP")


@pytest.mark.machines
def test_a_driver_without_the_secret_is_refused(up: LocalFederation, tmp_path: Path):
    (tmp_path / "secret").write_bytes(os.urandom(32))
    known = find("test")
    with pytest.raises(UserError, match="refuses this driver"):
        wait_for(Connection(known.address, known.ca, str(tmp_path / "secret")), 1.0)


@pytest.mark.machines
def test_a_driver_with_another_ca_does_not_talk(up: LocalFederation, tmp_path: Path):
    keys.make_server(tmp_path / "other", ["127.0.0.1"])
    other = Connection(up.address, str(tmp_path / "other" / "ca.pem"))
    with pytest.raises(UserError, match="does not vouch for"):
        wait_for(other, 1.0)


# Liars ------------------------------------------------------------------------------------------

REASONS = {
    "undeclared": "the update has diary, which the algorithm does not declare",
    "too large": "its answer is larger than the",
    "too often": "its answer is larger than the",
    "replayed": "its answer is to another question: an old one, sent again?",
    "no archive": "its answer is malformed: not an archive of tensors",
    "pickled": "its answer is malformed: its pieces are not bytes",
    "nested": "its answer is malformed: not an archive of tensors (ValueError)",
    "numbered": "its answer is malformed: not an archive of tensors (ValueError)",
    "unprintable": "12:00:00 round 9/9 done",
    "multiplied": "its answer is malformed: not an archive of tensors (ValueError)",
    "boasted": "it reports env/steps outside 0 to",
}


@pytest.mark.machines
def test_a_member_that_lies_costs_its_own_updates(up: LocalFederation, tmp_path: Path):
    """A registered node: one kind of answer that nobody should send in each round."""
    child_processes.stop([up.nodes[2]])
    program = up.program
    up.program = [str(TESTS / "support" / "flower_hostile.py")]
    try:
        up.start_node(2)
        run = on_flower(MOMENTUM, tmp_path / "a", rounds=ROUNDS)
    finally:
        up.program = program
        child_processes.stop([up.nodes[2]])
        up.start_node(2)
    told = records(run)
    assert [r["client"] for r in told if r["status"] == "failed"] == [2] * len(REASONS)
    for number, lie in enumerate(LIES):
        (record,) = [r for r in told if r["round"] == number and r["client"] == 2]
        if lie == "honest":
            assert record["status"] == "ok"
        else:
            assert record["reason"].startswith(REASONS[lie])
    same_numbers(run, what_the_record_tells(run, MOMENTUM, tmp_path / "b"))


@pytest.mark.machines
def test_nothing_is_unpickled_off_the_wire(up: LocalFederation, telltale: Path, tmp_path: Path):
    """By the SuperLink, the SuperNodes, the nodes and the driver, in all that this file did."""
    recipe = tmp_path / "recipe.toml"
    from fedrl.config.loading import to_toml

    words = ("--engine", "flower", "--connection", "test")
    recipe.write_text(to_toml(config(MOMENTUM, tmp_path, *words, rounds=ROUNDS)))
    command = [sys.executable, "-m", "fedrl", "run", str(recipe)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=300)
    assert (telltale / UNPICKLED).read_text() == ""

    code = "import pickle; pickle.loads(pickle.dumps(print))"
    subprocess.run([sys.executable, "-c", code], check=True)  # it would be noticed
    assert (telltale / UNPICKLED).read_text() == "<string>\n"
    (telltale / UNPICKLED).write_text("")
