"""The engine on real processes: a SuperLink and nodes on loopback, with TLS and node keys."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")

from flower_runs import CLIENTS, MOMENTUM, config, on_flower, one_by_one, same_numbers

from fedrl.engines.flower import children, keys
from fedrl.engines.flower.connection import FOLDER, Connection, find
from fedrl.engines.flower.link import Link, Lost, wait_for
from fedrl.engines.flower.up import Federation
from fedrl.types import UserError

pytestmark = pytest.mark.slow

QHD = {"name": "fedqhd", "features": 300, "sizes": [100, 200, 300], "anchors": 20}
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
    "ratings": {
        "algorithm": {"name": "fedrlhf", "local_epochs": 1},
        "world": {"name": "movielens"},
        "aggregate": {"name": "weighted"},
    },
}


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    folder = tmp_path_factory.mktemp("federation")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FOLDER, str(folder / "connections"))
        with Federation(folder, CLIENTS, name="test") as federation:
            yield federation


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return one_by_one(MOMENTUM, tmp_path_factory.mktemp("alone"))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_same_numbers_as_client_by_client(family: str, up: Federation, tmp_path: Path):
    method = FAMILIES[family]
    same_numbers(on_flower(method, tmp_path / "a"), one_by_one(method, tmp_path / "b"))


def test_the_same_numbers_for_agents(up: Federation, tmp_path: Path):
    pytest.importorskip("torch")
    from agent_runs import make_model, recipe

    from fedrl.experiment.config import as_dict

    model = make_model(tmp_path / "model")
    method = as_dict(recipe(model, federation={"clients": CLIENTS, "cohort": 2}))
    kept = {key: method[key] for key in ("federation", "algorithm", "world", "partition")}
    a = on_flower(kept, tmp_path / "a", rounds=2)
    same_numbers(a, one_by_one(kept, tmp_path / "b", rounds=2))


def test_a_cold_node_gives_the_same_numbers(up: Federation, tmp_path: Path, undisturbed: Path):
    same_numbers(on_flower(MOMENTUM, tmp_path, "--flower.warm", "false"), undisturbed)


# Faults -----------------------------------------------------------------------------------------


def records(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "clients.jsonl").read_text().splitlines()]


def rounds_of(run: Path) -> list[int]:
    return [json.loads(line)["round"] for line in (run / "metrics.jsonl").read_text().splitlines()]


def meanwhile(act: Callable[[], None], after: float) -> threading.Thread:
    def wait_and_act() -> None:
        time.sleep(after)
        act()

    thread = threading.Thread(target=wait_and_act)
    thread.start()
    return thread


def test_a_hung_client_is_stopped_and_holds_nobody_up(up: Federation, tmp_path: Path):
    words = ["--faults.clients", "1", "--faults.kind", "hang", "--federation.deadline", "25"]
    run = on_flower(MOMENTUM, tmp_path, *words, rounds=1)
    assert rounds_of(run) == [0, 1]
    for record in records(run):
        if record["client"] == 1:
            assert record["reason"] == "no answer within the deadline of 25 s"
        else:
            assert record["status"] == "ok"


def test_a_superlink_that_is_killed_costs_nothing(
    up: Federation, tmp_path: Path, undisturbed: Path
):
    assert up.link is not None

    def kill() -> None:
        assert up.link is not None
        up.link.kill()
        up.link.wait()
        # Not from this thread: the kernel ends children with the thread that made them.

    thread = meanwhile(kill, 6.0)
    watch = Watch(up)
    try:
        run = on_flower(MOMENTUM, tmp_path)
    finally:
        thread.join()
        watch.stop()
    same_numbers(run, undisturbed)
    assert "waiting for it" in (run / "log.txt").read_text()


class Watch:
    """Starts what was killed again, in a thread that stays until the federation ends."""

    def __init__(self, up: Federation, nodes: bool = False) -> None:
        self.up = up
        self.nodes = nodes
        self.over = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:  # never returns: see children.start
            if not self.over.is_set():
                if not self.up.running():
                    self.up.start_link()
                for client, node in list(self.up.nodes.items()):
                    if self.nodes and node.poll() is not None:
                        self.up.start_node(client)
            time.sleep(0.5)

    def stop(self) -> None:
        self.over.set()


@pytest.mark.parametrize("seed", range(5))
def test_random_kills_lose_nothing(seed: int, up: Federation, tmp_path: Path):
    """Three kills at random moments, of the SuperLink or of nodes, while four rounds are run."""
    draw = random.Random(seed)

    def kill_three() -> None:
        for _ in range(3):
            time.sleep(draw.uniform(2.0, 10.0))
            victim = draw.choice([up.link, *up.nodes.values()])
            assert victim is not None
            victim.kill()

    watch = Watch(up, nodes=True)
    thread = meanwhile(kill_three, 3.0)
    try:
        words = ["--federation.deadline", "60", "--federation.quorum", "0.3"]
        run = on_flower(MOMENTUM, tmp_path, *words, rounds=4)
    finally:
        thread.join()
        time.sleep(2.0)
        watch.stop()
    assert rounds_of(run) == [0, 1, 2, 3, 4]
    told = records(run)
    assert all(r["status"] == "ok" or r["reason"] for r in told)
    for number in range(5):
        last = [r for r in told if r["round"] == number][-CLIENTS:]
        assert [r["client"] for r in last] == list(range(CLIENTS))
        assert any(r["status"] == "ok" for r in last)


def test_a_node_that_is_killed_costs_at_most_its_updates(up: Federation, tmp_path: Path):
    def kill() -> None:
        up.nodes[2].kill()
        up.nodes[2].wait()

    thread = meanwhile(kill, 6.0)
    try:
        run = on_flower(MOMENTUM, tmp_path, "--flower.wait", "5", "--federation.deadline", "40")
    finally:
        thread.join()
        up.start_node(2)
    assert rounds_of(run) == [0, 1, 2, 3]
    assert all(record["status"] == "ok" for record in records(run) if record["client"] != 2)
    lost = [record for record in records(run) if record["status"] == "failed"]
    assert lost
    assert {record["client"] for record in lost} == {2}


def test_a_driver_that_is_killed_resumes_to_the_same_numbers(
    up: Federation, tmp_path: Path, undisturbed: Path
):
    settings = config(MOMENTUM, tmp_path, "--engine", "flower", "--connection", "test")
    from fedrl.experiment.config import to_toml

    recipe = tmp_path / "recipe.toml"
    recipe.write_text(to_toml(settings))
    words = [sys.executable, "-m", "fedrl", "run"]
    driver = subprocess.Popen([*words, str(recipe)], stdout=subprocess.DEVNULL)
    found: list[Path] = []
    while not found:  # round 1 has begun
        assert driver.poll() is None
        time.sleep(0.2)
        found = list(tmp_path.glob("test/*/checkpoints/round-000000*"))
    time.sleep(1.0)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    run = found[0].parent.parent
    subprocess.run([*words, "--resume", str(run)], check=True, stdout=subprocess.DEVNULL)
    same_numbers(run, undisturbed)


# Intruders --------------------------------------------------------------------------------------


def stranger(up: Federation, tmp_path: Path, ca: Path, key: Path) -> subprocess.Popen[bytes]:
    words = ["-m", "fedrl", "flower", "node", "--client", "1", "--superlink", up.address]
    words += ["--folder", str(tmp_path / "stranger"), "--ca", str(ca), "--key", str(key)]
    return children.start(words, tmp_path / "flwr", tmp_path / "stranger.log")


@pytest.mark.parametrize("wrong", ["key", "ca"])
def test_strangers_stay_outside(wrong: str, up: Federation, tmp_path: Path, undisturbed: Path):
    """A key that nobody registered; a registered key that trusts another CA."""
    keys.make_node(tmp_path / "key")
    keys.make_server(tmp_path / "other", ["127.0.0.1"])
    key = tmp_path / "key" if wrong == "key" else up.folder / "node-1" / "key"
    ca = up.folder / "server" / "ca.pem" if wrong == "key" else tmp_path / "other" / "ca.pem"
    process = stranger(up, tmp_path, ca, key)
    try:
        same_numbers(on_flower(MOMENTUM, tmp_path / "runs"), undisturbed)
        assert process.poll() is None  # it keeps trying
        log = (tmp_path / "stranger" / "supernode.log").read_text()
        assert "SuperNode ID" not in log
        assert ("certificate" in log.lower()) == (wrong == "ca")
    finally:
        children.stop([process])


def test_a_plain_text_visitor_gets_nothing(up: Federation):
    plain = Connection(up.address, secret=find("test").secret)
    with pytest.raises(Lost):
        Link(plain).open()


def test_a_driver_without_the_secret_is_refused(up: Federation, tmp_path: Path):
    (tmp_path / "secret").write_bytes(os.urandom(32))
    known = find("test")
    with pytest.raises(UserError, match="refuses this driver"):
        wait_for(Connection(known.address, known.ca, str(tmp_path / "secret")), 1.0)


def test_a_driver_with_another_ca_does_not_talk(up: Federation, tmp_path: Path):
    keys.make_server(tmp_path / "other", ["127.0.0.1"])
    other = Connection(up.address, str(tmp_path / "other" / "ca.pem"))
    with pytest.raises(UserError, match="does not vouch for"):
        wait_for(other, 1.0)
