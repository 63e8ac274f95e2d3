"""The classics as runs: a stopped one ends as one that was not, and what they say can be sent."""

from __future__ import annotations

import pytest
from support.policy_gradients import CLASSICS, jobs, make
from support.rounds import same

import fedrl
from fedrl.core.serialization import pack, unpack

pytestmark = pytest.mark.slow

SMALL = {"world": {"name": "random_mdp", "horizon": 8}, "federation": {"clients": 3}}


@pytest.mark.parametrize(
    "own",
    [
        {"name": "fedprox", "local_steps": 3, "local_steps_spread": 0.7},
        {"name": "scaffold", "local_steps": 3, "lr": 0.02},
        {"name": "fedpg-br", "trajectories": 4, "server_optimizer": "adam"},
    ],
    ids=lambda own: own["name"],
)
def test_a_run_that_was_stopped_ends_with_the_same_numbers(own, tmp_path):
    whole = fedrl.run(SMALL | {"algorithm": own}, rounds=3, out=tmp_path / "whole")

    def stop(done):
        return done.round < 1  # False stops it

    half = fedrl.run(SMALL | {"algorithm": own}, rounds=3, out=tmp_path / "half", callbacks=[stop])
    assert half.status == "stopped"
    rest = fedrl.resume(half.path)
    assert (rest.path / "metrics.jsonl").read_bytes() == (
        (whole.path / "metrics.jsonl").read_bytes()
    )


@pytest.mark.parametrize("cls", CLASSICS)
def test_what_is_sent_and_kept_is_the_same_after_a_message(cls):
    method = make(cls, "gridworld", **({} if cls is CLASSICS[-1] else {"local_steps_spread": 0.5}))
    sent = jobs(method)[0].broadcast
    same(unpack(pack(sent)), sent)
    result = method.local(jobs(method)[0])
    same(unpack(pack(result.update), method.declare(sent)), result.update)
    same(unpack(pack(result.state)), result.state)
