"""Local rounds in discrete worlds: ε-greedy episodes, a replay, and updates of a network by JAX.

The network, its initial weights, Adam and the episodes are those of FedAvg-DQN (`qhd.dqn`), whose
updates are compiled by hand and several times faster; here the method's `loss` is differentiated.
All weights are one vector [P].
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedrl.algorithms.q_learning import network_kernels as kernels
from fedrl.algorithms.q_learning.runners import End, Method, Start, update_loss
from fedrl.algorithms.q_learning.settings import NETWORK_LR
from fedrl.algorithms.q_learning.td_step import Params, TDStep
from fedrl.algorithms.qhd.dqn import network as dqn
from fedrl.algorithms.qhd.dqn.episodes import evaluate as play_greedily
from fedrl.algorithms.qhd.dqn.policy import network_policy
from fedrl.algorithms.qhd.q_learning import REPORTS, step_by_step
from fedrl.algorithms.qhd.q_learning_kernels import EPISODES, UPDATES
from fedrl.core import seeding
from fedrl.core.policies import NetworkPolicy
from fedrl.core.threads import kernel_threads
from fedrl.core.types import Metrics, Range, Tensors, UserError
from fedrl.envs.discrete import classic_kernels as worlds
from fedrl.envs.interfaces import DiscreteWorld

Array = jax.Array
NAME = "weights"


class Moving(NamedTuple):
    """What an update moves or reads, [P] each, on JAX's side."""

    online: Array
    target: Array
    first: Array  # Adam's mean of gradients
    second: Array  # and of their squares


class Known(NamedTuple):
    """What does not change within a round: θ_r and what goes with it."""

    start: Params
    server: Tensors
    client: Tensors
    sign: Array | np.float32


def q_values(shape: dqn.Shape, theta: Params, states: Array) -> Array:
    """Q [n, |A|] of states [n, d]; the vector is laid out as in `dqn.layers`."""
    d, h1, h2, actions = shape
    sizes = (d, h1), (h1,), (h1, h2), (h2,), (actions, h2), (actions,)
    ends = np.cumsum([np.prod(size) for size in sizes])[:-1]
    parts = jnp.split(theta[NAME], ends)
    w1, b1, w2, b2, w3, b3 = (part.reshape(size) for part, size in zip(parts, sizes, strict=True))
    return jax.nn.relu(jax.nn.relu(states @ w1 + b1) @ w2 + b2) @ w3.T + b3


