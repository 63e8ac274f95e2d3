"""Robust rules in a round and in its settings: counting byzantine, and too few updates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.liars import NAMES, PER_ATTACKER, RULES, drawn, stream, vector
from support.rounds import Memory, play
from support.toy import Toy

from fedrl.aggregation import robust, rules
from fedrl.clients.faults import Faulty
from fedrl.clients.faults import Settings as Faults
from fedrl.config.build import build_algorithm
from fedrl.config.loading import resolve
from fedrl.core.types import TooFew, UserError
from fedrl.federation.round_loop import QuorumLost


@pytest.mark.parametrize(
    ("byzantine", "size", "expected"),
    [(0, 10, 0), (0.2, 10, 2), (0.2, 11, 3), (0.07, 100, 7), (0.01, 5, 1), (1, 50, 1), (3, 9, 3)],
)
def test_how_attackers_are_counted(byzantine, size, expected):
    assert robust.byzantine_count(byzantine, size) == expected


@pytest.mark.parametrize("name", ["krum", "multi-krum", "bulyan"])
@pytest.mark.parametrize("byzantine", [0, 1, 2])
def test_too_few_updates_are_no_result(name, byzantine):
    least = PER_ATTACKER[name] * byzantine + 3
    assert rules.find(name).need(0, byzantine).least == least
    rule = rules.get(name, byzantine=byzantine)
    rule(stream(drawn(0, least)))
    with pytest.raises(TooFew, match=f"{name} .* needs {least} updates, and {least - 1} were"):
        rule(stream(drawn(0, least - 1)))


def test_multi_krum_never_keeps_more_than_are_honest():
    rule = rules.get("multi-krum", byzantine=2, keep=6)
    rule(stream(drawn(0, 8)))
    with pytest.raises(TooFew, match="needs 8 updates"):
        rule(stream(drawn(0, 7)))


def test_a_round_with_too_few_updates_is_one_below_the_quorum():
    faulty = Faulty(Toy(), Faults(clients=(2, 5), kind="nan"))
    store = Memory()
    with pytest.raises(QuorumLost, match=r"only 0 of 6 .*krum with 1 assumed .* needs 5 .* 4 were"):
        play(faulty, store=store, mean=rules.get("krum", byzantine=1), retries=1, quorum=0.0)
    assert [r.round for r in store.rounds] == [0]  # nothing was done in the rule's place
    assert store.last.states[0]["steps"] == 0
    reasons = {r["client"]: r["reason"] for r in store.failures}
    assert "NaN" in reasons[2]
    assert "needs 5 updates" in reasons[0]


def test_such_a_round_is_tried_again_with_other_clients():
    faulty = Faulty(Toy(), Faults(clients=(0,), kind="raise"))
    rule = rules.get("krum", byzantine=1)
    store = play(faulty, rounds=6, cohort=5, mean=rule, retries=50, quorum=0.1)
    attempts = [r.get("attempt", 1) for done in store.rounds for r in done.clients]
    assert max(attempts) > 1
    last = [[r for r in d.clients if r["status"] == "ok"] for d in store.rounds[1:]]
    assert all(len(used) == 5 for used in last)
    assert store.last.round == 6


@pytest.mark.parametrize("name", NAMES)
def test_a_round_in_which_everybody_fails_ends_with_a_reason(name):
    faulty = Faulty(Toy(), Faults(clients=tuple(range(6)), kind="raise"))
    with pytest.raises(QuorumLost, match="a fault on purpose"):
        play(faulty, mean=rules.get(name))


def test_the_weights_that_clients_claim_do_not_count():
    updates = stream(drawn(0, 7))
    heavy = [(update, 1e6 * weight**3) for update, weight in updates]
    for name, rule in sorted(RULES.items()):
        assert np.array_equal(vector(rule(updates)), vector(rule(heavy))), name


BASE = {"algorithm": {"name": "pavg"}, "world": {"name": "cartpole"}}


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--aggregate.name", "krum", "--federation.clients", "4"], "needs 5 clients per round"),
        (["--aggregate.name", "bulyan"], "needs 7 clients per round against 1 Byzantine clients"),
        (["--aggregate.name", "bulyan", "--federation.clients", "50", "--federation.cohort", "10"],
         "needs 11 clients per round against 2 Byzantine clients, and there are 10"),
        (["--aggregate.name", "multi-krum", "--aggregate.keep", "5"], "byzantine or keep"),
        (["--aggregate.name", "krum", "--federation.kind", "independent"], "each is alone"),
        (["--aggregate.name", "krum", "--federation.kind", "centralized"], '"centralized"'),
        (["--aggregate.name", "krumm"], "did you mean 'krum'"),
        (["--aggregate.byzantine", "1.5"], "a number of clients"),
        (["--aggregate.byzantine", "-1"], "must not be negative"),
        (["--aggregate.bound", "-1"], "must not be negative"),
        (["--aggregate.keep", "-1"], "must not be negative"),
    ],
)  # fmt: skip
def test_impossible_settings_are_refused(flags, words):
    with pytest.raises(UserError, match=words) as found:
        resolve(BASE, flags)
    assert "\n" not in str(found.value)


def test_settings_reach_the_rule():
    config = resolve(
        BASE,
        ["--aggregate.name", "multi-krum", "--aggregate.byzantine", "0.2", "--aggregate.keep", "2",
         "--federation.clients", "40", "--federation.cohort", "9"],
    )  # fmt: skip
    vectors = drawn(4, 9)
    rule = rules.build(config.rule, config.federation.clients_per_round)
    expected = robust.multi_krum(stream(vectors), byzantine=2, keep=2)
    np.testing.assert_array_equal(vector(rule(stream(vectors))), vector(expected))
    bound = replace(config.aggregate, name="norm-bound", bound=0.5)
    assert np.linalg.norm(vector(rules.build(rules.chosen(bound), 9)(stream(vectors)))) <= 0.5


def test_a_bound_on_changes_is_not_for_values():
    data = {"algorithm": {"name": "fedqhd", "features": 8}, "world": {"name": "cartpole-v1"}}
    with pytest.raises(UserError, match="fedqhd sends values"):
        build_algorithm(resolve(data, ["--aggregate.name", "norm-bound"]))
