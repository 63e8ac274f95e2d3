"""How fast FedQHD's clients learn: the compiled kernels beside the same algorithm in NumPy.

python benchmarks/fedqhd.py [--quick] [--json F]

A step is one action and one TD update on 16 transitions, of one of 5 clients (|A| = 2, d = 4). One
thread each, CPU seconds, turns taken in one run. NumPy is measured twice, in float64, its default,
and in float32, the kernels' precision: on processors with wide vectors its float32 cosine is many
times faster than its float64 one. The limit is what a polynomial of fused multiply-adds reaches on
the same core; processors that add beside multiplying may pass it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

import harness
import numpy as np
from numba import njit

from fedrl.algorithms import qhd_episodes, qhd_features, qhd_kernels
from fedrl.envs import classic_kernels as worlds

CLIENTS, BATCH, ACTIONS, SIZE, CAPACITY = 5, 16, 2, 4, 10_000
SHARED, OWN = (10_000,) * CLIENTS, (500, 1000, 2000, 5000, 10_000)
RULES = qhd_kernels.Rules(
    gamma=0.99,
    lr=0.1,
    batch=BATCH,
    updates_per_step=1,
    sync_steps=0,
    sync_episodes=5,
    epsilon_decay=1.0,
    epsilon_floor=0.1,
    limit=50,
)
SHIFT, SPREAD = np.zeros(SIZE, np.float32), np.array([2.4, 3, 0.21, 3], np.float32)
CHAINS, DEGREE = 8, 16
ONE, TWO, THREE, FOUR = (np.float32(x) for x in (1, 2, 3, 4))


class NumpyClient:
    """The same learner in NumPy: one product and one cosine for s and s' together."""

    def __init__(self, features: int, seed: int, kind: type[np.floating]) -> None:
        encoder = qhd_features.draw(SIZE, features, 0.5, seed)
        self.kind = kind
        self.omega, self.phase = encoder.omega.astype(kind), encoder.phase.astype(kind)
        self.scale = kind(features**-0.5)
        self.online = np.zeros((features, ACTIONS), kind)
        self.target = np.zeros_like(self.online)
        self.states = np.zeros((2, CAPACITY, SIZE), np.float32)  # s and s'
        self.rewards, self.terminal = np.zeros(CAPACITY, np.float32), np.zeros(CAPACITY, bool)
        self.actions = np.zeros(CAPACITY, np.int64)
        self.random = np.random.default_rng(seed)
        self.stored = 0

    def encode(self, states: np.ndarray) -> np.ndarray:
        angles = states.astype(self.kind) @ self.omega
        angles += self.phase
        np.cos(angles, out=angles)
        angles *= self.scale
        return angles

    def update(self) -> None:
        rows = self.random.integers(min(self.stored, CAPACITY), size=BATCH)
        waves = self.encode(self.states[:, rows].reshape(2 * BATCH, SIZE))
        here, ahead = waves[:BATCH], waves[BATCH:]
        every, actions = np.arange(BATCH), self.actions[rows]
        best = (ahead @ self.online).argmax(1)
        goal = self.rewards[rows] + RULES.gamma * (ahead @ self.target)[every, best] * (
            ~self.terminal[rows]
        )
        error = goal - (here @ self.online)[every, actions]
        steps = np.zeros((BATCH, ACTIONS), self.kind)
        steps[every, actions] = RULES.lr * error
        self.online += here.T @ steps

    def episodes(self, count: int) -> int:
        before, state, seen = self.stored, np.empty(SIZE), np.empty((2, SIZE), np.float32)
        for episode in range(count):
            worlds.reset(worlds.CARTPOLE, state, self.random.random(SIZE))
            worlds.observe(worlds.CARTPOLE, state, seen[0])
            seen[0] /= SPREAD
            length, over = 0, False
            while not over and length < RULES.limit:
                action = int((self.encode(seen[:1]) @ self.online)[0].argmax())
                if self.random.random() < RULES.epsilon_floor:
                    action = int(self.random.integers(ACTIONS))
                reward, over = worlds.step(worlds.CARTPOLE, state, action)
                worlds.observe(worlds.CARTPOLE, state, seen[1])
                seen[1] /= SPREAD
                place = self.stored % CAPACITY
                self.states[:, place], self.actions[place] = seen, action
                self.rewards[place], self.terminal[place] = reward, over
                self.stored, length = self.stored + 1, length + 1
                seen[0] = seen[1]
                if self.stored >= BATCH:
                    self.update()
            if episode % RULES.sync_episodes == 0:
                self.target[:] = self.online
        return self.stored - before


