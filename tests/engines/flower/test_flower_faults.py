"""Real processes that are killed, stopped and hung: every round is there, and all of it is told.

The oracle is the record itself (`what_the_record_tells`): the same rounds without machines, with
clients that fail where the record says so, must give the same parameters and metrics to the bit.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra flower")

from support.flower_runs import (
    CLIENTS,
    MOMENTUM,
    QUICK,
    config,
    on_flower,
    one_by_one,
    records,
    rounds_of,
    same_numbers,
    what_the_record_tells,
)

from fedrl.config.loading import to_toml
from fedrl.core import seeding
from fedrl.core.types import Job
from fedrl.engines.flower.connection import FOLDER
from fedrl.engines.flower.engine import FlowerEngine
from fedrl.engines.flower.local_federation import LocalFederation
from fedrl.engines.flower.status import status
from fedrl.engines.flower.superlink_client import Outgoing, SuperLinkClient
from fedrl.runs.run_dir import RunDir

pytestmark = pytest.mark.machines

ROUNDS = 6
DEADLINE = ("--federation.deadline", "8")
"""Long for a round and short for a test; a worker that starts anew may miss it."""


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFederation]:
    folder = tmp_path_factory.mktemp("federation")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FOLDER, str(folder / "connections"))
        faults = ["faults"]
        with LocalFederation(
            folder, CLIENTS, name="test", program=QUICK, allowed=faults
        ) as federation:
            yield federation


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return one_by_one(MOMENTUM, tmp_path_factory.mktemp("alone"), rounds=ROUNDS)


@pytest.fixture(scope="module")
def warm(up: LocalFederation, tmp_path_factory: pytest.TempPathFactory) -> LocalFederation:
    """With the algorithm loaded everywhere: it is the same in all that follows."""
    on_flower(MOMENTUM, tmp_path_factory.mktemp("warm"), rounds=ROUNDS)
    return up


@pytest.fixture
def inside_round(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Callable[[], None]], None]:
    """Does something when the jobs of a round are out and none is answered."""
    actions: dict[int, Callable[[], None]] = {}
    jobs = 0
    push = SuperLinkClient.push

    def pushed(link: SuperLinkClient, messages: list[Outgoing]) -> list[str]:
        nonlocal jobs
        numbers = push(link, messages)
        for message in messages:
            jobs += '"kind": "job"' in message.content["fedrl"]["text"]
        if jobs and jobs % CLIENTS == 0:  # each of these rounds asks everybody, once
            actions.pop(jobs // CLIENTS - 1, lambda: None)()
        return numbers

    monkeypatch.setattr(SuperLinkClient, "push", pushed)
    return actions.__setitem__


def after_round(number: int, act: Callable[[], None], patch: pytest.MonkeyPatch) -> None:
    """Does something when a round is saved and the next one has not begun."""
    checkpoint = RunDir.checkpoint

    def saved(run: RunDir, snapshot: Any) -> None:
        checkpoint(run, snapshot)
        if snapshot.round == number:
            act()

    patch.setattr(RunDir, "checkpoint", saved)


def deadline_in(number: int, seconds: float, patch: pytest.MonkeyPatch) -> None:
    """In this round alone, whatever the settings say: what starts or compiles in the others takes
    as long as it takes."""
    run = FlowerEngine.run

    def timed(engine: FlowerEngine, jobs: Sequence[Job], _: float = 0.0) -> Iterator[Any]:
        return run(engine, jobs, seconds if jobs[0].round == number else 0.0)

    patch.setattr(FlowerEngine, "run", timed)


class Starter:
    """Starts processes in a thread that never ends: the kernel ends them with their thread."""

    def __init__(self) -> None:
        self.waiting: list[tuple[float, Callable[[], None]]] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def later(self, start: Callable[[], None], seconds: float) -> None:
        self.waiting.append((time.monotonic() + seconds, start))

    def _serve(self) -> None:
        while True:
            for item in [i for i in self.waiting if i[0] <= time.monotonic()]:
                item[1]()
                self.waiting.remove(item)
            time.sleep(0.1)

    def join(self) -> None:
        while self.waiting:
            time.sleep(0.1)


@pytest.fixture(scope="module")
def starter() -> Starter:
    return Starter()


def kill(process: subprocess.Popen[bytes] | None) -> None:
    assert process is not None
    process.kill()
    process.wait()


def supernode_of(node: subprocess.Popen[bytes]) -> int:
    """The SuperNode that a node has started."""
    text = Path(f"/proc/{node.pid}/task/{node.pid}/children").read_text()
    (found,) = [int(pid) for pid in text.split() if "adapter.supernode" in words_of(int(pid))]
    return found


def words_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()


def failures(run: Path) -> dict[int, dict[int, str]]:
    """Reasons by round and client."""
    found: dict[int, dict[int, str]] = {}
    for record in records(run):
        if record["status"] == "failed":
            found.setdefault(record["round"], {})[record["client"]] = record["reason"]
    return found


def test_a_hung_client_is_stopped_holds_nobody_up_and_comes_back(
    up: LocalFederation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    words = ("--faults.clients", "1", "--faults.kind", "hang", "--faults.rate", "0.5")
    seed, hangs = 0, [True]
    while hangs != [False, False, True, False, False]:
        seed += 1
        draws = [seeding.derive(seed, "local/0", number, 1) for number in range(5)]
        hangs = [np.random.default_rng(draw).uniform() < 0.5 for draw in draws]
    words += ("--federation.deadline", "600", "--seed", str(seed))
    deadline_in(2, 30.0, monkeypatch)
    run = on_flower(MOMENTUM, tmp_path / "a", *words, rounds=4)
    assert rounds_of(run) == [0, 1, 2, 3, 4]
    assert failures(run) == {2: {1: "no answer within the deadline of 30 s"}}
    same_numbers(run, what_the_record_tells(run, MOMENTUM, tmp_path / "b", "--seed", str(seed)))


def test_a_slow_client_misses_its_round_and_its_late_answer_counts_for_nothing(
    warm: LocalFederation, tmp_path: Path, inside_round: Callable, monkeypatch: pytest.MonkeyPatch
):
    """Frozen for less than half a minute: later a SuperLink may call its node unavailable, and it
    misses the next round, too."""
    slow = warm.nodes[1]
    inside_round(1, lambda: slow.send_signal(signal.SIGSTOP))
    inside_round(2, lambda: slow.send_signal(signal.SIGCONT))
    deadline_in(1, 15.0, monkeypatch)
    try:
        run = on_flower(MOMENTUM, tmp_path / "a", rounds=ROUNDS)
    finally:
        slow.send_signal(signal.SIGCONT)
    assert rounds_of(run) == list(range(ROUNDS + 1))
    assert failures(run) == {1: {1: "no answer within the deadline of 15 s"}}
    same_numbers(run, what_the_record_tells(run, MOMENTUM, tmp_path / "b"))


@pytest.mark.parametrize("moment", ["inside", "between"])
def test_a_superlink_that_is_killed_costs_nothing(
    moment: str,
    warm: LocalFederation,
    tmp_path: Path,
    undisturbed: Path,
    inside_round: Callable,
    starter: Starter,
    monkeypatch: pytest.MonkeyPatch,
):
    def strike() -> None:
        kill(warm.link)
        starter.later(warm.start_link, 2.0)

    if moment == "inside":
        inside_round(2, strike)
    else:
        after_round(1, strike, monkeypatch)
    run = on_flower(MOMENTUM, tmp_path, rounds=ROUNDS)
    starter.join()
    same_numbers(run, undisturbed)
    assert "waiting for it" in (run / "log.txt").read_text()


def test_nodes_come_back_after_an_orderly_stop_of_the_superlink(
    warm: LocalFederation, tmp_path: Path, undisturbed: Path
):
    """As `systemctl stop` does it, while their questions for messages wait there."""

    def said(word: str) -> bool:
        folders = [warm.folder / f"node-{client}" for client in range(CLIENTS)]
        return all(status(folder)[0].startswith(word) for folder in folders)

    assert warm.link is not None
    wait_until(lambda: said("connected to "))
    warm.link.terminate()
    warm.link.wait(30)
    wait_until(lambda: said("not connected (client "))
    warm.start_link()
    wait_until(lambda: said("connected to "))
    same_numbers(on_flower(MOMENTUM, tmp_path, rounds=ROUNDS), undisturbed)


def wait_until(true: Callable[[], bool], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.5)


def test_a_superlink_that_is_killed_costs_nothing_where_jobs_take_long(
    up: LocalFederation, tmp_path: Path, inside_round: Callable, starter: Starter
):
    """Longer than a node is waited for: a job ends with the SuperNode that it was for."""

    def strike() -> None:
        kill(up.link)
        up.start_link()

    method = MOMENTUM | {"algorithm": {"name": "fedsvrpg-m", "local_steps": 150_000}}
    # In round 0 clients explore for about 45 s.
    inside_round(0, lambda: starter.later(strike, 8.0))
    run = on_flower(method, tmp_path, "--flower.wait", "30", "--federation.retries", "0", rounds=1)
    starter.join()
    assert rounds_of(run) == [0, 1]
    assert failures(run) == {}
    assert "waiting for it" in (run / "log.txt").read_text()


# The driver -------------------------------------------------------------------------------------

FEDRL = [sys.executable, "-m", "fedrl", "run"]


class Driver:
    """`fedrl run` in a process of its own; `go` starts it, and after a kill goes on with it."""

    def __init__(self, folder: Path, *flags: str) -> None:
        words = ("--engine", "flower", "--connection", "test", *flags)
        folder.mkdir(parents=True)
        self.recipe, self.folder = folder / "recipe.toml", folder
        self.recipe.write_text(to_toml(config(MOMENTUM, folder, *words, rounds=ROUNDS)))
        self.output = folder / "driver.txt"
        self.go()

    @property
    def run(self) -> Path | None:
        return next(iter(self.folder.glob("test/*")), None)

    def go(self) -> None:
        run = self.run
        words = ["--resume", str(run)] if run is not None else [str(self.recipe)]
        with self.output.open("ab") as output:
            self.process = subprocess.Popen([*FEDRL, *words], stdout=output, stderr=output)

    def rounds(self) -> int:
        """Rounds that are recorded, the opening one included."""
        if self.run is None or not (self.run / "metrics.jsonl").is_file():
            return 0
        return (self.run / "metrics.jsonl").read_bytes().count(b"\n")

    def wait_for_round(self, number: int) -> None:
        while self.rounds() <= number:
            assert self.process.poll() is None, self.output.read_text()
            time.sleep(0.05)

    def finish(self) -> Path:
        assert self.process.wait(300) == 0, self.output.read_text()
        assert self.run is not None
        return self.run


def test_a_driver_that_is_killed_resumes_to_the_same_numbers(
    warm: LocalFederation, tmp_path: Path, undisturbed: Path
):
    driver = Driver(tmp_path / "a")
    driver.wait_for_round(1)
    kill(driver.process)
    assert driver.rounds() <= ROUNDS
    driver.go()
    same_numbers(driver.finish(), undisturbed)


@pytest.mark.parametrize("part", ["node", "SuperNode"])
def test_a_node_that_is_killed_in_a_round_costs_an_update(
    part: str, warm: LocalFederation, tmp_path: Path, inside_round: Callable, starter: Starter
):
    """All of a node, which is started again; or its SuperNode, which it starts again itself."""

    def strike() -> None:
        node = warm.nodes[2]
        node.send_signal(signal.SIGSTOP)
        time.sleep(1.0)  # its SuperNode has taken the job now, and nobody has answered it
        if part == "node":
            kill(node)
            starter.later(lambda: warm.start_node(2), 0.0)
        else:
            os.kill(supernode_of(node), signal.SIGKILL)
            node.send_signal(signal.SIGCONT)

    inside_round(1, strike)
    run = on_flower(MOMENTUM, tmp_path / "a", *DEADLINE, rounds=ROUNDS)
    starter.join()
    assert rounds_of(run) == list(range(ROUNDS + 1))
    told = failures(run)
    assert all(set(clients) == {2} for clients in told.values())
    assert 1 in told
    assert ROUNDS not in told
    same_numbers(run, what_the_record_tells(run, MOMENTUM, tmp_path / "b"))


@pytest.mark.parametrize("seed", range(5))
def test_random_kills_lose_nothing(seed: int, warm: LocalFederation, tmp_path: Path):
    """Three kills at drawn moments: of the SuperLink, of nodes, of the driver."""
    draw = random.Random(seed)
    flags = ("--federation.quorum", "0.3", *DEADLINE)
    driver = Driver(tmp_path / "a", *flags)
    for number in sorted(draw.sample(range(ROUNDS - 2), 3)):
        driver.wait_for_round(number)
        time.sleep(draw.uniform(0.0, 1.0))
        victim = draw.choice(["link", "driver", *range(CLIENTS)])
        pause = draw.uniform(0.0, 3.0)
        assert driver.process.poll() is None, "it was to be disturbed while it runs"
        if victim == "link":
            kill(warm.link)
            time.sleep(pause)
            warm.start_link()
        elif victim == "driver":
            kill(driver.process)
            driver.go()
        else:
            kill(warm.nodes[victim])
            time.sleep(pause)
            warm.start_node(victim)
    run = driver.finish()
    assert rounds_of(run) == list(range(ROUNDS + 1))
    told = records(run)
    assert all(record["status"] == "ok" or record["reason"] for record in told)
    same_numbers(run, what_the_record_tells(run, MOMENTUM, tmp_path / "b", *flags[:2]))
