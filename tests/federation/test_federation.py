"""The round loop: order, cohorts, quorum, federations, failures, resuming."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from support.liars import NAMES
from support.rounds import SECRET, Memory, Talkative, play, same
from support.toy import BatchedToy, Toy

from fedrl.aggregation import mean as aggregate
from fedrl.aggregation import robust, rules
from fedrl.clients.faults import Faulty, spoil
from fedrl.clients.faults import Settings as Faults
from fedrl.core import seeding, tree
from fedrl.core.types import Failure, Job, Result, Shareable, Spec, UserError
from fedrl.core.update_refusal import refusal
from fedrl.engines.in_process import InProcess, reason
from fedrl.federation import round_loop
from fedrl.federation.client_sampling import Settings, client_env_ids, draw_cohort, groups
from fedrl.federation.round_loop import Clock, QuorumLost
from fedrl.federation.update_check import Received


class Shuffled:
    """The in-process engine, given the clients in another order, as a network would."""

    def __init__(self, algorithm, order):
        self.engine, self.order = InProcess(algorithm), order

    def run(self, jobs, deadline=0.0):
        order = sorted(range(len(jobs)), key=lambda i: self.order[i % len(self.order)])
        done = dict(zip(order, self.engine.run([jobs[i] for i in order])))
        return iter([done[i] for i in range(len(jobs))])


@settings(max_examples=20, deadline=None)
@given(st.permutations(range(6)), st.sampled_from(NAMES))
def test_result_does_not_depend_on_the_order_of_clients(order, name):
    plain = play(BatchedToy(), mean=rules.get(name))
    other = play(Toy(), engine=Shuffled(BatchedToy(), order), mean=rules.get(name))
    same(plain.last.states[0], other.last.states[0])
    assert [r.metrics for r in plain.rounds] == [r.metrics for r in other.rounds]
    assert [r.clients for r in plain.rounds] == [r.clients for r in other.rounds]


def test_batched_and_one_by_one_are_the_same_here():
    same(play(Toy()).last.states[0], play(BatchedToy()).last.states[0])


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 30), st.data())
def test_cohorts_are_drawn_without_replacement(clients, data):
    size = data.draw(st.integers(1, clients - 1))
    seen = draw_cohort(list(range(clients)), size, 1, 5, 0)
    assert len(set(seen)) == size
    assert seen == sorted(seen)
    assert set(seen) <= set(range(clients))


def test_cohorts_are_fair():
    draws = [draw_cohort(list(range(10)), 3, 0, r, 0) for r in range(2000)]
    share = np.bincount(np.concatenate(draws), minlength=10) / 2000
    np.testing.assert_allclose(share, 0.3, atol=0.05)


def test_stopped_and_resumed_equals_undisturbed():
    whole = play(Toy(), rounds=7)
    first = play(Toy(), rounds=3)
    rest = play(Toy(), rounds=7, store=Memory(first.last))
    same(whole.last.states[0], rest.last.states[0])
    assert [r.metrics for r in whole.rounds[4:]] == [r.metrics for r in rest.rounds]


def test_client_state_stays_with_its_client():
    store = play(Toy(), rounds=9, cohort=2)
    taken = [r["client"] for done in store.rounds for r in done.clients]
    assert set(store.last.clients) == set(taken)
    for client, state in store.last.clients.items():
        assert int(state["seen"]) == taken.count(client)


def test_one_client_federated_equals_centralized_of_one():
    alone = play(Toy(), clients=1)
    central = play(Toy(), clients=1, kind="centralized")
    same(alone.last.states[0], central.last.states[0])


def test_independent_is_every_client_alone():
    together = play(Toy(), kind="independent")
    assert len(together.last.states) == 6
    for client in range(6):
        alone = play(Toy(), kind="local", client=client)
        same(together.last.states[client], alone.last.states[0])


def test_centralized_client_holds_everybody():
    fields = Settings(kind="centralized", clients=4)
    assert groups(fields) == [[0]]
    assert client_env_ids(fields) == [[0, 1, 2, 3]]


def test_bytes_are_those_of_what_was_sent():
    store = play(Toy(), rounds=2)
    update = 3 * 8 + 4 * 4
    assert store.rounds[-1].metrics["comm/bytes_up"] == 2 * 6 * update
    assert store.rounds[-1].metrics["comm/bytes_down"] == 2 * 6 * (update + 8)
    assert store.rounds[-1].metrics["env/steps"] == 2 * 6 * 7


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("raise", "RuntimeError: a fault on purpose"),
        ("nan", "a has NaN entries"),
        ("inf", "a has infinite entries"),
        ("shape", "a has shape (3, 2) instead of (3,)"),
        ("dtype", "a has dtype float16 instead of float64"),
    ],
)
def test_a_bad_client_costs_its_update_and_nothing_else(kind, words):
    faulty = Faulty(Toy(), Faults(clients=(2,), kind=kind))
    store = play(faulty)
    failed = [r for r in store.rounds[2].clients if r["status"] == "failed"]
    assert [r["client"] for r in failed] == [2]
    assert words in failed[0]["reason"]
    assert store.rounds[2].metrics["cohort/failed"] == 1
    # The others' mean is what it would be without that client.
    jobs_without = [Toy().local(job) for job in _jobs(store) if job.client != 2]
    expected = aggregate.mean((r.update, 1.0) for r in jobs_without)
    np.testing.assert_array_equal(
        store.last.states[0]["theta"]["a"], _before(faulty)["theta"]["a"] + expected["a"]
    )


def _before(algorithm):
    return play(algorithm, rounds=3).last.states[0]


def _jobs(store):
    before = _before(Faulty(Toy(), Faults(clients=(2,))))
    sent = Toy().broadcast(before, 4)
    return [Job(c, sent, None, seeding.derive(3, "local/0", 4, c)) for c in range(6)]


def test_a_batched_call_that_fails_is_retried_client_by_client():
    algorithm = BatchedToy()
    algorithm.broken = (4,)
    store = play(algorithm)
    failed = [r for r in store.rounds[1].clients if r["status"] == "failed"]
    assert [r["client"] for r in failed] == [4]
    assert failed[0]["reason"].startswith("ValueError")


@pytest.mark.parametrize(
    "error", [KeyError(SECRET), UserError(f"no game {SECRET!r}"), OSError(2, SECRET, SECRET)]
)
def test_an_errors_words_stay_with_the_client(error, monkeypatch):
    """Also in the warning of a round below the quorum, and in the error that ends the run."""
    monkeypatch.delenv("FEDRL_DEBUG", raising=False)
    algorithm, store, warnings = Talkative(), Memory(), []
    algorithm.error = error
    with pytest.raises(QuorumLost) as found:
        round_loop.run(
            Settings(clients=6, quorum=1.0), algorithm, InProcess(algorithm), aggregate.mean,
            store, seed=3, rounds=1, warn=warnings.append,
        )  # fmt: skip
    assert SECRET not in f"{store.failures} {warnings} {found.value}"
    reasons = {r["reason"] for r in store.failures if r["status"] == "failed"}
    told = f"{type(error).__name__} (details stay with the client unless FEDRL_DEBUG is set)"
    assert reasons == {told}
    assert f"client 2: {told}" in warnings[0]


@pytest.mark.parametrize(
    ("error", "debug", "told"),
    [
        (RuntimeError(Shareable("the disk is full")), "", "RuntimeError: the disk is full"),
        (RuntimeError(Shareable("the disk is full"), SECRET), "", "RuntimeError (details stay"),
        (RuntimeError(f"{Shareable('no disk')} {SECRET}"), "", "RuntimeError (details stay"),
        (KeyError(SECRET), "1", f"KeyError: '{SECRET}'"),
    ],
)
def test_words_for_the_server_and_words_asked_for_are_told(error, debug, told, monkeypatch):
    monkeypatch.setenv("FEDRL_DEBUG", debug)
    assert reason(error).startswith(told)


def test_with_debugging_an_error_says_where_it_was_raised(monkeypatch):
    """The line of the method, not that of the library it called."""
    monkeypatch.setenv("FEDRL_DEBUG", "1")

    class Wrong(Toy):
        def local(self, job):
            return np.linalg.inv(np.zeros((2, 3)))

    store = Memory()
    with pytest.raises(QuorumLost):
        play(Wrong(), store=store, retries=0)
    line = Wrong.local.__code__.co_firstlineno + 1
    assert "LinAlgError: Last 2 dimensions" in store.failures[0]["reason"]
    assert store.failures[0]["reason"].endswith(f"({__file__}:{line}, in local)")


def _failed(lib: str) -> Exception:
    """An error of Python's own json, met by code in this place."""
    code = compile("def step():\n    import json\n    json.loads('{')\n", lib, "exec")
    space: dict = {}
    exec(code, space)
    try:
        space["step"]()
    except ValueError as error:
        return error
    raise AssertionError


