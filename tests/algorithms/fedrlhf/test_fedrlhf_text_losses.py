"""What a client that writes tells of PPO's losses, its R0, and its batches of several owners."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="models that write need the extra llm")
pytest.importorskip("transformers", reason="models that write need the extra llm")

from support.review_runs import make_model, recipe

from fedrl.algorithms.fedrlhf.text import prompts as prompting
from fedrl.algorithms.fedrlhf.text.algorithm import FedRLHFText
from fedrl.algorithms.fedrlhf.text.reward import TextReward, bounded_loglikelihood
from fedrl.algorithms.fedrlhf.text.trainer import PromptBatch, TextTrainer
from fedrl.config.build import build_algorithm, build_world
from fedrl.core.types import Job, UserError

pytestmark = pytest.mark.slow

TEXTS = ["I saw this film last week with a friend.", "The plot is very good."]
PAID = np.array([0.2, 0.9, 0.4, 0.7])


@pytest.fixture(scope="session")
def model(tmp_path_factory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "reviews")


def trainer(model: Path, **settings) -> TextTrainer:
    return TextTrainer(recipe(model, algorithm=settings).algorithm)


def moved(weights, size: float = 0.1):
    random = np.random.default_rng(0)
    return {
        k: (v + size * random.standard_normal(v.shape)).astype("f4") for k, v in weights.items()
    }


class ByHand:
    """One text's numbers, by transformers alone."""

    def __init__(self, ours: TextTrainer, sample) -> None:
        ids = torch.tensor([[*sample.prompt, *sample.answer]])
        model, first = ours.policy.model, len(sample.prompt) - 1
        rows = range(first, first + len(sample.answer))
        with torch.no_grad():
            out = model(ids, output_hidden_states=True)
            now = out.logits[0].double().log_softmax(-1)
            before = ours.reference(ids).logits[0].double().log_softmax(-1)
        self.now = np.array([float(now[i, t]) for i, t in zip(rows, sample.answer)])
        self.reference = np.array([float(before[i, t]) for i, t in zip(rows, sample.answer)])
        weight, bias = (model.get_parameter(f"value.{part}") for part in ("weight", "bias"))
        state = out.hidden_states[-1][0, first].double()
        self.value = float((state @ weight[0].double() + bias[0]).detach())

    @property
    def k3(self) -> np.ndarray:
        far = self.reference - self.now
        return np.exp(far) - far - 1


# Losses


def test_the_parts_of_the_loss_are_those_computed_by_hand(model):
    """In the first pass ratios are 1: −Σ A over tokens, ½ (V − R)², and β times k3."""
    ours = trainer(model, losses=True, ppo_epochs=1, kl=0.3)
    theta = moved(ours.actor.initial_weights(0))
    ours.actor.load(theta)
    prompts = ours.prompts(TEXTS * 2, [3, 2, 4, 5])
    written = ours.complete(prompts, ours.actor.generator(5))
    each = [ByHand(ours, sample) for sample in written.samples]
    lengths = np.array([len(sample.answer) for sample in written.samples])
    raw = PAID - np.array([one.value for one in each])
    advantage = (raw - raw.mean()) / raw.std(ddof=1)
    policy = -float((lengths * advantage).sum() / lengths.sum())
    value = float(0.5 * (raw**2).mean())
    penalty = float(np.concatenate([one.k3 for one in each]).mean())

    batch = PromptBatch([0] * 4, prompts)
    told, _ = ours.train(theta, [batch], lambda *_: (PAID, {}), 5)
    assert told["train/policy_loss"] == pytest.approx(policy, abs=1e-4)
    assert told["train/value_loss"] == pytest.approx(value, rel=1e-4)
    assert told["train/kl_loss"] == pytest.approx(0.3 * penalty, rel=1e-3)
    assert told["train/loss"] == pytest.approx(policy + value + 0.3 * penalty, abs=1e-4)
    assert penalty > 0.01


def test_losses_on_held_out_prompts_are_those_computed_by_hand(model):
    ours = trainer(model, losses=True, kl=0.3)
    ours.actor.load(moved(ours.actor.initial_weights(0)))
    written = ours.complete(ours.prompts(TEXTS * 2, [3, 2, 4, 5]), ours.actor.generator(5))
    each = [ByHand(ours, sample) for sample in written.samples]
    error = 0.5 * np.mean([(one.value - paid) ** 2 for one, paid in zip(each, PAID)])
    penalty = np.concatenate([one.k3 for one in each]).mean()
    told = ours.held_out_losses(written, PAID)
    assert told["value_loss"] == pytest.approx(error, rel=1e-4)
    assert told["kl"] == pytest.approx(penalty, rel=1e-3)
    assert told["loss"] == pytest.approx(error + 0.3 * penalty, rel=1e-3)


