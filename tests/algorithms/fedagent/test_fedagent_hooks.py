"""FedAgent's hooks: a method of one's own is a subclass with another advantage or another loss."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="FedAgent needs the extra llm")
pytest.importorskip("transformers", reason="FedAgent needs the extra llm")

from support.agent_runs import recipe

from fedrl.algorithms.fedagent.algorithm import FedAgent
from fedrl.config.build import build_world
from fedrl.core.types import Job, Result, UserError
from fedrl.federation.client_sampling import client_env_ids
from fedrl.llm.rl.advantages import grpo, rloo

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("easier_game")]


class Same(FedAgent):
    """Nothing of its own."""


class FedProx(FedAgent):
    """FedAgent whose clients are pulled towards the round's model."""

    @dataclass(frozen=True)
    class Settings(FedAgent.Settings):
        # μ: how strongly.
        mu: float = 0.0

    def loss(self, now):
        pull = self.settings.mu / 2 * now.weights.squared_distance()
        return now.total(super().loss(now)) + now.share * pull


class LeaveOneOut(FedAgent):
    """An episode is compared with the others of its group."""

    def advantage(self, rollout):
        return rloo(rollout)


class DrGRPO(FedAgent):
    """Dr. GRPO (Liu et al. 2025): no division by deviations, nor by the answers' lengths."""

    def advantage(self, rollout):
        return grpo(rollout, scale=False)

    def loss(self, now):
        samples = int(now.sample.max()) + 1
        each = super().loss(now).sum() / self.settings.answer_tokens
        return now.share * each / samples


class Twice(FedAgent):
    """Every advantage counts twice."""

    def advantage(self, rollout):
        return 2 * super().advantage(rollout)


def made(cls: type[FedAgent], model, federation=None, **settings) -> FedAgent:
    own = {k: v for k, v in settings.items() if k == "mu"}
    given = {k: v for k, v in settings.items() if k != "mu"}
    config = recipe(model, federation=federation or {}, algorithm={"group": 4} | given)
    fields = vars(config.algorithm)
    return cls(
        cls.Settings(**fields, **own), build_world(config), 2, client_env_ids(config.federation)
    )


def learned(algorithm: FedAgent, seed: int = 11) -> Result:
    return algorithm.local(Job(0, algorithm.broadcast(algorithm.init(0), 1), None, seed))


def same(one: Result, other: Result) -> None:
    assert one.metrics == other.metrics
    assert any(change.any() for change in one.update.values()), "nothing was learned"
    for name, change in one.update.items():
        assert np.array_equal(change, other.update[name]), name


ESTIMATORS = [
    {},
    {"estimator": "gigpo", "kl": 0.05, "minibatch": 5, "microbatch": 2},
    {"estimator": "ppo", "critic_lr": 1e-2},
    {"beta": 0.5, "entropy": 0.0},
    {"prox": 0.3, "entropy": 0.0, "local_epochs": 2},
]


@pytest.mark.parametrize("change", ESTIMATORS, ids=lambda c: "-".join(c) or "plain")
def test_default_hooks_are_fedagent_to_the_bit(model, change):
    same(learned(made(Same, model, **change)), learned(made(FedAgent, model, **change)))


def test_a_pull_of_nothing_is_fedagent_to_the_bit(model):
    cut = {"minibatch": 7, "microbatch": 3, "local_epochs": 2}
    same(learned(made(FedProx, model, **cut)), learned(made(FedAgent, model, **cut)))


@pytest.mark.parametrize("microbatch", [64, 3])
def test_fedprox_in_the_loss_is_fedprox_in_the_gradient(model, microbatch):
    """The built-in `prox` adds μ (θ − θ_r) to the gradient; once per step, however it is cut."""
    cut = {"minibatch": 7, "microbatch": microbatch, "local_epochs": 2, "lr": 1e-3}
    ours = learned(made(FedProx, model, mu=2.0, **cut)).update
    theirs = learned(made(FedAgent, model, prox=2.0, **cut)).update
    without = learned(made(FedAgent, model, **cut)).update
    gap = {name: np.abs(ours[name] - theirs[name]).max() for name in ours}
    moved = {name: np.abs(theirs[name] - without[name]).max() for name in ours}
    assert max(gap.values()) < 0.02 * max(moved.values())


def test_an_advantage_of_ones_own_is_the_settings_one(model):
    """RLOO written outside is the built-in estimator of that name."""
    same(learned(made(LeaveOneOut, model)), learned(made(FedAgent, model, estimator="rloo")))


def test_twice_the_advantage_is_twice_the_gradient(model):
    """One step of all samples: the ratio is 1, so the gradient before clipping is linear in A."""
    once = {"minibatch": 10_000, "microbatch": 10_000, "entropy": 0.0}
    ours, theirs = (learned(made(cls, model, **once)).metrics for cls in (Twice, FedAgent))
    assert theirs["train/gradient_norm"] > 0
    assert ours["train/gradient_norm"] == pytest.approx(2 * theirs["train/gradient_norm"], rel=1e-5)
    kept = set(theirs) - {"train/gradient_norm", "train/loss"}
    assert {name: ours[name] for name in kept} == {name: theirs[name] for name in kept}


def test_a_scalar_loss_is_added_up_over_microbatches(model):
    """Dr. GRPO: the mean over samples of Σ_tokens / longest answer, in any cut."""
    whole, cut = (
        learned(made(DrGRPO, model, minibatch=10_000, microbatch=size, entropy=0.0)).metrics
        for size in (10_000, 3)
    )
    assert whole["train/gradient_norm"] > 0
    assert cut["train/gradient_norm"] == pytest.approx(whole["train/gradient_norm"], rel=1e-4)


def test_samples_that_went_as_the_others_count_if_the_method_says_so(model):
    class Everything(FedAgent):
        """A loss that is also read where the advantage is 0."""

        every_sample = True
        seen = 0

        def advantage(self, rollout):
            return np.zeros(len(rollout.samples))

        def loss(self, now):
            type(self).seen += int(now.sample.max()) + 1
            return -now.now

    result = learned(made(Everything, model, entropy=0.0))
    assert Everything.seen == result.metrics["env/steps"]
    assert any(change.any() for change in result.update.values())


def test_a_hook_that_would_not_be_asked_is_refused(model):
    with pytest.raises(UserError, match=r'estimator is "ppo".*an advantage of its own'):
        made(Twice, model, estimator="ppo")
    with pytest.raises(UserError, match=r"beta is 0.5.*would not be read"):
        made(FedProx, model, beta=0.5, entropy=0.0)
    made(FedProx, model, estimator="ppo")
    made(Twice, model, beta=0.5, entropy=0.0)


def test_the_round_begins_where_the_broadcast_says(model):
    """‖θ − θ_r‖² is 0 at a round's first step, also in a later round."""
    seen: list[float] = []

    class Looking(FedAgent):
        """Writes down how far it has gone."""

        def loss(self, now):
            seen.append(float(now.weights.squared_distance().detach()))
            return super().loss(now)

    algorithm = made(Looking, model, minibatch=7, microbatch=10_000)
    state = algorithm.init(0)
    for round in (1, 2):
        first = len(seen)
        result = algorithm.local(Job(0, algorithm.broadcast(state, round), None, round))
        assert seen[first] == 0
        assert max(seen[first:]) > 0
        state = algorithm.step(state, result.update, round)


def test_settings_of_ones_own_keep_the_bases_limits():
    with pytest.raises(UserError, match=r"algorithm\.lr is 0"):
        replace(FedProx.Settings(mu=1.0), lr=0.0)
