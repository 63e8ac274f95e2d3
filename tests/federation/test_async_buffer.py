"""Buffered asynchronous rounds: schedules and weights by hand, the synchronous run as a special
case, nothing lost, and the same numbers after a restart."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.rounds import Memory, play, same
from support.toy import BatchedToy, Toy

from fedrl import privacy
from fedrl.aggregation import mean as aggregate
from fedrl.aggregation import robust, rules
from fedrl.algorithms.momentum.algorithm import Momentum
from fedrl.cli.run import run as run_command
from fedrl.clients.faults import Faulty
from fedrl.clients.faults import Settings as Faults
from fedrl.config.build import build_algorithm
from fedrl.config.loading import resolve
from fedrl.core import seeding, tree
from fedrl.core.types import Job, Result, Spec, TooFew, UserError
from fedrl.engines.in_process import InProcess
from fedrl.federation import client_sampling, round_loop
from fedrl.federation.async_buffer import AsyncBuffer
from fedrl.federation.async_settings import Settings, check_broadcast, check_method
from fedrl.federation.round_loop import QuorumLost
from fedrl.federation.simulated_clock import SimulatedClock, durations
from fedrl.privacy.mechanism import Mechanism
from fedrl.runs import train as runs
from fedrl.runs.checkpoint import pack, unpack
from fedrl.runs.run_dir import RunDir, read_checkpoint

ASYNC = ("async/time", "async/staleness_mean", "async/staleness_max")


class Packed(Memory):
    """A store whose snapshots went through the bytes of a checkpoint."""

    def __init__(self, start=None):
        super().__init__(start)
        self.saved = {}

    def checkpoint(self, snapshot):
        self.last = unpack(pack(snapshot, {}))[0]
        self.saved[snapshot.round] = self.last


class Counted(SimulatedClock):
    """The simulated clock, with the jobs that it was given."""

    def submit(self, jobs):
        self.given = [*getattr(self, "given", []), *jobs]
        super().submit(jobs)


def buffered(
    algorithm, buffer, rounds=6, store=None, mean=aggregate.mean, engine=None,
    warn=lambda line: None, private=None, **fields,
):  # fmt: skip
    """(store, engine) after so many rounds on the simulated clock, or on another engine."""
    fed = client_sampling.Settings(**({"clients": 6} | fields))
    buffer.check(fed, privacy.Settings(), "inprocess")
    inner = InProcess(algorithm)
    engine = engine or Counted(inner, durations(3, buffer.times, buffer.spread, buffer.jitter))
    store = store or Packed()
    round_loop.run(
        fed, algorithm, inner, mean, store, seed=3, rounds=rounds,
        warn=warn, privacy=private, exchange=AsyncBuffer(buffer, engine),
    )  # fmt: skip
    return store, engine


def used(done):
    """(client, staleness) of a round's updates, in the order in which they came."""
    return [(r["client"], r["staleness"]) for r in done.clients if r["status"] == "ok"]


speeds = st.lists(st.floats(0.1, 10), min_size=6, max_size=6).map(tuple)


# The synchronous run is a special case --------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    speeds,
    st.sampled_from([0, 3, 5, 6]),
    st.sampled_from(["mean", "weighted", "median", "multi-krum"]),
)
def test_a_buffer_of_the_whole_cohort_is_the_synchronous_run(times, cohort, name):
    rule = rules.get(name)
    plain = play(BatchedToy(), rounds=5, mean=rule, cohort=cohort)
    size = cohort or 6
    store, _ = buffered(
        BatchedToy(), Settings(size=size, times=times), rounds=5, mean=rule, cohort=cohort
    )
    same(plain.last.states[0], store.last.states[0])
    for a, b in zip(plain.rounds, store.rounds, strict=True):
        told = {name: value for name, value in b.metrics.items() if name not in ASYNC}
        assert a.metrics == told
        assert [r["client"] for r in a.clients] == sorted(r["client"] for r in b.clients)
    assert plain.last.clients.keys() == store.last.clients.keys()
    # And its time is that of the slowest of each round.
    slowest = [max(times[r["client"]] for r in done.clients) for done in plain.rounds[1:]]
    assert store.rounds[-1].metrics["async/time"] == pytest.approx(sum(slowest))


