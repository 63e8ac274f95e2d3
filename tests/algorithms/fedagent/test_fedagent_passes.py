"""How a client steps through what it has played: rates, passes, resampled groups, old
log-probabilities, moments."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="FedAgent needs the extra llm")
pytest.importorskip("transformers", reason="FedAgent needs the extra llm")

from support.agent_runs import last, recipe, train

from fedrl.algorithms.fedagent.local_optimizer import LocalOptimizer
from fedrl.config.build import build_algorithm
from fedrl.core.types import Job, UserError
from fedrl.llm.rl import policy_gradient
from fedrl.llm.rollout import collect_rollout
from fedrl.runs import train as runs
from fedrl.runs.grid import digest

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("easier_game")]


def learned(model, round: int = 1, **change):
    algorithm = build_algorithm(recipe(model, rounds=4, algorithm={"tasks": 6, **change}))
    return algorithm.local(Job(0, {"theta": algorithm.init(0)["theta"]}, None, 5, round))


def vector(update: dict[str, np.ndarray]) -> np.ndarray:
    return np.concatenate([update[name].ravel() for name in sorted(update)])


ONE_STEP = {"minibatch": 1000, "optimizer_state": "fresh"}
"""AdamW's step from its start is proportional to the rate, weight decay included."""


def test_a_schedule_makes_steps_shorter_by_its_share_and_nothing_else(model):
    whole = vector(learned(model, 3, **ONE_STEP).update)
    first = vector(learned(model, 1, **ONE_STEP, lr_schedule="linear").update)
    third = vector(learned(model, 3, **ONE_STEP, lr_schedule="linear").update)
    assert np.abs(whole).max() > 1e-4
    np.testing.assert_array_equal(first, whole)
    np.testing.assert_allclose(third, whole / 2, atol=2e-7)
    risen = vector(learned(model, 1, **ONE_STEP, lr_warmup=2).update)
    np.testing.assert_allclose(risen, whole / 2, atol=2e-7)


def test_a_run_that_is_resumed_goes_on_along_the_same_schedule(model, tmp_path):
    change = {"lr_schedule": "cosine", "lr_warmup": 1}
    config = recipe(model, rounds=3, federation={"clients": 1, "cohort": 0}, algorithm=change)
    whole = last(train(config, tmp_path / "whole"))
    config = replace(config, out=str(tmp_path), checkpoint_every=1)
    directory = runs.start(config)

    runs.train(config, directory, build_algorithm(config), [lambda done: done.round < 2])
    config, directory = runs.resume(directory.path)
    runs.train(config, directory, build_algorithm(config))
    for name, value in last(directory.path).states[0]["theta"].items():
        np.testing.assert_array_equal(value, whole.states[0]["theta"][name])


def test_a_rate_that_never_reaches_its_highest_is_refused(model):
    with pytest.raises(UserError, match="lr_warmup is 4, and rounds is 4"):
        learned(model, lr_warmup=4)


@pytest.mark.parametrize("estimator", ["grpo", "ppo"])
def test_passes_go_over_the_same_samples_and_start_from_the_same_policy(
    model, monkeypatch, estimator
):
    seen = []
    original = policy_gradient.update

    def watched(model, optimizer, samples, *args, **more):
        seen.append([(s.prompt, s.answer, s.logprobs) for s in samples])
        return original(model, optimizer, samples, *args, **more)

    monkeypatch.setattr(policy_gradient, "update", watched)
    result = learned(model, ppo_epochs=3, minibatch=1000, estimator=estimator, lr=1e-2)
    assert len(seen) == 3
    assert seen[0]
    assert seen[1] == seen[2] == seen[0]
    assert result.metrics["train/ratio_far"] > 0  # the clip has something to do


def test_one_pass_of_one_step_has_no_ratio_to_clip(model):
    assert learned(model, **ONE_STEP, lr=1e-2).metrics["train/ratio_far"] == 0


