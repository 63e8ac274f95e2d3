"""How few updates a recipe may make one, by the round loop's own count."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")

from fedrl.config.loading import resolve
from fedrl.engines.flower.fewest_updates import fewest, quorum_for
from fedrl.engines.flower.policy import Policy
from fedrl.engines.flower.policy_check import Node, refusals
from fedrl.engines.flower.recipe_words import in_words

PAVG = {"algorithm": {"name": "pavg"}, "world": {"name": "random_mdp"}}


@pytest.mark.parametrize(
    ("tables", "count"),
    [
        ({"federation": {"clients": 2}}, 1),
        ({"federation": {"clients": 2, "quorum": 1.0}}, 2),
        ({"federation": {"clients": 3}}, 2),
        ({"federation": {"clients": 5, "quorum": 0.0}}, 1),
        ({"federation": {"clients": 9, "cohort": 4}}, 2),
        ({"federation": {"clients": 4, "kind": "independent", "quorum": 1.0}}, 1),
        ({"federation": {"clients": 9}, "async_buffer": {"size": 6}}, 3),
        ({"federation": {"clients": 9, "quorum": 1.0}, "aggregate": {"name": "krum"}}, 1),
        # f = 2 of 9: seven at least, and 7 - 2 - 2 of them
        ({"federation": {"clients": 9}, "aggregate": {"name": "multi-krum"}}, 3),
        ({"federation": {"clients": 9}, "aggregate": {"name": "multi-krum", "keep": 4}}, 4),
        ({"federation": {"clients": 9}, "aggregate": {"name": "bulyan", "byzantine": 1}}, 3),
        # one that its rule has no meaning for is no step
        ({"federation": {"clients": 4, "quorum": 0.0}, "aggregate": {"name": "median"}}, 3),
        ({"federation": {"clients": 9, "quorum": 0.0},
          "privacy": {"secure": True, "clip": 1.0, "threshold": 0.6}}, 6),
    ],
)  # fmt: skip
def test_as_few_as_the_quorum_lets_be_left(tables, count):
    assert fewest(resolve(PAVG | tables)) == count


@pytest.mark.parametrize("clients", [2, 3, 7, 30, 101])
def test_the_quorum_that_is_named_is_enough_and_no_more(clients: int):
    for least in range(1, clients + 1):
        config = resolve(PAVG | {"federation": {"clients": clients}})
        share = quorum_for(config, least)
        assert share is not None
        named = resolve(PAVG | {"federation": {"clients": clients, "quorum": share}})
        assert fewest(named) == least
    assert quorum_for(config, clients + 1) is None


def test_a_node_says_which_quorum_it_needs():
    two = resolve(PAVG | {"federation": {"clients": 2}})
    assert refusals(two, Policy(least_clients=2), Node(Path())) == [
        "federation.quorum 0.5 of 2 clients lets 1 update become the model: this node's least "
        "number, 2, needs --federation.quorum 1 (least_clients)"
    ]


def test_a_person_reads_of_how_few_the_model_may_be():
    two = PAVG | {"federation": {"clients": 2}}
    told = "\n".join(in_words(resolve(two), Policy(), Node(Path())))
    assert "it alone may become the model" in told
    both = resolve(two, ["--federation.quorum", "1"])
    assert "2 clients' at least" in "\n".join(in_words(both, Policy(), Node(Path())))