def test_a_failing_client_costs_what_it_costs_there():
    faulty = Faulty(Toy(), Faults(clients=(2,), kind="nan"))
    store, _ = buffered(faulty, Settings(size=6), rounds=3)
    same(store.last.states[0], play(faulty, rounds=3).last.states[0])


METHODS = {
    "pavg": {"algorithm": {"name": "pavg", "local_steps": 4}, "world": {"name": "random_mdp"}},
    "fedrlhf": {
        "algorithm": {
            "name": "fedrlhf",
            "local_epochs": 1,
            "rating_queries": 20,
            "preference_queries": 5,
        },
        "world": {"name": "movielens", "users": 40, "movies": 60, "ratings": 50, "least": 10},
    },
}


def trained(config):
    return runs.train(config, runs.start(config), build_algorithm(config))


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_clients_of_methods_too(method, tmp_path):
    """All of the cohort in the buffer is the synchronous run; fewer is another, and goes on."""
    data = {"rounds": 3, "out": str(tmp_path), "federation": {"clients": 4}} | METHODS[method]
    finals = [
        trained(resolve(data, flags))
        for flags in (
            (),
            ("--async_buffer.size", "4"),
            ("--async_buffer.size", "2", "--async_buffer.spread", "1"),
        )
    ]
    same(finals[0].states[0], finals[1].states[0])
    with pytest.raises(AssertionError):
        same(finals[0].states[0], finals[2].states[0])
    assert finals[2].round == 3


@pytest.mark.slow
def test_language_agents_too(tmp_path):
    pytest.importorskip("transformers", reason="needs the extra llm")
    from support.agent_runs import make_model, recipe

    model = make_model(tmp_path / "tiny")
    finals, metrics = [], []
    for size, spread in ((0, 0.0), (3, 1.0), (1, 1.0)):
        cohort = {"clients": 4, "cohort": 3}
        config = recipe(model, federation=cohort, async_buffer={"size": size, "spread": spread})
        finals.append(trained(replace(config, rounds=3, out=str(tmp_path / str(size)))))
        (log,) = (tmp_path / str(size)).rglob("metrics.jsonl")
        metrics.append([json.loads(line) for line in log.read_text().splitlines()])
    same(finals[0].states[0], finals[1].states[0])
    assert metrics[0][-1]["eval/success"] == metrics[1][-1]["eval/success"]
    assert max(one.get("async/staleness_max", 0) for one in metrics[2]) > 0
    assert "eval/success" in metrics[2][-1]


# Schedules by hand ------------------------------------------------------------------------------


def test_staleness_of_a_schedule():
    """Clients of 1, 2.5 and 4.2 time units, every update a step.

    1.0 client 0 | 2.0 client 0 | 2.5 client 1, began before step 1 | 3.0 client 0, before step 3 |
    4.0 client 0 | 4.2 client 2, before step 1 | 5.0 client 0, before step 6 | 5.0 client 1, which
    began at 2.5, before step 4
    """
    buffer = Settings(size=1, times=(1.0, 2.5, 4.2))
    store, _ = buffered(Toy(3), buffer, rounds=8, clients=3)
    assert [used(done) for done in store.rounds[1:]] == [
        [(0, 0)], [(0, 0)], [(1, 2)], [(0, 1)], [(0, 0)], [(2, 5)], [(0, 1)], [(1, 4)],
    ]  # fmt: skip
    times = [done.metrics["async/time"] for done in store.rounds[1:]]
    assert times == pytest.approx([1.0, 2.0, 2.5, 3.0, 4.0, 4.2, 5.0, 5.0])
    assert store.rounds[6].metrics["async/staleness_max"] == 5.0


class Fixed(Toy):
    """Client c always sends 10^c, and says so with weight c + 1; θ remembers the sum."""

    def local(self, job: Job) -> Result:
        update = {"a": np.full(3, 10.0**job.client), "b": np.zeros((2, 2), np.float32)}
        return Result(job.client, update, 1.0 + job.client)


