"""Private runs: what reaches the server, ε in every record, the target, resuming, settings."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace

import numpy as np
import pytest
from support.private_rounds import SEED, epsilons, play, theta
from support.rounds import Memory, same
from support.toy import BatchedToy, Toy
from support.values import Values

from fedrl import privacy
from fedrl.aggregation import mean as aggregate
from fedrl.aggregation import robust
from fedrl.clients.faults import Faulty
from fedrl.clients.faults import Settings as Faults
from fedrl.clients.local_noise import Private
from fedrl.config.build import build_algorithm
from fedrl.config.loading import resolve
from fedrl.core.types import UserError
from fedrl.engines.in_process import InProcess
from fedrl.federation import round_loop
from fedrl.federation.client_sampling import Settings
from fedrl.federation.round_loop import Round
from fedrl.privacy import accounting
from fedrl.privacy import secure_aggregation as secure
from fedrl.privacy.mechanism import Mechanism
from fedrl.runs import train as runs
from fedrl.runs.private_run import Ledger, check_packages
from fedrl.runs.progress import Progress

pytest.importorskip("dp_accounting", reason="ε needs the extra privacy")


NOISY = {"clip": 0.5, "noise": 2.0, "seeded": True}


def test_a_bound_that_nobody_reaches_changes_nothing():
    plain = Memory()
    round_loop.run(
        Settings(clients=6), Toy(), InProcess(Toy()), aggregate.mean, plain,
        seed=SEED, rounds=4,
    )  # fmt: skip
    private = play(clip=1e6)
    same(plain.last.states[0], private.last.states[0])
    assert "privacy/epsilon" not in private.rounds[-1].metrics
    assert private.rounds[-1].metrics["train/seen"] == plain.rounds[-1].metrics["train/seen"]


@pytest.mark.parametrize("kind", [Toy, Values])
def test_a_step_is_no_longer_than_the_bound_whatever_clients_do(kind):
    """The server bounds again what a client did not."""
    for client_side in (True, False):
        store = play(kind(), rounds=1, client_side=client_side, clip=0.01)
        first = play(kind(), rounds=0, clip=0.01).last.states[0]["theta"]
        after = store.last.states[0]["theta"]
        moved = np.concatenate([(after[k] - first[k]).ravel() for k in after])
        assert np.linalg.norm(moved) <= 0.01 * (1 + 1e-5)
        assert np.linalg.norm(moved) > 0.001


@pytest.mark.parametrize("secure", [False, True])
def test_the_bound_holds_before_noise_and_masks_as_well(secure):
    """The noise is the same: a client that ignores the bound changes nothing but roundings."""
    settings = {"clip": 0.05, "noise": 0.1, "seeded": True, "secure": secure, "reports": True}
    honest, lying = (play(rounds=2, client_side=side, **settings) for side in (True, False))
    np.testing.assert_allclose(theta(honest), theta(lying), rtol=0, atol=1e-8)


def test_other_rules_work_on_bounded_updates():
    store = play(rounds=1, rule=robust.median, client_side=False, clip=0.01)
    first = play(rounds=0, clip=0.01)
    assert 0 < np.linalg.norm(theta(store) - theta(first)) <= 0.01


def test_noise_in_a_run_has_its_size():
    quiet, loud = (
        play(Toy(size=20_000), rounds=1, clip=0.5, noise=z, seeded=z > 0) for z in (0, 3)
    )
    assert (theta(loud) - theta(quiet)).std() == pytest.approx(3 * 0.5 / 6, rel=0.04)


def test_a_failed_client_counts_as_one_without_a_change():
    """The divisor is the number that was asked, so the noise does not depend on who came."""
    faulty = Faulty(Toy(size=20_000), Faults(clients=(2, 4)))
    whole = play(Toy(size=20_000), rounds=1, **NOISY)
    fewer = play(faulty, rounds=1, **NOISY)
    start = theta(play(Toy(size=20_000), rounds=0, **NOISY))
    noise = {}
    for name, store in (("whole", whole), ("fewer", fewer)):
        noise[name] = (theta(store) - start).std()
    assert noise["whole"] == pytest.approx(noise["fewer"], rel=0.02)


def test_every_record_has_epsilon_and_it_grows_with_the_exchanges():
    found = epsilons(play(rounds=5, **NOISY))
    delta = accounting.default_delta(6)
    assert found == [accounting.full_view(2.0, t, delta) for t in range(6)]
    assert found[0] == 0


def test_an_opening_exchange_counts():
    algorithm = Toy()
    algorithm.initial_exchange = True
    assert epsilons(play(algorithm, rounds=2, **NOISY)) == [
        accounting.full_view(2.0, t, accounting.default_delta(6)) for t in (1, 2, 3)
    ]


def test_retries_count():
    faulty = Faulty(Toy(), Faults(clients=(0, 1, 2)))
    fed = {"cohort": 2, "quorum": 1.0, "retries": 50}
    store = play(faulty, rounds=6, fed=fed, **NOISY)
    attempts = [max(r.get("attempt", 1) for r in done.clients) for done in store.rounds[1:]]
    assert max(attempts) > 1
    totals = [done.metrics["privacy/exchanges"] for done in store.rounds[1:]]
    assert totals == np.cumsum(attempts).tolist()
    expected = accounting.amplified(2.0, sum(attempts), accounting.default_delta(6), 6, 2)
    assert epsilons(store)[-1] == expected


def test_an_untrusted_server_knows_the_cohort():
    """With local noise nothing is amplified: ε is that of the client that was asked most."""
    fed = {"clients": 12, "cohort": 3}
    store = play(rounds=9, fed=fed, where="local", **NOISY)
    taken = np.zeros(12, int)
    for done, epsilon in zip(store.rounds, epsilons(store)):
        for record in done.clients:
            taken[record["client"]] += 1
        assert epsilon == accounting.full_view(2.0, taken.max(), accounting.default_delta(12))
    assert taken.max() < 9


def test_most_is_never_too_low_when_rounds_are_tried_again():
    faulty = Faulty(Toy(12), Faults(clients=(0, 1, 2)))
    fed = {"clients": 12, "cohort": 3, "quorum": 1.0, "retries": 50}
    store = play(faulty, rounds=9, fed=fed, where="local", **NOISY)
    taken = np.bincount([r["client"] for done in store.rounds for r in done.clients])
    at_least = accounting.full_view(2.0, taken.max(), accounting.default_delta(12))
    assert epsilons(store)[-1] >= at_least


@pytest.mark.parametrize("where", ["central", "local"])
def test_the_run_ends_before_it_exceeds_the_target(where):
    said: list[str] = []
    delta = accounting.default_delta(6)
    target = accounting.full_view(2.0, 3, delta)
    store = play(rounds=9, said=said, epsilon=target, where=where, **NOISY)
    assert [done.round for done in store.rounds] == [0, 1, 2, 3]
    assert store.last.round == 3
    assert epsilons(store)[-1] == target
    assert len(said) == 1
    assert said[0].startswith("stopped before round 4: ε would be ")
    # With a higher target it goes on as if it had never stopped.
    rest = play(rounds=9, store=Memory(store.last), where=where, **NOISY)
    whole = play(rounds=9, where=where, **NOISY)
    same(whole.last.states[0], rest.last.states[0])
    assert [r.metrics for r in whole.rounds[4:]] == [r.metrics for r in rest.rounds]


def test_a_retry_that_would_exceed_the_target_ends_the_run_too():
    faulty = Faulty(Toy(), Faults(clients=(0, 1, 2, 3)))
    said: list[str] = []
    target = accounting.full_view(2.0, 2, accounting.default_delta(6))
    store = play(faulty, rounds=3, said=said, epsilon=target, fed={"retries": 9}, **NOISY)
    assert store.last.round == 0
    assert [line.split(":")[0] for line in said] == [
        "round 1, attempt 1", "round 1, attempt 2", "stopped before round 1"
    ]  # fmt: skip


def test_checkpoints_that_are_due_later_are_not_lost_at_the_target():
    store, settings = Memory(), privacy.Settings(**NOISY, epsilon=20.0)
    algorithm = Private(Toy(), settings)
    mechanism = Mechanism(settings, algorithm, SEED, 6, 6, lambda number: range(6))
    last = round_loop.run(
        Settings(clients=6), algorithm, InProcess(algorithm), aggregate.mean, store,
        seed=SEED, rounds=50, checkpoint_every=40, warn=lambda line: None, privacy=mechanism,
    )  # fmt: skip
    assert 0 < last.round < 40
    assert store.last.round == last.round


def test_seeded_noise_resumes_to_the_same_numbers_and_other_noise_does_not():
    whole, first = play(rounds=7, **NOISY), play(rounds=3, **NOISY)
    rest = play(rounds=7, store=Memory(first.last), **NOISY)
    same(whole.last.states[0], rest.last.states[0])
    assert [r.metrics for r in whole.rounds[4:]] == [r.metrics for r in rest.rounds]
    free = {"clip": 0.5, "noise": 2.0}
    assert not np.array_equal(theta(play(**free)), theta(play(**free)))


def test_batched_clients_give_the_same_run():
    same(play(Toy(), **NOISY).last.states[0], play(BatchedToy(), **NOISY).last.states[0])


def test_an_exchange_whose_noise_is_lost_in_a_crash_still_counts(tmp_path):
    free = {"clip": 0.5, "noise": 2.0}
    first = play(rounds=3, ledger=Ledger(tmp_path), **free)
    early = replace(first.last, round=1, totals=first.rounds[1].metrics)  # an older checkpoint
    assert early.totals["privacy/exchanges"] == 1
    again = play(rounds=3, store=Memory(early), ledger=Ledger(tmp_path), **free)
    assert [r.metrics["privacy/exchanges"] for r in again.rounds] == [4, 5]
    (tmp_path / "exchanges.txt").write_text("many")
    with pytest.raises(UserError, match="is no number of exchanges"):
        Ledger(tmp_path).read()


@pytest.mark.parametrize(
    ("package", "fields"), [("dp_accounting", {"noise": 1.0}), ("cryptography", {"secure": True})]
)
def test_a_package_that_is_missing_is_named_with_its_extra(package, fields, monkeypatch):
    for name in [
        n for n in sys.modules if n.split(".")[0] == package or "privacy.secure_aggregation." in n
    ]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("client", "server", "protocol", "masks"):
        monkeypatch.delattr(secure, name, raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    accounting.library.cache_clear()
    config = resolve(RECIPE | {"privacy": {"clip": 1.0} | fields})
    with pytest.raises(UserError, match=r'needs the package .*: pip install "fedrl\[privacy\]"'):
        check_packages(config)


# Settings


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"clip": -1.0}, "privacy.clip is -1.0"),
        ({"noise": 1.0}, "set privacy.clip too"),
        ({"secure": True}, "privacy.secure needs privacy.clip"),
        ({"clip": 1.0, "epsilon": 2.0}, "privacy.epsilon needs privacy.noise"),
        ({"clip": 1.0, "seeded": True}, "privacy.seeded needs privacy.noise"),
        ({"clip": 1.0, "noise": 1.0, "delta": 1.0}, "privacy.delta is 1.0"),
        ({"clip": 1.0, "threshold": 0.5}, "a share above 0.5"),
        ({"clip": 1.0, "secure": True, "where": "local"}, "would add noise twice"),
        ({"clip": math.nan}, "privacy.clip is nan"),
    ],
)
def test_impossible_settings(fields, words):
    with pytest.raises(UserError, match=words):
        privacy.Settings(**fields)


RECIPE = {
    "algorithm": {"name": "fedqhd"},
    "world": {"name": "cartpole-v1"},
    "federation": {"clients": 6},
}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"aggregate.name": "weighted", "privacy.noise": "1"}, "through the bound"),
        ({"aggregate.name": "median", "privacy.noise": "1"}, "is no sum"),
        ({"aggregate.name": "median", "privacy.secure": "true"}, "looks at single updates"),
        ({"federation.kind": "independent"}, "nobody shares anything"),
        ({"federation.cohort": "2", "privacy.secure": "true"}, "at least 3 clients"),
    ],
)
def test_combinations_that_would_not_keep_the_promise(changes, words):
    flags = [part for key, value in changes.items() for part in (f"--{key}", value)]
    with pytest.raises(UserError, match=words):
        resolve(RECIPE | {"privacy": {"clip": 1.0}}, flags)


@pytest.mark.parametrize(
    "changes",
    [
        {"aggregate.name": "median"},
        {"aggregate.name": "weighted"},
        {"aggregate.name": "median", "privacy.noise": "1", "privacy.where": "local"},
        {"privacy.noise": "1", "privacy.secure": "true"},
    ],
)
def test_combinations_that_do(changes):
    flags = [part for key, value in changes.items() for part in (f"--{key}", value)]
    assert resolve(RECIPE | {"privacy": {"clip": 1.0}}, flags).privacy.on


RUN = ("run", "momentum/random_mdp", "--federation.clients", "4", "--privacy.clip", "1",
       "--privacy.noise", "4", "--out", "runs")  # fmt: skip


def rows(folder):
    path = next(folder.glob("runs/*/*/metrics.jsonl"))
    return path.parent, [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.slow
def test_clients_in_processes_of_their_own_protect_themselves_too(fedrl, tmp_path):
    """And every place that noise comes from gives the same numbers on both engines."""
    pytest.importorskip("cryptography", reason="secure aggregation needs the extra privacy")
    for place in (("--privacy.where", "local"), ("--privacy.secure", "true")):
        seen = []
        for engine in ("inprocess", "workers"):
            out = ("--rounds", "2", "--privacy.seeded", "true", "--out", f"{place[1]}/{engine}")
            fedrl(*RUN, *place, *out, "--engine", engine)
            path = next((tmp_path / place[1] / engine).glob("*/*/metrics.jsonl"))
            seen.append([json.loads(line) for line in path.read_text().splitlines()])
        for one, other in zip(*seen):
            assert one.keys() == other.keys()
            for name in one:
                assert one[name] == pytest.approx(other[name], rel=1e-4), name


def test_a_line_of_progress_tells_epsilon():
    done = Round(2, 6, {"eval/return": 40.0, "privacy/epsilon": 3.14159}, [], {})
    assert "ε 3.14" in Progress().line(done)


@pytest.mark.slow
def test_the_command_ends_at_the_target_and_goes_on_with_a_higher_one(fedrl, tmp_path):
    assert "privacy: ε = " in fedrl(*RUN, "--rounds", "6", "--dry-run").stdout
    done = fedrl(*RUN, "--rounds", "6", "--privacy.epsilon", "4")
    assert "stopped before round" in done.stdout + done.stderr
    assert "finished round" in done.stdout
    run, found = rows(tmp_path)
    assert 0 < found[-1]["privacy/epsilon"] <= 4
    assert found[-1]["round"] < 6
    assert not any(key.startswith(("train/", "env/")) for key in found[-1])
    assert int((run / "exchanges.txt").read_text()) == found[-1]["round"] + 1  # u_0's too
    fedrl("run", "--resume", str(run), "--privacy.epsilon", "100")
    assert rows(tmp_path)[1][-1]["round"] == 6


def cohorts(path):
    lines = (path / "clients.jsonl").read_text().splitlines()
    return [(r["round"], r["client"]) for r in map(json.loads, lines)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "flags, secret",
    [
        (("--privacy.noise", "4"), True),
        (("--privacy.noise", "4", "--privacy.seeded", "true"), False),
        (("--privacy.noise", "4", "--privacy.where", "local"), False),
        ((), False),
    ],
)
def test_cohorts_that_epsilon_counts_on_are_nobodys_to_guess(flags, secret, tmp_path):
    """Amplified by sampling, ε holds only against those who do not know who was asked."""
    method = {"algorithm": {"name": "pavg", "local_steps": 1}, "world": {"name": "random_mdp"}}
    data = {"rounds": 4, "federation": {"clients": 20, "cohort": 5}} | method
    seen = []
    for name in "ab":
        flags = (*flags, "--privacy.clip", "1", "--out", str(tmp_path / name))
        config = resolve(data, flags)
        run = runs.start(config)
        runs.train(config, run, build_algorithm(config))
        assert (run.path / "cohorts.key").is_file() == secret
        seen.append(cohorts(run.path))
        if secret:
            assert (run.path / "cohorts.key").stat().st_mode & 0o077 == 0
            longer, again = runs.resume(run.path, ["--rounds", "6"])
            runs.train(longer, again, build_algorithm(longer))
            assert cohorts(run.path)[: len(seen[-1])] == seen[-1]
    assert (seen[0] != seen[1]) == secret
