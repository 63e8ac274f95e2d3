"""The momentum family: what must be equal is equal, to the last bit where the paper says so."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.rounds import Memory, same

from fedrl.aggregation import mean as aggregate
from fedrl.algorithms.classics.fednova import FedNova
from fedrl.algorithms.classics.fedpg_br import FedPGBR
from fedrl.algorithms.classics.fedprox import FedProx
from fedrl.algorithms.classics.scaffold import Scaffold
from fedrl.algorithms.momentum.algorithm import Momentum, Settings
from fedrl.algorithms.momentum.batched_seeds import run_seeds
from fedrl.algorithms.policy_gradient.gradient_estimators import gradient, per_step, rewards_to_go
from fedrl.algorithms.policy_gradient.runners import Start, steps
from fedrl.algorithms.policy_gradient.runners.jax_worlds import keys_from
from fedrl.core import seeding, tree
from fedrl.core.types import Job, UserError
from fedrl.engines.in_process import InProcess
from fedrl.envs.control import cartpole, mujoco, random_mdp
from fedrl.envs.interfaces import Trajectories
from fedrl.federation import client_sampling, round_loop

BASE = Settings(beta=0.3, local_steps=3, lr=0.01, return_scale=0.01, eval_episodes=2)
TABULAR = Settings(beta=0.3, local_steps=3, lr=0.05)


def make(kind: str, clients: int = 3, seed: int = 0):
    if kind == "cartpole":
        return cartpole.World(cartpole.Settings(horizon=20, length_spread=0.4), clients, seed)
    if kind == "random_mdp":
        return random_mdp.World(random_mdp.Settings(horizon=20, kappa=1.0), clients, seed)
    return mujoco.World(mujoco.Settings(name="hopper", horizon=8), clients, seed)


def settings_for(kind: str, **fields):
    return replace(TABULAR if kind == "random_mdp" else BASE, **fields)


WORLDS = ["cartpole", "random_mdp", "hopper"]


def algorithm(kind: str, clients: int = 3, rounds: int = 3, **fields) -> Momentum:
    pools = [[i] for i in range(clients)]
    return Momentum(settings_for(kind, **fields), make(kind, clients), rounds, pools)


ORDERED = {kind: algorithm(kind) for kind in ("random_mdp", "cartpole")}


def played(method: Momentum, rounds: int = 3, clients: int = 3, **fields) -> Memory:
    store = Memory()
    round_loop.run(
        client_sampling.Settings(clients=clients, **fields),
        method,
        InProcess(method),
        aggregate.mean,
        store,
        seed=5,
        rounds=rounds,
    )
    return store


@pytest.mark.slow
@pytest.mark.parametrize("kind", WORLDS)
@pytest.mark.parametrize("name", ["fedsvrpg-m", "fedhapg-m"])
def test_many_clients_at_once_equal_one_by_one(kind, name):
    method = algorithm(kind, name=name)
    state = played(method, rounds=2).last.states[0]
    sent = method.broadcast(state, 3)
    jobs = [Job(c, sent, None, seeding.derive(1, "local", 3, c)) for c in range(3)]
    for job, together in zip(jobs, method.local_many(jobs)):
        alone = method.local(job)
        for leaf in alone.update:
            np.testing.assert_allclose(
                together.update[leaf], alone.update[leaf], rtol=2e-4, atol=2e-7
            )


@settings(max_examples=10, deadline=None)
@given(st.permutations(range(3)))
def test_results_do_not_depend_on_the_order_of_clients(order):
    """The compiled call, given its clients in any order; the table kernel to the last bit."""
    for kind, method in ORDERED.items():
        sent = method.broadcast(method.init(0), 0)
        jobs = [Job(c, sent, None, 100 + c) for c in range(3)]
        plain = {r.client: r for r in method.local_many(jobs)}
        mixed = {r.client: r for r in method.local_many([jobs[i] for i in order])}
        for client in range(3):
            for leaf, value in plain[client].update.items():
                exact = 0 if kind == "random_mdp" else 1e-5
                np.testing.assert_allclose(
                    mixed[client].update[leaf], value, rtol=exact, atol=exact
                )


@pytest.mark.slow
@pytest.mark.parametrize("kind", WORLDS)
def test_beta_one_is_pavg_to_the_last_bit(kind):
    """β = 1 reads neither u_r nor θ_{r-1}, and takes no opening round."""
    one = algorithm(kind, beta=1.0)
    assert not one.initial_exchange
    base = played(algorithm(kind, name="pavg", beta=1.0))
    same(played(one).last.states[0], base.last.states[0])
    job = Job(0, one.broadcast(base.last.states[0], 3), None, 11)
    assert set(job.broadcast) == {"round", "theta"}
    noise = tree.map(lambda x: x + 7.0, base.last.states[0]["theta"])
    strange = {**job.broadcast, "previous": noise, "direction": noise}
    same(one.local(job).update, one.local(replace(job, broadcast=strange)).update)


@pytest.mark.slow
@pytest.mark.parametrize("kind", WORLDS)
@pytest.mark.parametrize("name", ["fedsvrpg-m", "fedhapg-m"])
def test_identical_clients_with_one_seed_equal_one_client(kind, name):
    """N copies of one client (same world, same randomness) average to that client."""
    method = algorithm(kind, clients=1, name=name)
    state, many = method.init(0), method.init(0)
    for number in range(3):
        seed = seeding.derive(0, "local", number)
        alone = method.local(Job(0, method.broadcast(state, number), None, seed))
        state = method.step(state, aggregate.mean([(alone.update, 1.0)]), number)
        copies = [
            method.local(Job(0, method.broadcast(many, number), None, seed)) for _ in range(4)
        ]
        many = method.step(many, aggregate.mean((c.update, 1.0) for c in copies), number)
    same(state, many)


@pytest.mark.slow
@pytest.mark.parametrize("kind", WORLDS)
@pytest.mark.parametrize(
    ("name", "beta"), [("fedsvrpg-m", 0.3), ("fedhapg-m", 0.8), ("fedhapg-m", 1.0), ("pavg", 1.0)]
)
def test_sweep_over_seeds_equals_the_round_loop(kind, name, beta):
    chosen = settings_for(kind, name=name, beta=beta)
    curves = list(run_seeds(chosen, lambda seed: make(kind, 3, seed), [5, 6], 3))
    store = played(Momentum(chosen, make(kind, 3, 5), 3, [[0], [1], [2]]))
    for (number, metrics), done in zip(curves, store.rounds, strict=True):
        assert number == done.round
        for name in ("eval/return", "train/return", "env/steps", "train/weight_mean"):
            if name in done.metrics:
                np.testing.assert_allclose(metrics[name][0], done.metrics[name], rtol=2e-3)


@pytest.mark.slow
def test_steps_shorten_with_the_gradients_seen():
    """Two steps by hand, with one batch: θ moves by η_k g, and Δ is ηK times their mean."""
    w, factor, lr = 2.0, 5.0, 0.01
    fields = {"adaptive_offset": w, "adaptive_factor": factor, "server_lr": 0.02}
    fields |= {"local_steps": 2, "return_scale": 1.0}
    method = algorithm("cartpole", 1, name="pavg", beta=1.0, lr=lr, **fields)
    theta = tree.map(lambda x: x[None], method.init(3)["theta"])
    start = Start(theta, {}, {})
    keys = keys_from(np.array([4], np.uint64))
    params = tree.map(lambda x: x[None], method.world.params([0]))
    batch = method.runner._sample(theta, params, keys, 1)
    policy, gamma, now = method.runner.policy, method.world.gamma, theta
    carried = steps.at_first(method, 1)
    for k in range(2):
        now, carried, _ = steps.local_step(
            method, policy, gamma, start, now, now, k, batch, carried, lr
        )
    update, _ = steps.finished(method, start, now, carried, 1)

    psi = rewards_to_go(batch.rewards[0], batch.mask[0], gamma)
    one = Trajectories(*(x[0] for x in batch))
    here, total, taken = tree.map(lambda x: x[0], theta), 0.0, 0.0
    for _ in range(2):
        g = gradient(policy, here, one, psi)
        total += sum(float((leaf**2).sum()) for leaf in g.values())
        eta = lr / (w + factor * total) ** (1 / 3)
        here, taken = {n: x + eta * g[n] for n, x in here.items()}, taken + eta
    assert taken < 2 * lr * w ** (-1 / 3)
    for name, leaf in here.items():
        np.testing.assert_allclose(now[name][0], leaf, rtol=1e-5, atol=1e-7)
        mean = (leaf - theta[name][0]) / taken
        np.testing.assert_allclose(update[name][0], 2 * lr * mean, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["cartpole", "hopper"])
@pytest.mark.parametrize("name", ["fedsvrpg-m", "fedhapg-m"])
def test_steps_that_nothing_shortens_are_constant(kind, name):
    plain = played(algorithm(kind, name=name, server_lr=0.02))
    fields = {"adaptive_offset": 1.0, "adaptive_factor": 0.0}
    other = played(algorithm(kind, name=name, server_lr=0.02, **fields))
    for leaf in plain.last.states[0]["theta"]:
        a, b = (one.last.states[0]["theta"][leaf] for one in (plain, other))
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-6)


def test_a_gradient_per_step_is_the_sum_by_the_mean_length():
    mask = np.array([[1.0, 1.0, 1.0, 0.0], [1.0, 0.0, 0.0, 0.0]], np.float32)
    psi = np.arange(8, dtype=np.float32).reshape(2, 4)
    np.testing.assert_allclose(per_step(psi, mask), psi / 2.0)  # (3 + 1) steps, two trajectories


@pytest.mark.slow
@pytest.mark.parametrize(
    "method, fields",
    [
        (Scaffold, {}),
        (FedProx, {"mu": 0.5}),
        (FedNova, {"client_steps": (1, 2, 6)}),
    ],
)
def test_seeds_of_other_methods_run_side_by_side(method, fields):
    chosen = method.Settings(local_steps=3, lr=0.01, return_scale=0.01, eval_episodes=2, **fields)
    curves = list(run_seeds(chosen, lambda seed: make("cartpole", 3, seed), [5, 6], 3, 1, method))
    store = played(method(chosen, make("cartpole", 3, 5), 3, [[0], [1], [2]]))
    for (_, metrics), done in zip(curves, store.rounds, strict=True):
        for name in ("eval/return", "train/return", "env/steps"):
            if name in done.metrics:
                np.testing.assert_allclose(metrics[name][0], done.metrics[name], rtol=2e-3)


def test_server_step_is_the_papers():
    method = algorithm("random_mdp")
    state = method.init(0)
    mean = {"logits": np.random.default_rng(0).standard_normal((5, 5))}
    opened = method.step(state, mean, 0)
    same(opened["direction"], mean)  # u_0
    same(opened["theta"], state["theta"])
    moved = method.step(opened, mean, 1)
    u = mean["logits"] / (0.05 * 3)
    np.testing.assert_allclose(moved["direction"]["logits"], u)
    np.testing.assert_allclose(moved["theta"]["logits"], 0.05 * 3 * u)  # λ = ηK by default
    same(moved["previous"], opened["theta"])


def test_initial_batch_is_the_papers():
    assert algorithm("random_mdp", beta=0.1, local_steps=32, rounds=6).initial_batch == 534
    assert algorithm("random_mdp", beta=0.5, local_steps=32, rounds=60).initial_batch == 3


def test_only_a_change_of_theta_leaves_a_client():
    method = algorithm("cartpole")
    result = method.local(Job(1, method.broadcast(method.init(0), 0), None, 3))
    assert set(result.update) == set(method.init(0)["theta"])
    assert {"returns"} == set(result.state)  # stays with the client


@pytest.mark.slow
def test_last_hundred_returns_follow_the_client():
    method = algorithm("cartpole", local_steps=60)
    sent = method.broadcast(method.init(0), 1) | {"round": 1}
    first = method.local(Job(0, sent, None, 1))
    second = method.local(Job(0, sent, first.state, 2))
    assert len(first.state["returns"]) == 60
    assert len(second.state["returns"]) == 100
    np.testing.assert_array_equal(second.state["returns"][:40], first.state["returns"][20:])
    assert second.metrics["train/return_last100"] == pytest.approx(second.state["returns"].mean())


def test_standard_errors_shrink_with_trajectories():
    """More trajectories per local step: the same expectation, less variance."""
    few, many = (algorithm("random_mdp", trajectories=m, local_steps=1) for m in (1, 16))
    sent = few.broadcast(few.init(0), 0)
    spread = []
    for method in (few, many):
        job = Job(
            0, {**sent, "round": 1, "previous": sent["theta"], "direction": sent["theta"]}, None, 0
        )
        draws = [method.local(replace(job, seed=i)).update["logits"] for i in range(200)]
        spread.append(np.var(draws, axis=0).sum())
    assert 8 < spread[0] / spread[1] < 32


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["cartpole", "hopper"])
def test_a_capped_direction_bounds_the_clients_step(kind):
    method = algorithm(kind, beta=1.0, direction_clip=0.001)
    update = method.local(Job(0, method.broadcast(method.init(0), 1), None, 3)).update
    length = np.sqrt(sum((leaf.astype(float) ** 2).sum() for leaf in update.values()))
    assert 0 < length <= 3 * 0.01 * 0.001 * 1.01  # K η cap


@pytest.mark.slow
@pytest.mark.parametrize("server", ["momentum", "adam"])
def test_server_optimisers_keep_their_state(server):
    store = played(algorithm("cartpole", server_optimizer=server))
    flat = tree.flatten(store.last.states[0])
    assert any(name.startswith("optimizer.") for name in flat)
    plain = played(algorithm("cartpole"))
    assert not np.allclose(flat["theta/w0"], plain.last.states[0]["theta"]["w0"])


@pytest.mark.slow
def test_centralized_draws_from_every_environment():
    world = make("cartpole", 3)
    method = Momentum(BASE, world, 3, [[0, 1, 2]])
    store = played(method, clients=3, kind="centralized")
    assert store.rounds[-1].metrics["cohort/size"] == 1
    # Each of the three environments behind the one client is drawn: the starts tell which.
    spread = cartpole.World(cartpole.Settings(initial=0.001, initial_spread=0.999), 3, 0)
    pooled, alone = (Momentum(BASE, spread, 3, [pool]) for pool in ([0, 1, 2], [0]))
    jobs = [Job(0, pooled.broadcast(pooled.init(0), 0), None, seed) for seed in range(20)]
    same_as_first = [
        np.allclose(pooled.local(job).update["w2"], alone.local(job).update["w2"]) for job in jobs
    ]
    assert not all(same_as_first)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"beta": 0.0}, "algorithm.beta"),
        ({"beta": 1.1}, "algorithm.beta"),
        ({"name": "pavg", "beta": 0.5}, "algorithm.beta = 1.0"),
        ({"local_steps": 0}, "algorithm.local_steps"),
        ({"lr": 0.0}, "algorithm.lr"),
        ({"weight_clip": -1.0}, "algorithm.weight_clip"),
        ({"adaptive_offset": -1.0, "server_lr": 1.0}, "algorithm.adaptive_offset"),
        ({"adaptive_offset": 1.0}, "set algorithm.server_lr"),
        ({"policy": "direct", "name": "fedhapg-m"}, "twice differentiable"),
    ],
)
def test_impossible_settings(fields, words):
    with pytest.raises(UserError, match=words):
        Settings(**fields)


def test_settings_that_a_world_cannot_read_are_refused():
    with pytest.raises(UserError, match="tabular"):
        algorithm("cartpole", policy="direct")
    with pytest.raises(UserError, match="standardize"):
        algorithm("random_mdp", standardize=True)
    with pytest.raises(UserError, match="adaptive_offset"):
        algorithm("random_mdp", adaptive_offset=1.0, server_lr=0.1)
    with pytest.raises(UserError, match="one by one"):
        list(
            run_seeds(
                FedPGBR.Settings(), lambda seed: make("cartpole", 3, seed), [5], 1, 1, FedPGBR
            )
        )


class Corridor:
    """A host's world with discrete actions: of three, one pays, another in each of two rooms."""

    continuous = False
    observation_size, action_size, horizon, gamma = 2, 3, 6, 0.9

    def __init__(self, clients: int) -> None:
        self.clients = clients

    def params(self, clients):
        return {"client": np.array(clients, np.int64)}

    def rollout(self, act, params, seeds):
        batch, steps = len(seeds), self.horizon
        randoms = [np.random.default_rng(int(seed)) for seed in seeds]
        room = np.stack([random.integers(2, size=steps) for random in randoms])
        noise = np.stack([random.random(steps, np.float32) for random in randoms])
        observations = np.eye(2, dtype=np.float32)[room]
        actions = np.stack(
            [act(observations[:, t], noise[:, t], np.arange(batch)) for t in range(steps)], 1
        )
        rewards = (actions == 2 * room).astype(np.float32)
        return mujoco.Trajectories(observations, actions, rewards, np.ones_like(rewards))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pavg", "fedsvrpg-m", "fedhapg-m"])