@pytest.mark.parametrize("name", ["mean", "weighted"])
@pytest.mark.parametrize("staleness", ["sqrt", "none"])
def test_weights_of_a_schedule(name, staleness):
    """Clients of 1, 1.1 and 3 units, two updates a step: steps at 1.1, 2.2, 3.1.

    The third takes client 2, which began before step 1, and client 0, which began before step 3.
    """
    buffer = Settings(size=2, times=(1.0, 1.1, 3.0), staleness=staleness)
    store, _ = buffered(Fixed(3), buffer, rounds=3, clients=3, mean=rules.get(name))
    assert [used(done) for done in store.rounds[1:]] == [
        [(0, 0), (1, 0)], [(0, 0), (1, 0)], [(2, 2), (0, 0)],
    ]  # fmt: skip
    old = 100.0 / np.sqrt(3) if staleness == "sqrt" else 100.0
    w = (1.0, 2.0, 3.0) if name == "weighted" else (1.0, 1.0, 1.0)
    both = (w[0] * 1.0 + w[1] * 10.0) / (w[0] + w[1])
    moved = 2 * both + (w[0] * 1.0 + w[2] * old) / (w[0] + w[2])
    start = Toy(3).init(seeding.derive(3, "init"))["theta"]["a"]
    np.testing.assert_allclose(store.last.states[0]["theta"]["a"], start + moved, rtol=1e-12)
    assert store.rounds[3].metrics["async/staleness_mean"] == 1.0


def test_an_update_is_computed_from_the_broadcast_that_it_began_with():
    """By hand: client 2 of the schedule above sends what it learns from the first model."""
    buffer = Settings(size=2, times=(1.0, 1.1, 3.0), staleness="none")
    store, engine = buffered(Toy(3), buffer, rounds=3, clients=3)
    (late,) = [job for job in engine.given if job.client == 2 and job.broadcast["round"] == 1]
    (third,) = [job for job in engine.given if job.client == 0 and job.broadcast["round"] == 3]
    expected = (Toy(3).local(late).update["a"] + Toy(3).local(third).update["a"]) / 2
    before = store.saved[2].states[0]["theta"]["a"]
    np.testing.assert_allclose(store.last.states[0]["theta"]["a"], before + expected, rtol=1e-12)


def test_a_rule_sees_one_update_of_k_clients():
    sizes = []

    def rule(stream):
        held = list(stream)
        sizes.append(len(held))
        return robust.median(iter(held))

    store, _ = buffered(Toy(), Settings(size=4, spread=1.0, jitter=1.0), rounds=9, mean=rule)
    assert sizes == [4] * 9
    for done in store.rounds[1:]:
        assert len({client for client, _ in used(done)}) == 4


def test_all_liars_may_be_in_one_buffer(tmp_path, monkeypatch):
    """Fast ones always are: so a share of liars is one of all clients, not of the buffer."""
    times = (0.1, 0.1, *(1.0,) * 8)
    store, _ = buffered(Toy(10), Settings(size=3, times=times), rounds=9, clients=10)
    assert {0, 1} <= {client for client, _ in used(store.rounds[-1])}

    data = {
        "rounds": 1, "out": str(tmp_path), "federation": {"clients": 20, "cohort": 15},
        "aggregate": {"name": "krum", "byzantine": 0.2},
        "algorithm": {"name": "pavg", "local_steps": 2}, "world": {"name": "random_mdp"},
    }  # fmt: skip
    with pytest.raises(
        UserError, match=r"11 updates against 4 .* 20 clients.* async_buffer.size is 10"
    ):
        resolve(data, ("--async_buffer.size", "10"))
    config = resolve(data, ("--async_buffer.size", "11"))
    build, built = rules.build, []
    monkeypatch.setattr(runs.rules, "build", lambda *of: built.append(of) or build(*of))
    runs.train(config, runs.start(config), build_algorithm(config))
    assert [(rule.given(size)["byzantine"], size) for rule, size, _ in built] == [(4, 11)]
    assert resolve(data).rule.given(15) == {"byzantine": 3}  # of those that a round asks


def test_updates_are_clipped_before_they_count_less():
    clip = privacy.Settings(clip=1.0)
    buffer = Settings(size=1, times=(1.0, 1.5))
    private = Mechanism(clip, Fixed(2), 3, 2, 2, lambda number: [0, 1])
    store, _ = buffered(Fixed(2), buffer, rounds=2, clients=2, private=private)
    assert [used(done) for done in store.rounds[1:]] == [[(0, 0)], [(1, 1)]]
    step = store.last.states[0]["theta"]["a"] - store.saved[1].states[0]["theta"]["a"]
    assert np.linalg.norm(step) == pytest.approx(1 / np.sqrt(2), rel=1e-6)