def test_debugging_names_fedrl_as_installed_and_neither_libraries_nor_python(monkeypatch):
    monkeypatch.setenv("FEDRL_DEBUG", "1")
    for place in ("/x/site-packages/fedrl/method.py", "/home/me/mine.py"):
        assert reason(_failed(place)).endswith(f"({place}:3, in step)")
    assert "/other/x.py" not in reason(_failed("/x/site-packages/other/x.py"))


@pytest.mark.parametrize("off", ["", "0", "false", " No ", "OFF"])
def test_debugging_that_is_switched_off_is_off(monkeypatch, off):
    monkeypatch.setenv("FEDRL_DEBUG", off)
    assert reason(ValueError("a secret")).startswith("ValueError (details stay")


def test_rounding_asks_for_nobody_more_than_the_quorum():
    """0.28 · 25 is a little more than 7."""
    faulty = Faulty(Toy(25), Faults(clients=tuple(range(18)), kind="nan"))
    store = play(faulty, rounds=1, clients=25, quorum=0.28, retries=0)
    assert store.rounds[-1].metrics["cohort/failed"] == 18


def test_below_the_quorum_the_round_is_tried_again_then_the_run_stops():
    faulty = Faulty(Toy(), Faults(clients=(0, 1, 2, 3), kind="nan"))
    store = Memory()
    with pytest.raises(QuorumLost, match="round 1: only 2 of 6 clients gave a usable update"):
        play(faulty, store=store, retries=1)
    assert [r.round for r in store.rounds] == [0]  # round 0 was saved, round 1 never happened
    assert store.last.round == 0
    assert {
        (r["client"], r.get("attempt", 1)) for r in store.failures if r["status"] == "failed"
    } == {(client, attempt) for client in range(4) for attempt in (1, 2)}


