"""Clients in processes of their own: the same numbers, and a hung or dead one is stopped."""

from __future__ import annotations

import logging
import multiprocessing
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from support.rounds import SECRET, Talkative, play, same
from support.toy import Toy

from fedrl.clients.faults import Faulty
from fedrl.clients.faults import Settings as Faults
from fedrl.core.abilities import WAITING
from fedrl.core.types import UserError
from fedrl.engines.worker_pool import WorkerPool
from fedrl.runs.process_pool import LISTEN_SECONDS, Job, Speed, finish, perform, pool


def faulty(kind: str, clients: tuple[int, ...]) -> Faulty:
    return Faulty(Toy(), Faults(clients=clients, kind=kind))


def broken() -> Toy:
    raise ValueError("no such world")


def test_workers_give_the_numbers_of_one_process():
    with WorkerPool(Toy, 2) as engine:
        store = play(Toy(), engine=engine)
    alone = play(Toy())
    same(store.last.states[0], alone.last.states[0])
    assert [r.metrics for r in store.rounds] == [r.metrics for r in alone.rounds]
    assert [r.clients for r in store.rounds] == [r.clients for r in alone.rounds]


class Dated(Toy):
    """Steps by the number of the round."""

    def local(self, job):
        result = super().local(job)
        update = {name: job.round * array for name, array in result.update.items()}
        return replace(result, update=update)


@pytest.mark.slow
def test_workers_know_which_round_it_is():
    with WorkerPool(Dated, 2) as engine:
        there = play(Dated(), engine=engine)
    same(there.last.states[0], play(Dated()).last.states[0])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "deadline", "reason"),
    [
        ("hang", 0.5, "no answer within the deadline of 0.5 s"),
        # A process needs time to die: on a busy machine more than a short deadline.
        ("exit", 60.0, "its process died (exit code 3)"),
    ],
)
def test_a_hung_or_dead_client_costs_only_itself(kind, deadline, reason):
    with WorkerPool(partial(faulty, kind, (1, 4)), 2) as engine:
        store = play(faulty(kind, (1, 4)), rounds=2, engine=engine, deadline=deadline)
    for done in store.rounds[1:]:
        failed = {r["client"]: r["reason"] for r in done.clients if r["status"] == "failed"}
        assert failed == {1: reason, 4: reason}
    # What a client that raises at once would leave: the failures' kind does not matter.
    other = play(faulty("raise", (1, 4)), rounds=2)
    same(store.last.states[0], other.last.states[0])


def test_a_worker_that_cannot_build_says_why():
    with (
        WorkerPool(broken, 1) as engine,
        pytest.raises(UserError, match="could not start: ValueError: no such world"),
    ):
        play(Toy(), engine=engine)


@pytest.mark.parametrize("debug", ["", "1"])
def test_an_errors_words_stay_in_the_clients_process(debug, monkeypatch, capfd):
    monkeypatch.setenv("FEDRL_DEBUG", debug)
    with WorkerPool(Talkative, 1) as engine:
        store = play(Talkative(), rounds=1, engine=engine)
    (failed,) = [r for r in store.rounds[1].clients if r["status"] == "failed"]
    assert failed["client"] == 2
    assert failed["reason"].startswith("KeyError")
    assert (SECRET in failed["reason"]) == bool(debug)
    assert SECRET not in "".join(capfd.readouterr())


def overflow(error: type[Exception], text: str) -> None:
    raise error(text)


@pytest.mark.parametrize(
    ("error", "text", "trouble"),
    [
        (RuntimeError, "CUDA error:\nan illegal access", "RuntimeError: CUDA error: an illegal ac"),
        (OSError, "no space left", "OSError: no space left"),
        (MemoryError, "", "MemoryError"),
        (UserError, "no folder\nmore", "no folder"),
    ],
)
def test_a_run_that_fails_in_any_way_is_an_outcome(error, text, trouble):
    outcome = perform(partial(overflow, error, text), None)
    assert not outcome.finished
    assert outcome.trouble.startswith(trouble)
    assert "\n" not in outcome.trouble