# Nothing is lost --------------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.data())
def test_every_job_is_used_once_or_failed_or_under_way(data):
    clients = data.draw(st.integers(1, 7))
    cohort = data.draw(st.integers(0, clients))
    size = data.draw(st.integers(1, cohort or clients))
    bad = data.draw(st.lists(st.integers(0, clients - 1), max_size=clients - 1, unique=True))
    faults = Faults(clients=tuple(bad), kind="nan", rate=data.draw(st.sampled_from([0.3, 1.0])))
    buffer = Settings(size=size, spread=data.draw(st.floats(0, 2)), jitter=1.0)
    store, engine = buffered(
        Faulty(Toy(clients), faults), buffer, rounds=8, clients=clients, cohort=cohort, quorum=0.0,
    )  # fmt: skip
    records = [r for done in store.rounds for r in done.clients]
    begun = Counter(job.client for job in engine.given)
    ended = Counter(r["client"] for r in records)
    away = Counter(due.client for _, due in store.last.under_way)
    assert begun == ended + away
    assert max(away.values(), default=0) <= 1
    assert len(store.last.under_way) + size <= (cohort or clients) + len(bad) * 3
    total = sum(done.metrics["cohort/size"] for done in store.rounds[1:])
    assert total == len(records)
    for done in store.rounds[1:]:
        tally = Counter(client for client, _ in used(done))
        assert max(tally.values()) == 1
        assert len(tally) <= size
        taus = [tau for _, tau in used(done)]
        assert min(taus) >= 0
        assert done.metrics["async/staleness_mean"] == pytest.approx(np.mean(taus))
    # What a client keeps is of the last update that was used: as many as were used.
    seen = Counter(client for done in store.rounds for client, _ in used(done))
    assert {c: int(s["seen"]) for c, s in store.last.clients.items()} == dict(seen)
    assert len({job.seed for job in engine.given}) == len(engine.given)
    down = sum(tree.nbytes(job.broadcast) for job in engine.given)
    # Jobs of the last step's end are begun with the next step: all that were given are counted.
    assert store.rounds[-1].metrics["comm/bytes_down"] == down


def test_never_more_than_the_cohort_at_work():
    most = []

    class Watched(SimulatedClock):
        def submit(self, jobs):
            super().submit(jobs)
            most.append(len(self.waiting()))

    toy = Toy(9)
    engine = Watched(InProcess(toy), durations(0, (), 1.0, 1.0))
    buffered(toy, Settings(size=2, spread=1.0), rounds=20, clients=9, cohort=5, engine=engine)
    assert set(most) == {5}


# The clock, and going on after a stop -----------------------------------------------------------


def test_speeds_are_lognormal_and_the_seeds():
    job = Job(0, {}, None, 0)
    own = [durations(7, (), 0.5, 0.0)(replace(job, client=c)) for c in range(2000)]
    assert np.log(own).mean() == pytest.approx(0.0, abs=0.05)
    assert np.log(own).std() == pytest.approx(0.5, abs=0.03)
    jobs = [durations(7, (4.0,), 0.0, 0.5)(replace(job, seed=s)) for s in range(2000)]
    assert np.log(np.array(jobs) / 4).std() == pytest.approx(0.5, abs=0.03)
    assert durations(7, (), 0.5, 0.5)(job) == durations(7, (), 0.5, 0.5)(job)
    assert durations(7, (), 0.5, 0.0)(job) != durations(8, (), 0.5, 0.0)(job)


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 5), st.integers(0, 7), st.sampled_from(["nan", "raise"]))
def test_stopped_and_resumed_equals_undisturbed(size, stop, kind):
    faulty = Faulty(Toy(), Faults(clients=(1, 4), kind=kind, rate=0.5))
    run = partial(
        buffered, faulty, Settings(size=size, spread=1.0, jitter=0.5), rounds=8, cohort=5,
        mean=aggregate.weighted,
    )  # fmt: skip
    whole, _ = run()
    rest, _ = run(store=Packed(whole.saved[stop]))
    same(whole.last.states[0], rest.last.states[0])
    assert [r.metrics for r in whole.rounds[stop + 1 :]] == [r.metrics for r in rest.rounds]
    assert [r.clients for r in whole.rounds[stop + 1 :]] == [r.clients for r in rest.rounds]
    assert pack(whole.last, {}) == pack(rest.last, {})