def test_a_retry_draws_a_new_cohort_and_can_succeed():
    faulty = Faulty(Toy(), Faults(clients=(0, 1, 2), kind="raise"))
    store = play(faulty, rounds=12, cohort=2, quorum=1.0, retries=50)
    attempts = [r.get("attempt", 1) for done in store.rounds for r in done.clients]
    assert max(attempts) > 1
    assert store.last.round == 12


def test_a_retry_draws_new_randomness():
    seen = []

    class Listening(Toy):
        def local(self, job):
            seen.append(job.seed)
            return super().local(job) if len(seen) > 6 else None

    play(Listening(), rounds=1)
    assert len(seen) == 12
    assert len(set(seen)) == 12


def test_independent_clients_fail_alone():
    faulty = Faulty(Toy(), Faults(clients=(1,), kind="raise"))
    store = play(faulty, kind="independent")
    start = Toy().init(seeding.derive(3, "init"))
    same(store.last.states[1], start)
    assert store.last.states[0]["steps"] == 4


def test_refusals():
    specs = {"a": Spec((2,), "float64")}
    good = Result(0, {"a": np.zeros(2)})
    reports = {"train/x"}

    def why(**fields):
        return refusal(replace(good, **fields), specs, reports)

    assert why() is None
    assert why(metrics={"train/x": 1.0}) is None
    assert "lacks a" in why(update={})
    assert "does not declare" in why(update={**good.update, "x": 1})
    assert "float instead" in why(update={"a": 0.5})
    for weight in (0.0, -1.0, float("nan"), float("inf"), None, "1"):
        assert "weight" in why(weight=weight)
    assert "train/y, which the algorithm does not declare" in why(metrics={"train/y": 1.0})
    assert "str as train/x" in why(metrics={"train/x": "secret"})
    assert "must be dicts" in why(update=None)
    assert "must be dicts" in why(metrics=None)
    assert "NoneType instead of a Result" in refusal(None, specs, reports)


@pytest.mark.parametrize("what", [None, "text", Result(0, None), Result(0, {}, None)])
def test_nonsense_from_a_client_never_stops_the_run(what):
    class Odd(Toy):
        def local(self, job):
            return what if job.client == 1 else super().local(job)

    store = play(Odd())
    failed = [r["client"] for r in store.rounds[2].clients if r["status"] == "failed"]
    assert failed == [1]


def test_a_client_cannot_speak_for_another():
    class Liar(Toy):
        def local(self, job):
            return replace(super().local(job), client=0)

    store = play(Liar(), rounds=1)
    assert [r["client"] for r in store.rounds[1].clients] == list(range(6))
    assert set(store.last.clients) == set(range(6))


def test_metrics_that_are_not_finite_do_not_spoil_the_totals():
    class Endless(Toy):
        def local(self, job):
            result = super().local(job)
            return replace(result, metrics={"env/steps": float("nan"), "train/seen": 1.0})

    last = play(Endless(), rounds=2).rounds[-1].metrics
    assert last["train/seen"] == 1.0
    assert "env/steps" not in last


def test_updates_that_overflow_together_leave_the_server_as_it_was():
    class Huge(Toy):
        def step(self, state, mean, round):
            moved = super().step(state, mean, round)
            return {**moved, "theta": {**moved["theta"], "a": moved["theta"]["a"] + np.inf}}

    store = Memory()
    with pytest.raises(QuorumLost):
        play(Huge(), store=store)
    assert tree.all_finite(store.last.states[0])
    assert "not be finite" in store.failures[-1]["reason"]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(1e-3, 1e3)), min_size=1, max_size=20))