class CompiledClient:
    def __init__(self, features: int, seed: int) -> None:
        encoder = qhd_features.draw(SIZE, features, 0.5, seed)
        self.blocks = qhd_kernels.blocks(qhd_features.lanes(encoder))
        self.learner = qhd_kernels.fresh(ACTIONS, features, SIZE, CAPACITY, seed, epsilon=0.1)

    def episodes(self, count: int) -> int:
        _, lengths = qhd_episodes.run_episodes(
            worlds.CARTPOLE, count, self.blocks, SHIFT, SPREAD, self.learner, RULES
        )
        return int(lengths.sum())


@njit(error_model="numpy", fastmath={"contract", "nsz"})
def polynomial(x: np.ndarray, out: np.ndarray, repeats: int) -> None:
    """CHAINS · DEGREE fused multiply-adds per number; the chains hide each other's latency."""
    for _ in range(repeats):
        for j in range(x.size):
            z = x[j]
            a, b, c, d = z, z + ONE, z + TWO, z + THREE
            e, f, g, h = z - ONE, z - TWO, z - THREE, z + FOUR
            for _ in range(DEGREE):
                a, b, c, d = a * z + ONE, b * z + ONE, c * z + ONE, d * z + ONE
                e, f, g, h = e * z + ONE, f * z + ONE, g * z + ONE, h * z + ONE
            out[j] = (a + b) + (c + d) + (e + f) + (g + h)


def limit(repeats: int) -> tuple[float, float]:
    """(operations, CPU seconds), a fused multiply-add as one operation."""
    x = np.linspace(-0.9, 0.9, 1024).astype(np.float32)
    out = np.empty_like(x)
    polynomial(x, out, 1)
    start = time.process_time()
    polynomial(x, out, repeats)
    return float(CHAINS * DEGREE * x.size * repeats), time.process_time() - start


def operations(features: int) -> float:
    """Arithmetic of a step: d + 8 per cosine, the readouts, the step of W."""
    cosine = SIZE + 8
    transition = 2 * cosine + 1 + 2 * ACTIONS + 1
    return features * (BATCH * transition + (1 - RULES.epsilon_floor) * (cosine + ACTIONS))


def timed(clients: Sequence[NumpyClient | CompiledClient], episodes: int) -> tuple[float, float]:
    start = time.process_time()
    steps = sum(client.episodes(episodes) for client in clients)
    return float(steps), time.process_time() - start


def turns(rounds: int, work: dict[str, Callable[[], tuple[float, float]]]) -> dict[str, float]:
    """Units per CPU second, each the best of its turns: other load only ever slows one down."""
    best = dict.fromkeys(work, 0.0)
    for _ in range(rounds):
        for name, run in work.items():
            units, seconds = run()
            best[name] = max(best[name], units / seconds)
    return best


def main() -> None:
    options = harness.options(__doc__.splitlines()[0]).parse_args()
    harness.header("FedQHD: steps (an action and a TD update) per CPU second, one thread")
    learners: dict[str, list[NumpyClient | CompiledClient]] = {
        "float64": [NumpyClient(size, seed, np.float64) for seed, size in enumerate(SHARED)],
        "float32": [NumpyClient(size, seed, np.float32) for seed, size in enumerate(SHARED)],
        "compiled": [CompiledClient(size, seed) for seed, size in enumerate(SHARED)],
        "own": [CompiledClient(size, seed) for seed, size in enumerate(OWN)],
    }
    for clients in learners.values():
        timed(clients, 3)  # compiles, and fills a batch: without one there are no updates
    amount = {"float64": 1, "float32": 4, "compiled": 20, "own": 20}
    work = {name: partial(timed, learners[name], amount[name]) for name in learners}
    work["limit"] = partial(limit, 3000 if options.quick else 10_000)
    rates = turns(2 if options.quick else 6, work)
    share = rates["compiled"] * operations(SHARED[0]) / rates["limit"]
    results = harness.Results()
    for name, label, unit, scale in (
        ("float64", "NumPy in float64, D = 10,000", "steps/s", 1.0),
        ("float32", "NumPy in float32, D = 10,000", "steps/s", 1.0),
        ("compiled", "compiled, D = 10,000", "steps/s", 1.0),
        ("own", "compiled, D_i = 500 to 10,000", "steps/s", 1.0),
        ("limit", "arithmetic limit", "G operations/s", 1e-9),
    ):
        print(f"{label:32}{scale * rates[name]:9.1f} {unit}")
        results.add(f"fedqhd/{name}", scale * rates[name], unit.replace(" ", "_"))
    for name in ("float64", "float32"):
        faster = rates["compiled"] / rates[name]
        print(f"{'compiled over NumPy in ' + name:32}{faster:9.1f} times")
        results.add(f"fedqhd/over_{name}", faster, "times")
    print(f"{'share of the limit, D = 10,000':32}{100 * share:9.0f} %")
    results.add("fedqhd/share_of_limit", share, "fraction")
    results.finish(options.json)


if __name__ == "__main__":
    main()