@pytest.mark.parametrize("batched", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_run_on_disk_goes_on_to_the_same_bytes(tmp_path, batched):
    """Also where clients that began together are computed together, and only some are left."""
    data = {
        "out": str(tmp_path), "federation": {"clients": 4},
        "async_buffer": {"size": 2, "spread": 1.0},
        "algorithm": {"name": "pavg", "local_steps": 3},
        "world": {"name": "cartpole", "horizon": 20} if batched else {"name": "random_mdp"},
    }  # fmt: skip

    def train(rounds, path=None):
        config = resolve(data, ("--rounds", str(rounds)))
        directory = RunDir.open(path) if path else runs.start(config)
        runs.train(config, directory, build_algorithm(config))
        return directory.path

    whole = train(6)
    parts = train(6, train(3))
    for name in ("metrics.jsonl", "clients.jsonl"):
        assert (whole / name).read_text() == (parts / name).read_text()
    a, b = (RunDir(path).checkpoints()[0] for path in (whole, parts))
    assert pack(read_checkpoint(a)[0], {}) == pack(read_checkpoint(b)[0], {})
    assert read_checkpoint(a)[0].under_way


# Clients that fail ------------------------------------------------------------------------------


def test_a_place_goes_to_another_client_first_and_then_back():
    faulty = Faulty(Toy(4), Faults(clients=(0, 1, 2), kind="raise"))
    buffer = Settings(size=1, times=(1.0, 1.0, 1.0, 9.0))  # the good one is slow
    store, engine = buffered(faulty, buffer, rounds=3, clients=4, cohort=2, retries=1)
    for done in store.rounds[1:]:
        assert [client for client, _ in used(done)] == [3]
        failed = [(r["client"], r.get("attempt", 1)) for r in done.clients if "reason" in r]
        assert sorted(failed) == [(client, attempt) for client in range(3) for attempt in (1, 2)]
        assert [attempt for _, attempt in failed] == [1, 1, 1, 2, 2, 2]
    assert len({job.seed for job in engine.given}) == len(engine.given)


def test_below_the_quorum_the_run_stops_and_says_why():
    faulty = Faulty(Toy(), Faults(clients=(0, 1, 2, 3), kind="nan"))
    store = Packed()
    with pytest.raises(QuorumLost, match=r"round 1: the buffer has 2 of 6 updates.*3 are needed"):
        buffered(faulty, Settings(size=6), store=store, retries=1)
    assert Counter(r["client"] for r in store.failures if r["status"] == "failed") == dict.fromkeys(
        range(4), 2
    )
    assert store.last.round == 0


def test_a_short_buffer_with_a_quorum_makes_a_step_and_is_told():
    faulty = Faulty(Toy(), Faults(clients=(0, 1), kind="nan"))
    said = []
    store, _ = buffered(faulty, Settings(size=6), rounds=2, retries=0, warn=said.append)
    assert store.last.round == 2
    assert len(said) == 2
    assert "a step with 4 of 6 updates (client 0, 1: a has NaN entries)" in said[0]


def test_a_rule_with_too_few_updates_asks_again_and_then_stops():
    def picky(stream):
        if len(list(stream)) < 9:
            raise TooFew("picky needs 9 updates")

    store = Packed()
    with pytest.raises(QuorumLost, match="picky needs 9"):
        buffered(Toy(), Settings(size=2), store=store, mean=picky, retries=1)
    assert {r["status"] for r in store.failures} == {"failed"}


def test_updates_that_overflow_together_leave_the_server_as_it_was():
    class Huge(Toy):
        def step(self, state, mean, round):
            moved = super().step(state, mean, round)
            return {**moved, "theta": {**moved["theta"], "a": moved["theta"]["a"] + np.inf}}

    store = Packed()
    with pytest.raises(QuorumLost, match="not be finite"):
        buffered(Huge(), Settings(size=3), store=store)
    assert tree.all_finite(store.last.states[0])


# What is refused --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--async_buffer.size 9", "only 5 clients"),
        ("--async_buffer.size 3 --federation.cohort 2", "only 2 clients"),
        ("--async_buffer.size 2 --federation.kind independent", "federation.kind"),
        ("--async_buffer.size 2 --privacy.clip 1 --privacy.noise 1", "privacy.noise"),
        ("--async_buffer.size 4 --privacy.clip 1 --privacy.secure true", "privacy.secure"),
        ("--async_buffer.size 2 --async_buffer.spread 1 --engine workers", "simulated clock"),
        ("--async_buffer.spread 1", "async_buffer.size"),
        ("--async_buffer.size 2 --async_buffer.times 1,2", "one for each of the 5 clients"),
        ("--async_buffer.size 2 --async_buffer.times 1,2,3,4,0", "above 0"),
        (
            "--async_buffer.size 2 --async_buffer.times 1,2,3,4,5 --async_buffer.spread 1",
            "remove one",
        ),
        ("--async_buffer.size 2 --async_buffer.jitter 99", "at most 10"),
        ("--async_buffer.size -1", "must not be negative"),
        ("--async_buffer.size 3 --aggregate.name krum --aggregate.byzantine 1", "needs 5 updates"),
        ("--async_buffer.staleness none", "async_buffer.size"),
    ],
)
def test_impossible_settings(flags, words):
    with pytest.raises(UserError, match=words):
        resolve({}, ("--algorithm.name", "pavg", *flags.split()))


