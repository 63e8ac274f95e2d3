"""When Q-learners explore, update and sync, counted; and one update of our DQN beside PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("numba", reason="the Q-learners are compiled by numba (fedrl[classic])")

from fedrl.algorithms import distill, dqn, feddqn, fedqhd
from fedrl.algorithms import qhd_episodes as loop
from fedrl.algorithms import qhd_kernels as kernels
from fedrl.algorithms.dqn_episodes import run_episodes
from fedrl.envs.discrete import Settings as WorldSettings
from fedrl.envs.discrete import World
from fedrl.types import Job, UserError

RULES = kernels.Rules(0.9, 0.01, 5, 1, 0, 0, 1.0, 0.1, 500)
SHAPE = (3, 13, 10, 4)

# Closed forms


@pytest.mark.parametrize("start", [1.0, 0.6])
@pytest.mark.parametrize("length", [1, 7, 1000])
def test_epsilon_falls_in_a_straight_line(start, length):
    rules = RULES._replace(epsilon=start, epsilon_steps=length)
    counters, epsilon = np.zeros(kernels.COUNTERS, np.uint64), np.array([start])
    for step in (0, 1, 3, 6, 7, 8, 500, 999, 1000, 1001, 10**9):
        counters[kernels.STEPS] = step
        wanted = max(0.1, start - (start - 0.1) * step / length)
        assert loop.exploration(counters, epsilon, rules) == pytest.approx(wanted, rel=1e-14)
        assert epsilon[0] == loop.exploration(counters, epsilon, rules)


def test_before_learning_starts_every_action_is_random():
    rules = RULES._replace(epsilon=0.3, epsilon_steps=100, learning_starts=50)
    counters, epsilon = np.zeros(kernels.COUNTERS, np.uint64), np.array([0.3])
    found = []
    for step in (0, 49, 50):
        counters[kernels.STEPS] = step
        found.append(loop.exploration(counters, epsilon, rules))
    assert found == pytest.approx([1, 1, 0.2])


def expected(steps: int, rules: kernels.Rules, replay: int) -> int:
    """Updates after so many steps."""
    times = range(1, steps + 1)
    due = [t % rules.train_every == 0 and t > rules.learning_starts for t in times]
    return rules.gradient_steps * sum(
        d and min(t, replay) >= rules.batch for d, t in zip(due, times)
    )


CHANGES = pytest.mark.parametrize(
    "change",
    [
        {},
        {"train_every": 16, "gradient_steps": 8},
        {"train_every": 3, "gradient_steps": 2, "learning_starts": 40},
        {"learning_starts": 41},
        {"learning_starts": 100_000},
        {"gradient_steps": 0},
    ],
    ids=["usual", "every 16", "every 3 from 40", "from 41", "never", "no update"],
)
SMALL = {"episodes": 6, "replay": 200, "eval_episodes": 1, "epsilon": 0.0, "epsilon_floor": 0.0}


@CHANGES
@pytest.mark.parametrize("name", ["fedqhd", "feddqn", "distill-dqn"])
def test_updates_and_draws_are_counted_exactly(name, change):
    """Every random number is accounted for, so an action too many or too few would show.

    An episode's start draws 4, a step 1 and, if random, 1 more, an update its batch. With ε = 0
    just the steps before learning starts are random.
    """
    world = World(WorldSettings("cartpole-v1"), 1, 0)
    fields = SMALL | change
    if name == "fedqhd":
        method = fedqhd.FedQHD(fedqhd.Settings(features=30, **fields), world, [[0]])
    elif name == "feddqn":
        method = feddqn.FedDQN(feddqn.Settings(hidden=(8, 8), **fields), world, [[0]])
    else:
        wanted = distill.Settings(hidden=(8, 8), anchors=10, **fields)
        method = distill.Distillation(wanted, world, [[0]])
    result = method.local(Job(0, method.broadcast(method.init(1), 1), None, 3))
    counters, settings = result.state["counters"], method.settings
    rules = settings.rules(settings.lr, settings.batch, world.limit)
    steps = int(result.metrics["env/steps"])
    updates = expected(steps, rules, settings.replay)
    assert steps > 45
    assert counters[kernels.STEPS] == steps
    assert counters[kernels.UPDATES] == updates
    random = min(steps, settings.learning_starts)
    assert counters[kernels.DRAWS] == 4 * 6 + steps + random + updates * settings.batch


@pytest.mark.parametrize("period", [1, 10, 37])
def test_targets_are_synced_just_then(period):
    """With updates at every step, the target is what the online weights were at the last sync."""
    world = World(WorldSettings("mountaincar-v0"), 1, 0)
    shape = (2, 8, 8, 3)
    first = dqn.draw_weights(shape, 0)
    online, targets = {0: first}, set()
    for steps in range(1, 100):  # an episode that is cut then
        learner = dqn.fresh(shape, first, 500, 5)
        run_episodes(world, 1, shape, learner, RULES._replace(sync_steps=period, limit=steps), 0)
        online[steps] = learner.online
        assert np.array_equal(learner.target, online[steps // period * period]), steps
        targets.add(learner.target.tobytes())
    too_early = (RULES.batch - 1) // period  # syncs before the weights had moved
    assert len(targets) == 1 + 99 // period - too_early


@pytest.mark.parametrize("settings", [fedqhd.Settings, feddqn.Settings, distill.Settings])
@pytest.mark.parametrize(
    "wrong",
    [
        {"train_every": 0},
        {"gradient_steps": -1},
        {"learning_starts": -1},
        {"epsilon_steps": -1},
        {"huber": -1.0},
        {"max_grad_norm": -0.5},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_mistakes_name_their_key(settings, wrong):
    with pytest.raises(UserError, match=f"algorithm.{next(iter(wrong))} is"):
        settings(**wrong)


# One update beside PyTorch's, as Stable-Baselines3 writes it


def filled() -> dqn.Learner:
    random = np.random.default_rng(3)
    learner = dqn.fresh(SHAPE, dqn.draw_weights(SHAPE, 1), 40, 7)
    learner.target[:] = dqn.draw_weights(SHAPE, 2)
    learner.states[:] = random.normal(size=(40, 3))
    learner.nexts[:] = random.normal(size=(40, 3))
    learner.rewards[:] = 3 * random.normal(size=40)
    learner.actions[:] = random.integers(4, size=40)
    learner.terminal[::3] = True
    return learner


def torch_network(torch, weights: np.ndarray):
    w1, b1, w2, b2, w3, b3 = (part.copy() for part in dqn.layers(weights, SHAPE))
    layers = [torch.nn.Linear(3, 13), torch.nn.Linear(13, 10), torch.nn.Linear(10, 4)]
    for layer, weight, bias in zip(layers, (w1.T, w2.T, w3), (b1, b2, b3)):
        layer.weight.data = torch.tensor(np.ascontiguousarray(weight))
        layer.bias.data = torch.tensor(bias)
    relu = torch.nn.ReLU()
    return torch.nn.Sequential(layers[0], relu, layers[1], relu, layers[2])


def as_vector(network) -> np.ndarray:
    one, two, three = network[0], network[2], network[4]
    parts = [one.weight.T, one.bias, two.weight.T, two.bias, three.weight, three.bias]
    return np.concatenate([part.detach().numpy().reshape(-1) for part in parts])


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("huber", [1.0, 0.0])
@pytest.mark.parametrize("bound", [10.0, 0.05, 0.0])
def test_updates_are_those_of_pytorch(double, huber, bound):
    """Huber or squared loss, clipping by the norm of all, Adam: four steps, within 1e-6."""
    torch = pytest.importorskip("torch", reason="PyTorch is the reference")
    learner, random = filled(), np.random.default_rng(1)
    online, target = (torch_network(torch, w) for w in (learner.online, learner.target))
    optimizer = torch.optim.Adam(online.parameters(), lr=1e-3)
    rules = RULES._replace(lr=1e-3, double=double, huber=huber, max_grad_norm=bound, batch=8)
    work, norms = dqn.work(SHAPE, 8), []
    for _ in range(4):
        work.picks[:] = random.integers(40, size=8)
        dqn.td_update(learner, SHAPE, rules, work)
        x, ahead = (torch.tensor(a[work.picks]) for a in (learner.states, learner.nexts))
        taken = torch.tensor(learner.actions[work.picks])[:, None]
        with torch.no_grad():
            chooser = online if double else target
            value = target(ahead).gather(1, chooser(ahead).argmax(1, keepdim=True))[:, 0]
            going_on = torch.tensor(~learner.terminal[work.picks])
            goal = torch.tensor(learner.rewards[work.picks]) + 0.9 * going_on * value
        q = online(x).gather(1, taken)[:, 0]
        loss = (
            torch.nn.functional.smooth_l1_loss(q, goal, beta=huber)
            if huber
            else 0.5 * torch.nn.functional.mse_loss(q, goal)
        )
        optimizer.zero_grad()
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(online.parameters(), bound or 1e9)))
        optimizer.step()
        np.testing.assert_allclose(learner.online, as_vector(online), atol=1e-6, rtol=0)
    assert min(norms) > 0.05  # the small bound bites, the large one does not
    assert max(norms) < 10
    assert np.abs(learner.online - dqn.draw_weights(SHAPE, 1)).max() > 1e-3


def test_the_bound_shortens_and_does_not_turn():
    """Adam hides the length of a first gradient, so it is read from Adam's own mean."""
    found = []
    for bound in (0.0, 0.05):
        learner, work = filled(), dqn.work(SHAPE, 8)
        work.picks[:] = range(8)
        dqn.td_update(learner, SHAPE, RULES._replace(batch=8, max_grad_norm=bound), work)
        found.append(learner.first / 0.1)
    free, bounded = found
    assert np.linalg.norm(free) > 0.05
    assert np.linalg.norm(bounded) == pytest.approx(0.05, rel=1e-5)
    np.testing.assert_allclose(bounded * np.linalg.norm(free) / 0.05, free, atol=1e-6)