def test_streaming_means_are_the_means(pairs):
    values = np.array([v for v, _ in pairs])
    weights = np.array([w for _, w in pairs])
    stream = [({"x": {"y": np.array([v, 2 * v])}}, w) for v, w in pairs]
    plain = aggregate.mean(iter(stream))["x"]["y"]
    np.testing.assert_allclose(plain, [values.mean(), 2 * values.mean()], rtol=1e-9, atol=1e-6)
    heavy = aggregate.weighted(iter(stream))["x"]["y"][0]
    expected = np.average(values, weights=weights)
    np.testing.assert_allclose(heavy, expected, rtol=1e-9, atol=1e-6)


numbers = st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=21)


def as_stream(values):
    return [({"x": {"y": np.array([v, -v])}}, 1.0) for v in values]


@settings(max_examples=50, deadline=None)
@given(numbers, st.floats(0, 0.49))
def test_robust_rules_are_what_scipy_says(values, share):
    found = robust.median(as_stream(values))["x"]["y"]
    np.testing.assert_allclose(found, [np.median(values), -np.median(values)])
    cut = robust.trimmed(as_stream(values), share)["x"]["y"]
    # As ours, without losing anybody to rounding: 0.29 · 100 is a little less than 29.
    expected = scipy.stats.trim_mean(values, share + 1e-9 / len(values))
    np.testing.assert_allclose(cut, [expected, -expected], rtol=1e-9, atol=1e-6)


@settings(max_examples=50, deadline=None)
@given(numbers, st.data())
def test_a_minority_cannot_move_a_robust_rule_beyond_the_honest(honest, data):
    most = (len(honest) - 1) // 2
    lies = data.draw(st.lists(st.sampled_from([-1e30, 1e30]), max_size=most))
    everybody = as_stream(data.draw(st.permutations([*honest, *lies])))
    low, high = min(honest), max(honest)
    share = (len(lies) + 0.5) / len(everybody)
    rules = [robust.median, *([partial(robust.trimmed, share=share)] if share < 0.5 else [])]
    for rule in rules:
        found = rule(everybody)["x"]["y"][0]
        assert low - 1e-6 <= found <= high + 1e-6


def test_streaming_holds_one_update_at_a_time():
    alive = []

    def stream():
        for i in range(50):
            array = np.full(4, float(i))
            import weakref

            alive.append(weakref.ref(array))
            yield {"x": array}, 1.0
            del array

    aggregate.mean(stream())
    assert sum(ref() is not None for ref in alive) <= 1


def test_spoil_spoils_a_copy():
    update = {"a": np.zeros(3)}
    spoil(update, "nan")
    assert np.isfinite(update["a"]).all()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"clients": 0}, "federation.clients"),
        ({"cohort": 9}, "federation.cohort"),
        ({"client": 6}, "federation.client"),
        ({"kind": "local", "cohort": 2}, "federation.cohort"),
        ({"quorum": 1.5}, "federation.quorum"),
        ({"retries": -1}, "federation.retries"),
    ],
)
def test_impossible_settings(fields, words):
    with pytest.raises(UserError, match=words):
        Settings(**({"clients": 6} | fields))


def test_failures_pass_through_the_engine():
    records = []
    received = Received(Toy(), {}, 1, 0, records)
    job = Job(1, {}, None, 0)
    assert list(received.check([(job, Failure(1, "why"))])) == []
    assert records == [{"round": 1, "client": 1, "status": "failed", "reason": "why"}]


def test_the_last_finished_round_is_kept_when_a_run_is_interrupted():
    class Interrupted(Toy):
        def evaluate(self, states, owners, round, seed):
            if round == 6:
                raise KeyboardInterrupt
            return super().evaluate(states, owners, round, seed)

    store = Memory()
    with pytest.raises(KeyboardInterrupt):
        round_loop.run(
            Settings(clients=6), Interrupted(), InProcess(Toy()), aggregate.mean, store,
            seed=3, rounds=9, checkpoint_every=100,
        )  # fmt: skip
    assert store.last.round == 5
    same(store.last.states[0], play(Toy(), rounds=5).last.states[0])


def test_alone_nothing_is_sent():
    for kind in ("local", "independent", "centralized"):
        assert "comm/bytes_up" not in play(Toy(), kind=kind).rounds[-1].metrics


def test_a_rounds_cpu_seconds_are_work_and_not_waiting():
    clock = Clock()
    time.sleep(0.2)
    clock.lap("waits")
    until = time.process_time() + 0.1
    while time.process_time() < until:
        pass
    clock.lap("works")
    assert clock.laps["waits"] >= 0.2 > 2 * clock.cpu["waits"]
    assert clock.cpu["works"] >= 0.1
