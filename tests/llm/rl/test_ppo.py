"""PPO's critic: advantages by brute force, the loss by differences, and a bandit to learn."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason='needs PyTorch: pip install "fedrl[llm]"')
pytest.importorskip("transformers", reason='needs transformers: pip install "fedrl[llm]"')

from support.tiny_model import rollout, samples, tiny

from fedrl.llm.generation.hf import HFSampler
from fedrl.llm.rl.advantages import returns_to_go
from fedrl.llm.rl.batches import Batching
from fedrl.llm.rl.loss import Loss
from fedrl.llm.rl.ppo import (
    Critic,
    Targets,
    add_value_head,
    gae,
    gae_targets,
    parameter_groups,
    sample_values,
    update,
    value_loss,
)
from fedrl.llm.rollout import Rollout, Sample

numbers = st.floats(-3, 3)
games = st.lists(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=6), min_size=1)


def laid_out(game: list[list[tuple[float, float]]]) -> tuple[Rollout, np.ndarray]:
    """A rollout of (reward, value) steps, and the values in its order."""
    played = rollout([[("", reward) for reward, _ in steps] for steps in game], [0] * len(game))
    return played, np.array([game[s.episode][s.step][1] for s in played.samples])


@given(games, st.floats(0, 1), st.floats(0, 1))
@settings(deadline=None)
def test_gae_is_the_sum_that_defines_it(game, gamma: float, trace: float):
    played, value = laid_out(game)
    for sample, found in zip(played.samples, gae(played, value, gamma, trace), strict=True):
        steps = game[sample.episode]
        expected = 0.0
        for h in range(sample.step, len(steps)):
            after = steps[h + 1][1] if h + 1 < len(steps) else 0.0
            delta = steps[h][0] + gamma * after - steps[h][1]
            expected += (gamma * trace) ** (h - sample.step) * delta
        assert found == pytest.approx(expected, abs=1e-9)


@given(games)
@settings(deadline=None)
def test_without_discounts_it_is_the_return_to_go_less_the_value(game):
    played, value = laid_out(game)
    expected = returns_to_go(played, 1.0) - value
    np.testing.assert_allclose(gae(played, value, 1.0, 1.0), expected, atol=1e-9)


@given(numbers, numbers, numbers, st.floats(0.01, 4))
@settings(deadline=None)
def test_the_value_loss_is_the_worse_of_the_plain_and_the_clipped(now, old, target, clip: float):
    near = min(max(now, old - clip), old + clip)
    expected = max((now - target) ** 2, (near - target) ** 2) / 2
    found = value_loss(*torch.tensor([[now], [old], [target]], dtype=torch.float64), clip)
    assert float(found) == pytest.approx(expected, abs=1e-12)


def test_the_value_losss_slope_by_differences():
    """Near and far from the old value, on either side of the target: also where the clip holds."""
    generator = torch.Generator().manual_seed(0)
    now, old, target = 2 * torch.randn(3, 40, generator=generator, dtype=torch.float64)
    now.requires_grad_()
    loss = value_loss(now, old, target, 0.5)
    loss.sum().backward()
    step = 1e-6
    with torch.no_grad():
        up, down = (value_loss(now + h, old, target, 0.5) for h in (step, -step))
    torch.testing.assert_close(now.grad, (up - down) / (2 * step), rtol=1e-6, atol=1e-6)
    held = now.grad == 0
    assert 0 < int(held.sum()) < 40, "the clip must hold some"
    # It holds those that have moved towards the target by more than the clip.
    towards = ((now - old) * (target - old) > 0) & ((now - old).abs() > 0.5)
    assert bool(towards[held].all())


def told(model, batch: list[Sample], targets: Targets, lr: float, **more):
    critic = Critic(lr=more.pop("critic_lr", 0.1), clip=more.pop("clip", 1e9))
    optimizer = torch.optim.SGD(parameter_groups(model, lr, critic))
    return update(
        model, optimizer, batch, targets, critic, Loss(0.2, 0.0, 0.0),
        Batching(0, 100, more.pop("microbatch", 100), more.pop("max_grad_norm", math.inf),
                 torch.Generator()),
    )  # fmt: skip


def critic_model():
    """A model whose value head says something."""
    model = tiny()
    add_value_head(model)
    with torch.no_grad():
        model.value.weight.normal_(generator=torch.Generator().manual_seed(2))
        model.value.bias.fill_(0.5)
    return model


def test_the_head_is_the_models_and_starts_at_zero():
    model = tiny()
    add_value_head(model)
    assert {n for n, _ in model.named_parameters() if n.startswith("value.")} == {
        "value.weight", "value.bias"
    }  # fmt: skip
    assert sample_values(model, samples(5), 0, 2).tolist() == [0.0] * 5
    actor, head = parameter_groups(model, 1e-6, Critic())
    assert (actor["lr"], head["lr"]) == (1e-6, 1e-5)
    assert len(head["params"]) == 2
    assert len(actor["params"]) + 2 == len(list(model.parameters()))


@pytest.mark.parametrize("microbatch", [1, 3, 100])
def test_a_value_is_read_before_the_answer(microbatch):
    model, batch = critic_model(), samples(6)
    found = sample_values(model, batch, 0, microbatch)
    for sample, value in zip(batch, found, strict=True):
        out = model(input_ids=torch.tensor([sample.prompt]), output_hidden_states=True)
        expected = model.value(out.hidden_states[-1][0, -1]).item()
        assert value == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("microbatch", [1, 4, 100])
def test_the_critic_descends_its_mean_loss_and_leaves_the_policy_alone(microbatch):
    model, batch = critic_model(), samples(7)
    old = sample_values(model, batch, 0, 100)
    targets = Targets(np.zeros(7), np.linspace(-1, 2, 7), old)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    found = told(model, batch, targets, lr=1.0, microbatch=microbatch)
    error = old - targets.returns
    assert found["value_loss"] == pytest.approx(0.5 * float(np.mean(error**2)), rel=1e-4)
    for name, p in model.named_parameters():
        assert torch.equal(p, before[name]) != name.startswith("value."), name
    moved = float(model.value.bias.detach() - before["value.bias"])
    assert moved == pytest.approx(-0.1 * float(np.mean(error)), rel=1e-3)


def test_a_wrong_critic_does_not_shrink_the_policys_step():
    """Actor and critic are clipped each by itself."""
    steps = []
    for wrong in (0.0, 1e6):
        model, batch = critic_model(), samples(7)
        targets = Targets(np.linspace(-1, 1, 7), np.full(7, wrong), np.zeros(7))
        told(model, batch, targets, lr=1.0, max_grad_norm=0.1)
        steps.append([p.detach() for n, p in model.named_parameters() if "value" not in n])
    assert all(torch.equal(a, b) for a, b in zip(*steps, strict=True))


def test_judged_advantages_have_one_scale_and_returns_none():
    model = critic_model()
    played = rollout([[("a", 0.0), ("b", 10.0)], [("a", -3.0)], [("a", 1.0), ("b", 2.0)]], [0] * 3)
    targets = gae_targets(model, played, Critic(), 0, 2)
    assert float(targets.advantages.mean()) == pytest.approx(0.0, abs=1e-9)
    assert float(targets.advantages.std(ddof=1)) == pytest.approx(1.0)
    np.testing.assert_allclose(targets.returns, returns_to_go(played, 1.0), atol=1e-6)


@pytest.mark.parametrize("gamma, trace", [(0.9, 0.5), (0.5, 1.0), (1.0, 0.0), (0.8, 0.95)])
def test_a_critics_discount_and_trace_against_a_recursion(gamma: float, trace: float):
    """TD(λ)-returns from the last step back: G_t = r_t + γ ((1 − λ) V_{t+1} + λ G_{t+1})."""
    model = critic_model()
    steps = [[("a", 0.0), ("b", 10.0), ("c", -1.0)], [("a", -3.0)], [("a", 1.0), ("b", 2.0)]]
    played = rollout(steps, [0] * 3)
    targets = gae_targets(model, played, Critic(gamma=gamma, trace=trace), 0, 2)
    value = {(s.episode, s.step): targets.values[i] for i, s in enumerate(played.samples)}
    expected = {}
    for e, episode in enumerate(steps):
        after_value = after_return = 0.0
        for step in reversed(range(len(episode))):
            mixed = (1 - trace) * after_value + trace * after_return
            expected[e, step] = after_return = episode[step][1] + gamma * mixed
            after_value = value[e, step]
    found = {(s.episode, s.step): targets.returns[i] for i, s in enumerate(played.samples)}
    assert found == pytest.approx(expected, abs=1e-6)


@pytest.mark.slow
def test_it_learns_a_bandit():
    """Two questions with one right word each; the critic learns how often it is said."""
    model, right = tiny(6), {2: 4, 3: 5}
    add_value_head(model)
    critic = Critic(lr=0.02)
    optimizer = torch.optim.Adam(parameter_groups(model, 0.01, critic))
    generator = torch.Generator().manual_seed(0)
    sampler = HFSampler(model, [1], 0)
    prompts = [[2], [3]] * 16
    rates = []
    for _ in range(40):
        said = sampler.generate(prompts, 1, 1.0, generator)
        rewards = [float(a[0] == right[p[0]]) for p, a in zip(prompts, said.tokens, strict=True)]
        batch = [
            Sample(i, 0, prompts[i], said.tokens[i], said.logprobs[i], "", rewards[i])
            for i in range(len(prompts))
        ]
        nothing = [0] * len(batch)
        played = Rollout(batch, nothing, rewards, [False] * 32, nothing, [1] * 32, 0)
        targets = gae_targets(model, played, critic, 0, 32)
        update(
            model,
            optimizer,
            batch,
            targets,
            critic,
            Loss(0.2, 0.0, 0.0),
            Batching(0, 16, 8, 1.0, generator),
        )
        rates.append(float(np.mean(rewards)))
    assert np.mean(rates[:2]) < 0.5
    assert np.mean(rates[-5:]) > 0.95
    known = sample_values(model, [Sample(0, 0, [q], [right[q]], [], "") for q in right], 0, 2)
    assert known.tolist() == pytest.approx([1.0, 1.0], abs=0.2)


def test_the_head_travels_with_the_model():
    """What a client sends is by name; the head is in the state like any other tensor."""
    model = critic_model()
    other = tiny()
    add_value_head(other)
    other.load_state_dict(model.state_dict())
    batch = samples(4)
    np.testing.assert_array_equal(
        sample_values(other, batch, 0, 4), sample_values(model, batch, 0, 4)
    )
