"""Tracebacks on one's own machine: in log.txt, once on the terminal, and a line elsewhere."""

from __future__ import annotations

import json

import numpy as np
import pytest
from support.rounds import SECRET, Talkative, play
from support.toy import BatchedToy, Toy

import fedrl
from fedrl.clients.wrapped_algorithm import Wrapped
from fedrl.core.abilities import server_step
from fedrl.core.types import Failure, Job, Result, UserError
from fedrl.engines.in_process import InProcess, Watch
from fedrl.engines.worker_pool import WorkerPool
from fedrl.runs.error_log import MOST, ErrorLog

METHOD = '''
from fedrl.algorithms.momentum.algorithm import build
from fedrl.algorithms.momentum.settings import Settings as Base


class Broken:
    """A method with a mistake."""

    Settings, kinds = Base, ("control",)

    def __init__(self, *arguments):
        self.inner = build(*arguments)

    def __getattr__(self, name):
        if name in ("inner", "local_many"):
            raise AttributeError(name)
        return getattr(self.inner, name)

    def local(self, job):
        if job.client == 1:
            self.divided(job.client, 0)
        return self.inner.local(job)

    def divided(self, by, what):
        raise ValueError(f"cannot divide {by} by {what}")
'''
SMALL = {
    "rounds": 1, "federation": {"clients": 3, "quorum": 0.5, "retries": 0},
    "world": {"name": "random_mdp", "horizon": 5}, "algorithm": {"name": "pavg", "local_steps": 1},
}  # fmt: skip


def run(tmp_path, **settings):
    return fedrl.run(SMALL, out=tmp_path / "runs", progress=True, **settings)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["inprocess", "workers"])
def test_a_mistake_in_ones_own_method_shows_where_it_is(tmp_path, engine, capfd):
    (tmp_path / "mine.py").write_text(METHOD)
    workers = {"workers": 1} if engine == "workers" else {}
    done = run(tmp_path, algorithm={"name": f"{tmp_path}/mine.py:Broken"}, engine=engine, **workers)
    shown, log = capfd.readouterr().err, (done.path / "log.txt").read_text()
    for place in (shown, log):
        assert place.count("client 1 failed") == 1
        assert "mine.py" in place
        assert "in divided" in place
        assert "ValueError: cannot divide 1 by 0" in place
    records = [json.loads(line) for line in (done.path / "clients.jsonl").open()]
    reasons = {record.get("reason") for record in records if record["client"] == 1}
    assert reasons == {"ValueError (its traceback is in log.txt)"}
    assert "FEDRL_DEBUG" not in shown  # all of it has just been shown


@pytest.mark.slow
@pytest.mark.parametrize("debug", ["", "1"])
@pytest.mark.parametrize("pool", [False, True])
def test_what_an_error_says_is_told_of_code_from_outside_only(debug, pool, monkeypatch):
    """Or if it is asked for: what comes with fedrl may quote what a client holds."""
    monkeypatch.setenv("FEDRL_DEBUG", debug)
    for texts in (False, True):
        told = []
        watch = Watch(lambda client, text, told=told: told.append((client, text)), texts)
        if pool:
            with WorkerPool(Talkative, 1, watch) as engine:
                play(Talkative(), rounds=1, engine=engine)
        else:
            play(Talkative(), rounds=1, engine=InProcess(Talkative(), watch))
        ((client, text),) = told
        assert client == 2
        assert "in local" in text
        assert text.splitlines()[-1].startswith("KeyError")
        assert (SECRET in text) == (texts or bool(debug))


def test_nobody_is_told_unless_somebody_asks(capfd):
    """As on a node, whose pool has no watch."""
    with WorkerPool(Talkative, 1) as engine:
        play(Talkative(), rounds=1, engine=engine)
    play(Talkative(), rounds=1)
    assert "Traceback" not in "".join(capfd.readouterr())


class Together(BatchedToy):
    """All at once there is a mistake; one by one there is none."""

    def local_many(self, jobs):
        raise TypeError("of the common call")


def test_a_mistake_that_only_the_common_call_has_is_told(capfd):
    told = []
    engine = InProcess(Together(), Watch(lambda *what: told.append(what), texts=True))
    store = play(Together(), rounds=1, engine=engine)
    assert store.rounds[1].metrics["cohort/failed"] == 0
    assert ["TypeError: of the common call" in text for _, text in told] == [True]


def test_a_fault_on_purpose_has_no_traceback(tmp_path, capfd):
    done = run(tmp_path, faults={"clients": (1,), "kind": "raise"})
    assert "Traceback" not in capfd.readouterr().err + (done.path / "log.txt").read_text()


def test_the_same_place_is_told_once_and_not_without_end():
    logged, shown = [], []
    errors = ErrorLog(logged.append, shown.append)
    for client in range(5):
        errors.failed(client, f"Traceback\n  line 1\nValueError: {client}")
    assert len(logged) == len(shown) == 1
    for line in range(2, 100):
        errors.failed(0, f"Traceback\n  line {line}\nValueError")
    assert (len(logged), len(shown)) == (MOST, 1)


def test_a_rule_that_raises_is_a_line_and_its_traceback_is_in_the_log(tmp_path, capfd):
    (tmp_path / "mine.py").write_text("def rule(updates):\n    return updates[99]\n")
    said = r"the rule raised IndexError: list index out of range \(.*mine.py:2, in rule\)$"
    with pytest.raises(UserError, match=said):
        run(tmp_path, aggregate={"name": f"{tmp_path}/mine.py:rule"})
    (log,) = (tmp_path / "runs").rglob("log.txt")
    assert "return updates[99]" in log.read_text()


class Stops(Toy):
    def step(self, state, mean, round):
        raise ZeroDivisionError("the server's")


class Forgets(Toy):
    """`after` is what its step gives."""

    def __init__(self, after):
        super().__init__()
        self.after = after

    def init(self, seed):
        return {"theta": np.zeros(2)} | super().init(seed)

    def step(self, state, mean, round):
        return self.after


@pytest.mark.parametrize(("after", "got"), [(None, "NoneType"), ({"w": 1}, "no theta")])
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_step_that_returns_no_state_says_what_to_return(after, got, wrapped):
    method = Wrapped(Forgets(after)) if wrapped else Forgets(after)
    line = f"step of Forgets returned {got}: return the server's next state, such as "
    with pytest.raises(UserError, match=line):
        server_step(method, method.init(0), {}, 1, 1.0)


def test_an_error_of_the_server_is_in_the_log():
    logged = []
    errors = ErrorLog(logged.append, print)
    try:
        play(Stops())
    except ZeroDivisionError as error:
        errors.stopped(error)
    assert "in step" in logged[0]
    assert logged[0].endswith("ZeroDivisionError: the server's")
    errors.stopped(KeyboardInterrupt())
    errors.stopped(UserError("no such file"))
    assert len(logged) == 1


def test_a_stop_within_compiled_code_is_no_error_of_a_client():
    """A signal's KeyboardInterrupt comes out of a kernel as another error."""
    told: list[int] = []

    class Stopped(Toy):
        def local(self, job: Job) -> Result:
            try:
                raise KeyboardInterrupt
            except KeyboardInterrupt as stop:
                raise SystemError("returned a result with an exception set") from stop

    jobs = [Job(0, {}, None, 0)]
    (outcome,) = InProcess(Stopped(), Watch(lambda client, _: told.append(client))).run(jobs)
    assert isinstance(outcome, Failure)
    assert not told