def test_clipping_and_robust_rules_are_allowed():
    flags = "--async_buffer.size 5 --privacy.clip 1 --aggregate.name krum --aggregate.byzantine 1"
    assert resolve({}, flags.split()).combined == 5


ANCHORED = "--algorithm.name fedhapg-m --algorithm.beta 1"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--algorithm.name fedsvrpg-m", r"begins with an estimate.*or algorithm\.beta = 1"),
        (ANCHORED, r"start from more .* \(previous, theta\): set async_buffer\.size = 0$"),
        ("--algorithm.name fedqhd --world.name cartpole-v1", "sends values"),
        ("--algorithm.name feddqn --world.name cartpole-v1", "sends values"),
    ],
)
def test_methods_whose_rounds_belong_together_are_refused(flags, words):
    config = resolve({}, (*flags.split(), "--async_buffer.size", "2"))
    with pytest.raises(UserError, match=words):
        build_algorithm(config)


def test_a_refused_method_leaves_no_folder_behind(tmp_path):
    flags = [*ANCHORED.split(), "--async_buffer.size", "2", "--out", str(tmp_path)]
    with pytest.raises(UserError, match="start from more"):
        run_command(["momentum/cartpole", *flags])
    assert not any(tmp_path.iterdir())


def test_what_clients_of_a_large_model_start_from_is_seen_without_its_weights(monkeypatch):
    config = resolve({}, (*ANCHORED.split(), "--async_buffer.size", "2"))
    state = build_algorithm(replace(config, async_buffer=Settings())).init(0)
    monkeypatch.setattr(Momentum, "outline", lambda self: (state, []), raising=False)
    monkeypatch.setattr(Momentum, "init", lambda *_: pytest.fail("its weights were made"))
    with pytest.raises(UserError, match="start from more"):
        build_algorithm(config)


def test_an_anchor_of_language_agents_is_refused():
    """FedAgent's broadcast with and without β, as its `broadcast` and `declare` make them."""
    theta = {"w": np.zeros((2, 3), np.float32)}

    class Agent(Toy):
        def declare(self, broadcast):
            names = ("w", "u.w") if "u" in broadcast else ("w",)
            return {name: Spec((2, 3), "float32") for name in names}

    check_method(Agent())
    check_broadcast(Agent(), {"theta": theta})
    with pytest.raises(UserError, match=r"\(previous, theta, u\)"):
        check_broadcast(Agent(), {"theta": theta, "previous": theta, "u": theta})


def test_the_clock_of_a_run_stays(tmp_path):
    data = {"rounds": 1, "out": str(tmp_path), "async_buffer": {"size": 2},
            "algorithm": {"name": "pavg"}, "world": {"name": "random_mdp"}}  # fmt: skip
    directory = runs.start(resolve(data))
    directory.close()
    with pytest.raises(UserError, match="goes on with inprocess"):
        runs.resume(directory.path, ["--engine", "workers"])
