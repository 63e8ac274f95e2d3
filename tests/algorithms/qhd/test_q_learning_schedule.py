"""When Q-learners explore, update and sync, counted; and one update of our DQN beside PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("numba", reason="the Q-learners are compiled by numba (fedrl[classic])")

from fedrl.algorithms.qhd import fedqhd
from fedrl.algorithms.qhd import q_learning_kernels as q_learner
from fedrl.algorithms.qhd.dqn import distillation, feddqn
from fedrl.algorithms.qhd.dqn import network as dqn
from fedrl.algorithms.qhd.dqn.episodes import run_episodes
from fedrl.algorithms.qhd.q_learning import round_report
from fedrl.algorithms.qhd.q_learning_kernels import Rules
from fedrl.core.types import Job, UserError
from fedrl.envs.discrete.worlds import Settings as WorldSettings
from fedrl.envs.discrete.worlds import World

RULES = Rules(0.9, 0.01, 5, 1, 0, 0, 1.0, 0.1, 500)
SHAPE = (3, 13, 10, 4)

# Closed forms


@pytest.mark.parametrize("start", [1.0, 0.6])
@pytest.mark.parametrize("length", [1, 7, 1000])
def test_epsilon_falls_in_a_straight_line(start, length):
    rules = RULES._replace(epsilon=start, epsilon_steps=length)
    counters, epsilon = np.zeros(q_learner.COUNTERS, np.uint64), np.array([start])
    for step in (0, 1, 3, 6, 7, 8, 500, 999, 1000, 1001, 10**9):
        counters[q_learner.STEPS] = step
        wanted = max(0.1, start - (start - 0.1) * step / length)
        assert q_learner.exploration(counters, epsilon, rules) == pytest.approx(wanted, rel=1e-14)
        assert epsilon[0] == q_learner.exploration(counters, epsilon, rules)


def test_before_learning_starts_every_action_is_random():
    rules = RULES._replace(epsilon=0.3, epsilon_steps=100, learning_starts=50)
    counters, epsilon = np.zeros(q_learner.COUNTERS, np.uint64), np.array([0.3])
    found = []
    for step in (0, 49, 50):
        counters[q_learner.STEPS] = step
        found.append(q_learner.exploration(counters, epsilon, rules))
    assert found == pytest.approx([1, 1, 0.2])


def expected(steps: int, rules: Rules, replay: int) -> int:
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


@pytest.mark.slow
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
        wanted = distillation.Settings(hidden=(8, 8), anchors=10, **fields)
        method = distillation.Distillation(wanted, world, [[0]])
    result = method.local(Job(0, method.broadcast(method.init(1), 1), None, 3))
    counters, settings = result.state["counters"], method.settings
    rules = settings.rules(settings.lr, settings.batch, world.limit)
    steps = int(result.metrics["env/steps"])
    updates = expected(steps, rules, settings.replay)
    assert steps > 45
    assert counters[q_learner.STEPS] == steps
    assert counters[q_learner.UPDATES] == updates
    random = min(steps, settings.learning_starts)
    assert counters[q_learner.DRAWS] == 4 * 6 + steps + random + updates * settings.batch


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


@pytest.mark.slow
def test_the_networks_targets_stay_long_enough_to_be_learned():
    """2,000 transitions of random play, updates alone: no value can be above 1 / (1 - γ) = 100.

    Targets that move after every 45 updates run away: the network is still on its way to the last
    ones. In PyTorch the same happens. The default's do not, and 8 of them make about 8 steps of
    value iteration.
    """
    world, shape = World(WorldSettings("cartpole-v1"), 1, 0), (4, 128, 128, 2)
    usual = feddqn.Settings(lr=1e-4)
    found = []
    for period in (usual.sync_steps or 9 * usual.sync_episodes, 45):
        rules = usual.rules(usual.lr, usual.batch, world.limit)
        work = dqn.work(shape, 32)
        played = dqn.fresh(shape, dqn.draw_weights(shape, 0), 2000, 1)
        random = rules._replace(lr=0.0, epsilon_decay=1.0, epsilon_floor=1.0)
        run_episodes(world, 100, shape, played, random, 0)
        fresh = dqn.fresh(shape, played.online, 1, 1)
        learner = played._replace(online=fresh.online, first=fresh.first, second=fresh.second)
        learner.counters[q_learner.UPDATES] = 0
        assert learner.counters[q_learner.SIZE] == 2000
        for update in range(1, 4001):
            q_learner.pick(learner.counters, work.picks)
            dqn.td_update(learner, shape, rules, work)
            if update % period == 0:
                learner.target[:] = learner.online
        h1, h2, q = (np.empty((2000, units), np.float32) for units in shape[1:])
        dqn.values(learner.online, shape, learner.states, h1, h2, q)
        found.append(np.median(q.max(1)))
    assert found[0] == pytest.approx((1 - 0.99**8) / 0.01, rel=0.1)
    assert found[1] > 300


@pytest.mark.parametrize("settings", [fedqhd.Settings, feddqn.Settings, distillation.Settings])
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


def torch_network(torch, weights: np.ndarray, shape: dqn.Shape = SHAPE):
    d, h1, h2, actions = shape
    w1, b1, w2, b2, w3, b3 = (part.copy() for part in dqn.layers(weights, shape))
    layers = [torch.nn.Linear(d, h1), torch.nn.Linear(h1, h2), torch.nn.Linear(h2, actions)]
    for layer, weight, bias in zip(layers, (w1.T, w2.T, w3), (b1, b2, b3)):
        layer.weight.data = torch.tensor(np.ascontiguousarray(weight))
        layer.bias.data = torch.tensor(bias)
    relu = torch.nn.ReLU()
    return torch.nn.Sequential(layers[0], relu, layers[1], relu, layers[2])


def as_vector(network) -> np.ndarray:
    one, two, three = network[0], network[2], network[4]
    parts = [one.weight.T, one.bias, two.weight.T, two.bias, three.weight, three.bias]
    return np.concatenate([part.detach().numpy().reshape(-1) for part in parts])


def torch_update(torch, online, target, optimizer, replay, picks, rules: Rules) -> float:
    """One update on the replay's `picks`; returns the gradient's norm before it was bounded."""
    x, ahead = (torch.tensor(array[picks]) for array in (replay.states, replay.nexts))
    taken = torch.tensor(replay.actions[picks])[:, None]
    with torch.no_grad():
        chooser = online if rules.double else target
        value = target(ahead).gather(1, chooser(ahead).argmax(1, keepdim=True))[:, 0]
        going_on = torch.tensor(~replay.terminal[picks])
        goal = torch.tensor(replay.rewards[picks]) + rules.gamma * going_on * value
    q = online(x).gather(1, taken)[:, 0]
    loss = (
        torch.nn.functional.smooth_l1_loss(q, goal, beta=rules.huber)
        if rules.huber
        else 0.5 * torch.nn.functional.mse_loss(q, goal)
    )
    optimizer.zero_grad()
    loss.backward()
    bound = rules.max_grad_norm or 1e9
    norm = float(torch.nn.utils.clip_grad_norm_(online.parameters(), bound))
    optimizer.step()
    return norm


@pytest.mark.slow
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
        norms.append(torch_update(torch, online, target, optimizer, learner, work.picks, rules))
        np.testing.assert_allclose(learner.online, as_vector(online), atol=1e-6, rtol=0)
    assert min(norms) > 0.05  # the small bound bites, the large one does not
    assert max(norms) < 10
    assert np.abs(learner.online - dqn.draw_weights(SHAPE, 1)).max() > 1e-3


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_run_is_the_loop_of_stable_baselines3():
    """Its order of things in PyTorch, on Gymnasium's CartPole and our random numbers.

    Collect `train_freq` steps with the weights as they are, syncing every `target_update_interval`
    steps; then, after `learning_starts`, a burst of `gradient_steps`. Episodes go on across bursts.
    The same actions and transitions throughout, and the same weights but for rounding.
    """
    torch = pytest.importorskip("torch", reason="PyTorch is the reference")
    gymnasium = pytest.importorskip("gymnasium", reason="Gymnasium's own world is the reference")
    world = World(WorldSettings("cartpole-v1", shift=(0.0,) * 4, scale=(1.0,) * 4), 1, 0)
    shape, first = (4, 32, 32, 2), dqn.draw_weights((4, 32, 32, 2), 3)
    rules = Rules(
        0.99, 2.3e-3, 16, 20, 10, 0, 1.0, 0.04, 500, train_every=64, learning_starts=100,
        epsilon_steps=400, double=False, huber=1.0, max_grad_norm=10.0,
    )  # fmt: skip
    ours = dqn.fresh(shape, first, 5000, 11)
    run_episodes(world, 40, shape, ours, rules, 0)
    steps = int(ours.counters[q_learner.STEPS])

    numbers = np.zeros(q_learner.COUNTERS, np.uint64)
    numbers[q_learner.SEED] = 11
    uniform = lambda: (int(q_learner.draw(numbers)) >> 11) * 2.0**-53  # noqa: E731
    below = lambda bound: (int(q_learner.draw(numbers)) >> 32) * bound >> 32  # noqa: E731
    online, target = torch_network(torch, first, shape), torch_network(torch, first, shape)
    optimizer = torch.optim.Adam(online.parameters(), lr=2.3e-3)
    theirs = dqn.fresh(shape, first, 5000, 11)
    env = gymnasium.make("CartPole-v1").unwrapped
    seen, length = None, 0
    for step in range(1, steps + 1):
        if seen is None:
            env.reset(seed=0)
            env.state = np.array([-0.05 + 0.1 * uniform() for _ in range(4)])
            seen, length = env.state.astype(np.float32), 0
        rate = 1.0 if step <= 100 else max(0.04, 1 - 0.96 * (step - 1) / 400)
        explores = uniform() < rate
        action = below(2) if explores else int(online(torch.tensor(seen)[None]).argmax())
        ahead, reward, terminated, _, _ = env.step(action)
        length += 1
        q_learner.remember(theirs, seen, action, reward, ahead, terminated)
        seen = None if terminated or length == 500 else ahead
        if step % 10 == 0:
            target.load_state_dict(online.state_dict())
        if step % 64 == 0 and step > 100:
            for _ in range(20):
                picks = np.array([below(step) for _ in range(16)])
                torch_update(torch, online, target, optimizer, theirs, picks, rules)
    assert steps > 400
    for name in ("states", "actions", "rewards", "nexts", "terminal"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name), err_msg=name)
    assert ours.counters[q_learner.DRAWS] == numbers[q_learner.DRAWS]
    assert ours.counters[q_learner.UPDATES] == 20 * (steps // 64 - 1)
    np.testing.assert_allclose(ours.online, as_vector(online), atol=1e-3)
    assert np.abs(ours.online - first).max() > 0.1


def test_the_last_of_a_rounds_episodes_are_told_of_if_asked_for():
    job, returns, lengths = Job(0, {}, None, 0), np.arange(10.0), np.ones(10)
    assert "train/return_recent" not in round_report(job, returns, lengths)[1]
    assert round_report(job, returns, lengths, 4)[1]["train/return_recent"] == 7.5