class NetworkRunner:
    """Rounds of clients in a discrete world. All weigh by the steps that they played."""

    reports = REPORTS

    def __init__(self, world: DiscreteWorld, method: Method, pool: int) -> None:
        if not world.actions:
            raise UserError(
                f"{world.name} has continuous actions, which Q-learning cannot choose from: "
                'set algorithm.name = "pavg" or another policy gradient'
            )
        self.world, self.method = world, method
        settings = method.settings
        first, second = settings.hidden
        self.shape: dqn.Shape = (world.dimension, first, second, world.actions)
        self.lr = settings.lr or NETWORK_LR
        self.values = partial(q_values, self.shape)
        self.updates = jax.jit(self._updates_traced)
        self.alike = world.of_clients([0]) is world
        episodes = settings.episodes * pool
        self.heaviest = float(episodes * world.limit)
        self.ranges = {
            "train/steps": Range(0, world.limit),
            "env/steps": Range(0, episodes * world.limit, whole=True),
            "env/episodes": Range(0, episodes, whole=True),
        }

    def init(self, seed: int) -> Tensors:
        return {NAME: dqn.draw_weights(self.shape, seeding.derive(seed, "network"))}

    def precision(self) -> AbstractContextManager[object]:
        return nullcontext()

    def local(self, starts: Sequence[Start], sign: float) -> list[End]:
        """A thread per client: compiled code releases Python's lock. A host's world does not."""
        threads = 1 if self.world.kernel is None else min(len(starts), kernel_threads())
        play = partial(self._play, sign=sign)
        if threads == 1:
            return [play(start) for start in starts]
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(play, starts))

    def policy(self, theta: Tensors) -> NetworkPolicy:
        return network_policy(theta[NAME], self.shape, self.world.scaling)

    def warm_up(self, start: Start) -> None:
        """One update; the kernels are kept on disk."""
        ClientRound(self, start, 1.0).update(max(self.method.settings.gradient_steps, 1))

    def returns(self, theta: Tensors, seed: int, episodes: int) -> np.ndarray:
        world = self.world
        means = [
            play_greedily(world.of_clients([c]), episodes, self.shape, theta[NAME], seed).mean()
            for c in range(1 if self.alike else world.clients)  # one mean stands for all then
        ]
        return np.resize(means, world.clients)

    def diagnostics(self, theta: Tensors) -> Metrics:
        return {}

    def _play(self, start: Start, sign: float) -> End:
        here = ClientRound(self, start, sign)
        count = self.method.settings.episodes * len(start.envs)
        before = int(here.learner.counters[UPDATES])
        played = here.episodes(count)
        theta = here.end()
        steps = int(here.learner.counters[UPDATES]) - before
        return End(theta, here.learner._asdict(), steps, {}, played)

    def _updates_traced(
        self, moving: Moving, batches: Array, corrections: Array, known: Known
    ) -> Moving:
        """Steps of Adam on batches [n, B, 2d + 3]; corrections [n, 2] are of its means' start."""
        settings, d = self.method.settings, self.shape[0]

        def update(moving: Moving, given: tuple[Array, Array]) -> tuple[Moving, None]:
            rows, (step, scale) = given
            states, nexts = rows[:, :d], rows[:, d : 2 * d]
            delayed = self.values({NAME: moving.target}, nexts)

            def loss(theta: Params) -> Array:
                now = TDStep(
                    self.values(theta, states), self.values(theta, nexts), delayed,
                    rows[:, 2 * d].astype(jnp.int32), known.sign * rows[:, 2 * d + 1],
                    rows[:, 2 * d + 2] > 0, settings.gamma, jnp.full(len(rows), 1 / len(rows)),
                    states, nexts, theta, known.start, known.server, known.client, self.values,
                )  # fmt: skip
                return update_loss(self.method, now)

            gradient = jax.grad(loss)({NAME: moving.online})[NAME]
            if settings.max_grad_norm:
                norm = jnp.sqrt((gradient**2).sum())
                gradient *= jnp.minimum(1.0, settings.max_grad_norm / jnp.maximum(norm, 1e-30))
            first = _kept(dqn.FIRST_DECAY * moving.first + (1 - dqn.FIRST_DECAY) * gradient)
            second = _kept(
                dqn.SECOND_DECAY * moving.second + (1 - dqn.SECOND_DECAY) * gradient * gradient
            )
            online = moving.online - step * first / (jnp.sqrt(scale * second) + dqn.TINY)
            return Moving(online, moving.target, first, second), None

        return jax.lax.scan(update, moving, (batches, corrections))[0]


def _kept(mean: Array) -> Array:
    """As in the kernels: the means of a dead unit would decay into numbers that are slow."""
    return jnp.where(jnp.abs(mean) < 1e-30, 0.0, mean)