def test_losses_are_told_by_round_and_client_where_they_are_asked_for(model):
    for asked in (False, True):
        algorithm = build_algorithm(recipe(model, algorithm={"losses": asked}))
        state = algorithm.init(3)
        told = algorithm.local(Job(1, state, None, 7)).metrics
        seen = algorithm.evaluate([state], [range(3)], 0, 0)
        named = {"train/policy_loss", "train/kl_loss", "personal/loss", "personal/value_loss",
                 "personal/kl"}  # fmt: skip
        assert named & set(told) == (named if asked else set())
        assert set(told) <= algorithm.reports
        assert ("eval/loss" in seen) == ("eval/loss_client2" in seen) == asked
        if asked:  # a critic that says 0, and the model that the run began with
            paid = seen["eval/reward"]
            assert seen["eval/kl"] == pytest.approx(0, abs=1e-5)
            assert seen["eval/loss"] == pytest.approx(seen["eval/value_loss"], abs=1e-5)
            assert seen["eval/loss"] >= 0.5 * paid**2 - 1e-6


# R0


def test_the_bounded_loglikelihood_is_a_logistic_curve_of_peoples_units():
    likelihood = np.array([-9.0, -3.0, -2.5, -2.0, 0.0])
    found = bounded_loglikelihood(likelihood, -2.5, 0.5)
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-(likelihood + 2.5) / 0.5)))
    assert found[2] == 0.5
    assert (np.diff(found) > 0).all()
    assert ((found > 0) & (found < 1)).all()
    reward = TextReward(0.0, -2.5, None, 0.5)
    np.testing.assert_array_equal(reward.rewards(["x"] * 5, likelihood).intrinsic, found)


def test_the_unit_of_the_loglikelihood_is_the_spread_of_the_clients_own_people(model):
    for kind in ("fluency", "loglikelihood"):
        algorithm = build_algorithm(recipe(model, algorithm={"intrinsic": kind}))
        assert isinstance(algorithm, FedRLHFText)
        reward = algorithm.rewards.of(1)
        texts = [review.text for review in algorithm.world.train[1]]
        likelihood = algorithm.trainer.human_likelihood(texts)
        assert reward.human == pytest.approx(likelihood.mean())
        spread = None if kind == "fluency" else pytest.approx(likelihood.std())
        assert reward.spread == spread
        people = reward.rewards(texts, likelihood).intrinsic
        if kind == "loglikelihood":
            assert people.mean() == pytest.approx(0.5, abs=0.1)


# Batches of several owners


def test_owners_share_a_batch_in_equal_parts_and_take_turns(model):
    world = build_world(recipe(model))
    drawn = prompting.prompt_batches(world, [0, 1, 2], 6, (2, 3), 0, together=2)
    owners = [[prompt.owner for prompt in next(drawn)] for _ in range(3)]
    assert owners == [[0, 0, 0, 1, 1, 1], [2, 2, 2, 0, 0, 0], [1, 1, 1, 2, 2, 2]]
    few = next(prompting.prompt_batches(world, [1], 6, (2, 3), 0, together=5))
    assert [prompt.owner for prompt in few] == [1] * 6
    uneven = next(prompting.prompt_batches(world, [0, 1, 2], 8, (2, 3), 0, together=3))
    assert [[p.owner for p in uneven].count(k) for k in range(3)] == [2, 3, 3]


def test_whose_text_it_is_is_no_merit(model):
    """What one owner is paid more for all texts alike moves the critic and not the policy."""
    batch_of = [0, 0, 1, 1]
    after = []
    for more in (0.0, 0.5):
        ours = trainer(model, ppo_epochs=1)
        theta = ours.actor.initial_weights(0)
        batch = PromptBatch(batch_of, ours.prompts(TEXTS * 2, [3, 2, 4, 5]))
        paid = PAID + more * np.array(batch_of)
        ours.train(theta, [batch], lambda *_, paid=paid: (paid, {}), 5)
        after.append(ours.policy.weights())
    assert not np.array_equal(after[0]["value.bias"], after[1]["value.bias"])
    for name in after[0]:
        if not name.startswith("value."):
            np.testing.assert_allclose(after[0][name], after[1][name], atol=1e-5)


def test_a_centralized_client_takes_as_many_updates_on_as_many_texts(model):
    central = build_algorithm(
        recipe(model, federation={"clients": 3, "kind": "centralized"},
               algorithm={"owners_per_batch": 3, "batch": 12, "minibatch": 12})
    )  # fmt: skip
    told = central.local(Job(0, central.init(3), None, 7)).metrics
    ours = build_algorithm(recipe(model))
    each = [ours.local(Job(k, ours.init(3), None, 7)).metrics["env/samples"] for k in range(3)]
    assert told["env/samples"] == sum(each)
    with pytest.raises(UserError, match=r"algorithm.batch is 4, but .* at least 6"):
        recipe(model, algorithm={"owners_per_batch": 3})