def test_the_learners_own_log_probabilities_are_near_the_samplers(model):
    mine, theirs = (learned(model, old_logprobs=whose) for whose in ("learner", "sampler"))
    assert 0 <= mine.metrics["train/sampler_gap"] < 1e-5
    assert "train/sampler_gap" not in theirs.metrics
    np.testing.assert_allclose(vector(mine.update), vector(theirs.update), atol=1e-4)


def test_a_sampler_that_says_something_else_is_found_out(model, monkeypatch):
    from fedrl.algorithms.fedagent import local_trainer

    def shifted(*args, **more):
        rollout = collect_rollout(*args, **more)
        for sample in rollout.samples:
            sample.logprobs = [x - 0.25 for x in sample.logprobs]
        return rollout

    plain = learned(model, **ONE_STEP, old_logprobs="learner")
    monkeypatch.setattr(local_trainer, "collect_rollout", shifted)
    off = learned(model, **ONE_STEP, old_logprobs="learner")
    assert off.metrics["train/sampler_gap"] == pytest.approx(0.25, abs=1e-5)
    np.testing.assert_array_equal(vector(off.update), vector(plain.update))
    assert learned(model, **ONE_STEP).metrics["train/ratio_far"] == 1  # else it is believed


def test_resampling_plays_more_and_learns_from_groups_with_a_signal(model):
    plain, more = learned(model, group=2), learned(model, group=2, resample=3)
    assert 0 < plain.metrics["train/zero_advantage"] < 1
    assert more.metrics["env/episodes"] > plain.metrics["env/episodes"]
    assert more.metrics["env/episodes"] <= 4 * plain.metrics["env/episodes"]
    assert 0 < more.metrics["train/zero_advantage"] < 1  # of all that were played
    assert not np.array_equal(vector(plain.update), vector(more.update))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"resample": 1, "estimator": "ppo"}, "resample"),
        ({"ppo_epochs": 2, "beta": 0.5, "entropy": 0.0}, "ppo_epochs"),
        ({"old_logprobs": "learner", "beta": 0.5, "entropy": 0.0}, "old_logprobs"),
        ({"ppo_epochs": 0}, "ppo_epochs"),
    ],
)
def test_what_would_not_be_read_is_refused(model, change, said):
    with pytest.raises(UserError, match=said):
        recipe(model, algorithm=change)


def test_moments_that_are_handed_on_step_as_one_optimizer_does_to_the_bit(model):
    """Fed the same minibatches, three rounds of one client are one round of three epochs."""
    config = recipe(
        model,
        federation={"clients": 1, "cohort": 0},
        algorithm={"optimizer_state": "kept", "tasks": 6, "minibatch": 8},
    )
    algorithm = build_algorithm(config)
    trainer, theta = algorithm.trainer, algorithm.init(0)["theta"]
    trainer.actor.load(theta)
    tasks = algorithm.shares[0][:6]
    rollouts = [
        collect_rollout(
            trainer.loop, trainer.actor.sampler, tasks, 1.0, trainer.actor.generator(seed), 2
        )
        for seed in range(3)
    ]

    def stepped(rounds: int) -> dict[str, np.ndarray]:
        trainer.actor.load(theta)
        optimizer, moments = None, None
        for number, rollout in enumerate(rollouts):
            if optimizer is None or rounds > 1:
                optimizer = LocalOptimizer(
                    trainer, algorithm, {"theta": theta}, torch.Generator(), moments
                )
            optimizer.batching.generator.manual_seed(number)
            optimizer.update(rollout)
            moments = optimizer.moments()
        assert max(int(n) for n in moments["step"].values()) > 3
        return trainer.policy.weights()

    once, cut = stepped(1), stepped(3)
    assert not np.array_equal(once["model.embed_tokens.weight"], theta["model.embed_tokens.weight"])
    for name, value in once.items():
        np.testing.assert_array_equal(cut[name], value, err_msg=name)


def test_a_run_whose_rate_falls_is_another_one_if_it_shall_be_longer(model):
    def known_as(rounds: int, schedule: str) -> str:
        return digest(recipe(model, rounds=rounds, algorithm={"lr_schedule": schedule}))

    assert known_as(2, "constant") == known_as(3, "constant")  # it is lengthened
    assert known_as(2, "linear") != known_as(3, "linear")