def test_a_hosts_world_may_have_discrete_actions(name):
    wanted = Settings(
        name=name, beta=1.0 if name == "pavg" else 0.5, lr=0.3, local_steps=4,
        trajectories=8, eval_episodes=50,
    )  # fmt: skip
    method = Momentum(wanted, Corridor(2), 30, [[0], [1]])
    state = played(method, rounds=30, clients=2).last.states[0]
    before = method.evaluate([method.init(5)], [[0, 1]], 0, 1)["eval/return"]
    after = method.evaluate([state], [[0, 1]], 30, 1)["eval/return"]
    assert before == pytest.approx(2.0, abs=0.3)  # a third of six steps
    assert after > 3.0


@pytest.mark.slow
def test_discrete_actions_on_the_host_are_those_of_jax():
    """The same noise gives the same action, and every action comes as often as it is likely."""
    from fedrl.algorithms.policy_gradient.policies import categorical_mlp

    policy, random = categorical_mlp(2, 3), np.random.default_rng(0)
    theta = {n: x + random.normal(size=x.shape).astype("f4") for n, x in policy.init(3).items()}
    count = 20_000
    x = np.repeat(random.normal(size=(1, 2)).astype(np.float32), count, 0)
    uniform = random.random(count, np.float32)
    rows = {name: np.repeat(leaf[None], count, 0) for name, leaf in theta.items()}
    found = policy.sample_rows(rows, x, uniform)
    columns = {name: np.moveaxis(leaf, 0, -1) for name, leaf in rows.items()}
    assert np.mean(found == np.asarray(policy.sample(columns, x.T, uniform))) > 0.9995
    likely = np.exp([float(policy.log_prob(theta, x[0], np.array(a))) for a in range(3)])
    np.testing.assert_allclose(np.bincount(found, minlength=3) / count, likely, atol=0.015)


def test_a_hosts_world_with_the_wrong_noise_is_told():
    """Normal numbers where uniform ones belong would sample from another distribution."""
    world = Corridor(1)
    plain = world.rollout

    def noisy(act, params, seeds):
        return plain(lambda x, u, alive: act(x, np.zeros((len(u), 3), "f4"), alive), params, seeds)

    world.rollout = noisy
    method = Momentum(Settings(name="pavg", beta=1.0), world, 1, [[0]])
    with pytest.raises(ValueError, match="noise has the shape"):
        method.local(Job(0, method.broadcast(method.init(0), 1), None, 0))
