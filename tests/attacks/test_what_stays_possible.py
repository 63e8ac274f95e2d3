"""What docs/security.md calls possible is: if one of these fails, the page says too little.

None of this is a hole that could be closed here: the plain mean is a mean, a model depends on what
it was trained on, a noisy sum has the noise that its members added.
"""

from __future__ import annotations

import numpy as np
import pytest
from support.rounds import play
from support.toy import Toy

from fedrl.core.types import Result, Tensors
from fedrl.engines.in_process import InProcess
from fedrl.privacy import Settings


class Overheard(InProcess):
    """Keeps what clients send, to compare with."""

    def __init__(self, algorithm: Toy) -> None:
        super().__init__(algorithm)
        self.sent: list[dict[int, Tensors]] = []
        self.models: list[Tensors] = []

    def run(self, jobs, deadline=0.0):
        outcomes = list(super().run(jobs, deadline))
        self.models.append(jobs[0].broadcast["theta"])
        self.sent.append({one.client: one.update for one in outcomes if isinstance(one, Result)})
        return iter(outcomes)


@pytest.mark.parametrize("clients", [2, 3])
def test_a_member_has_the_sum_of_the_others_and_of_two_the_others_update(clients: int):
    """The models that it is sent in two rounds, and its own update: no more is needed."""
    engine = Overheard(Toy(clients))
    play(engine.algorithm, 2, engine, clients=clients)
    first, second = (model["a"] for model in engine.models)
    others = clients * (second - first) - engine.sent[0][0]["a"]
    np.testing.assert_allclose(others, sum(engine.sent[0][k]["a"] for k in range(1, clients)))


def test_the_coordinator_sees_plain_updates():
    """Round by round, of every client: `privacy.secure` is off by default."""
    assert not Settings().secure
    engine = Overheard(Toy(4))
    play(engine.algorithm, 1, engine, clients=4)
    assert set(engine.sent[0]) == {0, 1, 2, 3}


def test_one_client_moves_the_plain_mean_as_far_as_it_likes():
    class Liar(Toy):
        def local(self, job):
            found = super().local(job)
            return found if job.client else Result(0, {n: a + 1e6 for n, a in found.update.items()})

    end = play(Liar(5), 1, clients=5).last.states[0]["theta"]["a"]
    assert np.abs(end).max() > 1e5


def test_members_that_add_no_noise_take_their_part_of_it_away():
    """z·√((t − k)/t) is left of the noise of a sum of t, as measured on what they add up."""
    from fedrl.privacy.secure_aggregation import Terms, quantise

    terms = Terms.of(Settings(clip=1.0, noise=4.0, secure=True), 4)
    assert terms.needed == 3
    draws, nothing = np.random.default_rng(0), np.zeros(20_000)
    for liars in range(3):
        honest = [terms.quantised(nothing, draws.standard_normal) for _ in range(3 - liars)]
        silent = [terms.quantised(nothing, np.zeros) for _ in range(liars)]
        total = np.add.reduce([*honest, *silent], dtype=np.uint32)
        left = quantise.decode(total, terms.step).std()
        assert left == pytest.approx(4.0 * np.sqrt((3 - liars) / 3), rel=0.03)


def test_an_update_and_a_model_tell_what_was_trained_on():
    """A person's update says to the bit which movies it is of, and the model that comes of it tells
    a secret taste; noise takes that away. What it is in numbers: docs/results/exposure.md."""
    pytest.importorskip("numba", reason="needs the extra classic")
    from fedrl.config.loading import resolve
    from reproductions.exposure.ratings import measure

    how = {"candidates": 60, "secret_movies": 4, "canaries": 3, "round": 1, "utility": []}
    recipe = {
        "rounds": 2, "federation": {"clients": 5},
        "algorithm": {"name": "fedrlhf", "policy": "linear", "users": "private", "optimizer": "sgd",
                      "lr": 0.3, "local_epochs": 20, "preference_queries": 0, "ask_again": False},
        "world": {"name": "movielens"},
    }  # fmt: skip
    found = measure(resolve(recipe), how)
    trained = np.array([bit == "1" for bit in found["member"]])
    assert ((np.array(found["statistics"]["update"]) != 0) == trained).all()
    assert found["canaries"]["update"] == found["canaries"]["model"] == [4.0] * 3
    noisy = {"privacy": {"clip": 0.01, "noise": 1000.0, "seeded": True}}
    pytest.importorskip("dp_accounting", reason="needs the extra privacy")
    assert np.mean(measure(resolve(recipe | noisy), how)["canaries"]["model"]) < 4.0