class ClientRound:
    """A client's learner at work: its arrays, which kernels play with, and JAX's side of them."""

    def __init__(self, runner: NetworkRunner, start: Start, sign: float) -> None:
        self.runner, self.settings = runner, runner.method.settings
        self.world = runner.world.of_clients(start.envs)
        self.seed, s, shape = start.seed, self.settings, runner.shape
        got = start.theta[NAME]
        if start.learner is None:
            self.learner = dqn.fresh(shape, got, s.replay, start.seed % 2**63, s.epsilon)
        else:
            kept = {name: np.array(start.learner[name]) for name in dqn.Learner._fields}
            self.learner = dqn.Learner(**kept)
        # What comes back unchanged is no news: a client alone is not disturbed in its syncs.
        if not np.array_equal(got, self.learner.online):
            self.learner.online[:] = got
            if s.sync_on_receipt:
                self.learner.target[:] = got
        # The delayed weights are copied here, beside JAX's.
        self.rules = s.rules(runner.lr, s.batch, self.world.limit)._replace(sync_episodes=0)
        self.moving = Moving(*(jnp.array(self.learner[i]) for i in range(4)))
        self.known = jax.tree.map(
            jnp.asarray, Known(start.theta, start.server, start.client, np.float32(sign))
        )
        self.start = got
        self.single = dqn.work(shape, 1)
        self.seen, self.ahead = (np.empty((1, shape[0]), np.float32) for _ in range(2))
        self.scale = self.world.scaling.single

    def episodes(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns and lengths [count]."""
        kernel = self.world.kernel
        if kernel is None:
            return step_by_step(self.world, count, self.seed, (), self.first, self.next)
        shape, learner = self.runner.shape, self.learner
        state, tally = np.empty(worlds.MOST_STATE), np.zeros((count, 2))
        for episode in range(count):
            kernels.begin(kernel, state, learner, self.seen, *self.scale)
            over = False
            while not over:
                updates, copies, over = kernels.until_due(
                    kernel, state, shape, learner, self.rules, self.single, self.seen, self.ahead,
                    *self.scale, tally[episode],
                )  # fmt: skip
                self.follow(updates, copies)
            self.finish_episode()
        return tally[:, kernels.RETURN], tally[:, kernels.LENGTH].astype(np.int64)

    def first(self, held: tuple[()], observation: np.ndarray) -> int:
        """The action for the first observation of a host's episode."""
        kernels.look(observation, self.seen, *self.scale)
        return kernels.act(self.learner, self.runner.shape, self.rules, self.seen, self.single)

    def next(
        self,
        held: tuple[()],
        action: int,
        observation: np.ndarray,
        reward: float,
        terminal: bool,
        over: bool,
    ) -> int:
        """What follows a step on the host, and the next action."""
        kernels.look(observation, self.ahead, *self.scale)
        due = kernels.note(
            self.learner, self.rules, self.seen, action, reward, self.ahead, terminal
        )
        self.follow(*due)
        if not over:
            return kernels.act(self.learner, self.runner.shape, self.rules, self.seen, self.single)
        self.finish_episode()
        return 0

    def follow(self, updates: int, copies: bool) -> None:
        """What a step calls for."""
        if updates:
            self.update(updates)
        if copies:
            self.moving = self.moving._replace(target=self.moving.online)

    def update(self, count: int) -> None:
        """`count` updates, each on a minibatch of the replay as it is now."""
        learner, shape = self.learner, self.runner.shape
        batches = np.zeros((count, self.settings.batch, 2 * shape[0] + 3), np.float32)
        kernels.draw_batches(learner, batches)
        number = int(learner.counters[UPDATES]) + 1 + np.arange(count)
        step = self.runner.lr / (1 - dqn.FIRST_DECAY**number)
        scale = 1 / (1 - dqn.SECOND_DECAY**number)
        corrections = np.stack([step, scale], 1).astype(np.float32)
        self.moving = self.runner.updates(self.moving, batches, corrections, self.known)
        learner.online[:] = self.moving.online
        learner.counters[UPDATES] += np.uint64(count)

    def finish_episode(self) -> None:
        kernels.finish_episode(self.learner, self.rules)
        period = self.settings.sync_episodes
        if period and int(self.learner.counters[EPISODES]) % period == 0:
            self.moving = self.moving._replace(target=self.moving.online)

    def end(self) -> Tensors:
        """The client's θ. Its own copy is θ_r plus the change that it sends: alone, it gets back
        exactly that."""
        theta = np.array(self.moving.online)
        for kept, moved in zip(self.learner[1:4], self.moving[1:], strict=True):
            kept[:] = moved
        self.learner.online[:] = self.start + (theta - self.start)
        return {NAME: theta}