@pytest.mark.slow
def test_the_runs_beside_one_that_fails_go_on(tmp_path):
    """In one process: the one that fails, which costs most, is the first."""
    files = [tmp_path / name for name in ("a", "b")]
    jobs = [Job("bad", 9.0, partial(overflow, RuntimeError, "CUDA"))]
    jobs += [Job(file.name, 1.0, file.touch) for file in files]
    said = []
    with pool(1) as executor:
        assert not finish(executor, jobs, said.append, None)
    assert all(file.exists() for file in files)
    assert said[0] == "bad: RuntimeError: CUDA"
    assert len(said) == 3


def wait_loudly() -> None:
    logging.getLogger(WAITING).warning("GPU 0 has no room: waiting")
    logging.getLogger("fedrl").warning("a client failed")
    print("talk")
    time.sleep(3 * LISTEN_SECONDS)


@pytest.mark.slow
def test_what_a_run_waits_for_is_said_while_it_does():
    said = []
    with pool(1) as executor:
        began = time.monotonic()

        def say(line):
            said.append((line, time.monotonic() - began))

        assert finish(executor, [Job("run", 1.0, wait_loudly)], say, None)
    (first, when), (last, then) = said
    assert first == "run: GPU 0 has no room: waiting"
    assert last.startswith("run in ")
    assert then - when > LISTEN_SECONDS


@pytest.mark.slow
def test_what_follows_a_job_comes_before_others_that_wait(tmp_path):
    """In one process: more worth is first, whatever it costs, and so is what follows from it."""
    done = tmp_path / "done"

    def job(name: str, worth: float, then: Callable[[], list[Job]] | None = None) -> Job:
        return Job(name, 1.0, partial(append, done, name), worth, then)

    jobs = [job("c", 1.0), job("a", 2.0, lambda: [job("b", 2.0)])]
    said: list[str] = []
    with pool(1) as executor:
        assert finish(executor, jobs, said.append, None, slots=1)
    assert done.read_text() == "abc"
    assert [line.partition(";")[2].split(",")[0] for line in said] == [
        " 1 of 3", " 2 of 3", " 3 of 3",
    ]  # fmt: skip


def test_how_long_the_rest_takes_is_told_without_what_compiled():
    """Two processes: the first job of each compiles, and ten more wait after the second."""
    speed = Speed(2)
    speed.add(1.0, 20.0)
    assert speed.left(11.0) == "at most about 1 min 50 s"
    speed.add(1.0, 20.0)
    assert speed.left(10.0) == "at most about 1 min 40 s"
    speed.add(1.0, 4.0)
    assert speed.left(9.0) == "about 18 s"


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


@pytest.mark.slow
def test_no_process_is_left_behind():
    import multiprocessing

    with WorkerPool(Toy, 2) as engine:
        play(Toy(), rounds=1, engine=engine)
        assert len(multiprocessing.active_children()) == 2
    assert not multiprocessing.active_children()


def write_and_wait(path: Path) -> None:
    path.write_text("begun")
    time.sleep(60)


@pytest.mark.slow
def test_a_process_that_is_told_to_stop_does_not_begin_what_its_queue_holds(tmp_path):
    """The pool hands a job over before the last one ends; cancelling comes too late for it."""
    files = [tmp_path / str(number) for number in range(3)]
    with pool(1) as executor:
        futures = [executor.submit(perform, partial(write_and_wait, path), None) for path in files]
        while not files[0].exists():
            time.sleep(0.01)
        (child,) = multiprocessing.active_children()
        child.terminate()
        outcomes = [future.result(timeout=30) for future in futures]
    assert not any(outcome.finished for outcome in outcomes)
    assert [path.exists() for path in files] == [True, False, False]
