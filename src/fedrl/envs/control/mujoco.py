"""HalfCheetah, Walker2d and Hopper with different clients: "Momentum for the Win", section 7, E.2.

Every client has the same state and action spaces but another environment: client i's initial
state deviates by at most noise·(1 + noise_spread·x_i), its body is 1 + length_spread·y_i times as
long, and it weighs 1 + gravity_spread·z_i times as much, with x_i, y_i, z_i ~ U(-1, 1). With all
spreads 0 the worlds are Gymnasium's HalfCheetah-v5,
Walker2d-v5 and Hopper-v5 to the last bit: the same XML files, observations, rewards, terminations.

MuJoCo is driven directly rather than through Gymnasium, because the physics of one step takes about
30 microseconds and a Python environment adds half of that again. A batch goes in lockstep: one
`mj_step` per environment, then observations and rewards of all of them in a few NumPy calls.
"""

from __future__ import annotations

import importlib.util
import itertools
import math
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from fedrl.core import seeding
from fedrl.core.limits import at_least_one
from fedrl.core.types import Tensors, UserError
from fedrl.envs.control.body_lengths import heavier, stretched
from fedrl.envs.control.mujoco_tasks import TASKS, TWINS, Health
from fedrl.envs.interfaces import Act, Network, Trajectories
from fedrl.envs.rendering import RenderedEnvironment, twin

if TYPE_CHECKING:
    import mujoco


LONGEST_SPREAD = 0.3
"""Beyond it a body may start outside of the healthy heights: its episodes would end at once."""


@dataclass(frozen=True)
class Settings:
    """Which body runs, for how long, and how clients' bodies and initial states differ."""

    # Which body: HalfCheetah-v5, Walker2d-v5 or Hopper-v5 of Gymnasium.
    name: Literal["halfcheetah", "walker2d", "hopper"] = "halfcheetah"
    # Environment steps after which an episode is cut.
    horizon: int = 500
    # Discount factor of the return.
    gamma: float = 0.999
    # Bound of the initial state's noise; by default Gymnasium's (cheetah 0.1, the others 0.005).
    noise: float | None = None
    # Client i's bound is noise·(1 + noise_spread·x_i) with x_i ~ U(-1, 1).
    noise_spread: float = 0.1
    # Client i's body and limbs are 1 + length_spread·y_i times as long, y_i ~ U(-1, 1).
    length_spread: float = 0.0
    # Client i's gravity is 1 + gravity_spread·z_i times the Earth's, z_i ~ U(-1, 1).
    gravity_spread: float = 0.0
    # Threads that share the physics of one batch; the numbers are the same with any.
    threads: int = 1

    def __post_init__(self) -> None:
        if self.name not in TASKS:
            raise UserError(f"world.name is {self.name!r}; it must be one of {', '.join(TASKS)}")
        at_least_one(self, "world.", "horizon")
        if not 0 < self.gamma <= 1:
            raise UserError(f"world.gamma is {self.gamma}; it must lie in (0, 1]")
        if self.noise is not None and not 0 <= self.noise <= 1:
            raise UserError(f"world.noise is {self.noise}; it must lie in [0, 1]")
        if not 0 <= self.noise_spread <= 1:
            raise UserError(f"world.noise_spread is {self.noise_spread}; it must lie in [0, 1]")
        if not 0 <= self.length_spread <= LONGEST_SPREAD:
            raise UserError(
                f"world.length_spread is {self.length_spread}; it must lie in "
                f"[0, {LONGEST_SPREAD}], or episodes would start fallen"
            )
        if not 0 <= self.gravity_spread < 1:
            raise UserError(f"world.gravity_spread is {self.gravity_spread}; it must lie in [0, 1)")
        at_least_one(self, "world.", "threads")


class Body(NamedTuple):
    """One simulated body: a client's model, a slot's data, and views into that data."""

    model: mujoco.MjModel
    data: mujoco.MjData
    control: np.ndarray
    position: np.ndarray
    velocity: np.ndarray


class World:
    """One environment per client, rolled out in batches that may mix clients."""

    continuous = True

    def __init__(self, settings: Settings, clients: int, seed: int) -> None:
        self._mujoco, assets = _load_mujoco(settings.name)
        # A policy that diverges gives NaN controls: its update is refused, and that is the message.
        # MuJoCo would add a line per step to a log file in the user's folder.
        self._mujoco.set_mju_user_warning(_silent)
        self._task = TASKS[settings.name]
        self.settings = settings
        self.clients = clients
        self.horizon = settings.horizon
        self.gamma = settings.gamma

        noise = self._task.noise if settings.noise is None else settings.noise
        self.bounds = noise * (1 + settings.noise_spread * _draws(seed, "world.noise", clients))
        self.lengths = 1 + settings.length_spread * _draws(seed, "world.length", clients)
        self.gravities = 1 + settings.gravity_spread * _draws(seed, "world.gravity", clients)
        xml = (assets / self._task.xml).read_text()
        own = list(zip(self.lengths, self.gravities))
        distinct = {body: _build(self._mujoco, xml, *body) for body in set(own)}
        self.models = [distinct[body] for body in own]

        model = self.models[0]
        self.observation_size = model.nq - 1 + model.nv
        self.action_size = model.nu
        self._seconds = model.opt.timestep * self._task.frame_skip
        # A slot's data serves every client in turn: all models have the same sizes, and a reset
        # writes all of it. So memory grows with the largest batch, not with batch times clients.
        self._slots: list[mujoco.MjData] = []
        self._pool = ThreadPoolExecutor(settings.threads)  # starts a thread when it has work

    def params(self, clients: Sequence[int]) -> Tensors:
        """The environments of these clients; of several, every trajectory draws one uniformly."""
        return {"client": np.array(clients, np.int64)}

    def rendered(self, client: int) -> RenderedEnvironment:
        """Gymnasium's environment with this client's body and start."""
        assets = _load_mujoco(self.settings.name)[1]
        body = stretched((assets / self._task.xml).read_text(), float(self.lengths[client]))
        heavier(body, float(self.gravities[client]))
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / self._task.xml
            file.write_text(ElementTree.tostring(body, encoding="unicode"))
            return twin(
                TWINS[self.settings.name],
                xml_file=str(file),
                reset_noise_scale=float(self.bounds[client]),
                max_episode_steps=self.horizon,
            )

    def rollout(self, act: Act, params: Tensors, seeds: np.ndarray) -> Trajectories[np.ndarray]:
        """`params["client"]` [B, n] and `seeds` [B] give B episodes, whose rows are independent.

        Row b draws from its own seed: the environment, the initial state, then all action noise.
        """
        record, noise, bodies = self._begin(params, seeds)
        batch, steps = noise.shape[:2]
        alive = np.arange(batch)
        state = states_of(bodies)
        for step in range(steps):
            observations = self.observe(state).astype(np.float32)
            actions = np.asarray(act(observations, noise[alive, step], alive), np.float32)
            state, rewards, ended = self.step(bodies, state, actions)
            record.observations[alive, step] = observations
            record.actions[alive, step] = actions
            record.rewards[alive, step] = rewards
            record.mask[alive, step] = 1
            if ended.any():
                alive, state = alive[~ended], state[~ended]
                bodies = list(itertools.compress(bodies, ~ended))
                if not bodies:
                    break
        return record

    def rollout_network(
        self, network: Network, params: Tensors, seeds: np.ndarray
    ) -> Trajectories[np.ndarray] | None:
        """`rollout` of networks in compiled code; None without numba. See `mujoco_kernel`."""
        if importlib.util.find_spec("numba") is None:
            return None
        from fedrl.envs.control import mujoco_kernel as kernel

        record, noise, bodies = self._begin(params, seeds)
        rules = kernel.rules(self._mujoco, self._task, self._seconds)
        play = kernel.player(bodies, rules, network, noise, record)
        rows = np.arange(len(seeds))
        shares = np.array_split(rows, max(1, min(self.settings.threads, len(seeds))))
        waiting = [self._pool.submit(play, share) for share in shares[1:]]
        play(shares[0])
        for future in waiting:
            future.result()
        return record

    def _begin(
        self, params: Tensors, seeds: np.ndarray
    ) -> tuple[Trajectories[np.ndarray], np.ndarray, list[Body]]:
        """Nothing yet of B episodes, their action noise, and the bodies where they start."""
        batch, steps = len(seeds), self.horizon
        record = Trajectories(
            np.zeros((batch, steps, self.observation_size), np.float32),
            np.zeros((batch, steps, self.action_size), np.float32),
            np.zeros((batch, steps), np.float32),
            np.zeros((batch, steps), np.float32),
        )
        noise = np.empty((batch, steps, self.action_size), np.float32)
        bodies = []
        for row, (choices, seed) in enumerate(zip(params["client"], seeds, strict=True)):
            random = np.random.Generator(np.random.PCG64(np.random.SeedSequence(int(seed))))
            client = int(choices[random.integers(len(choices))])
            bodies.append(self.place(row, client, *self._initial(client, random)))
            noise[row] = random.standard_normal((steps, self.action_size), np.float32)
        return record, noise, bodies

    def place(self, slot: int, client: int, position: np.ndarray, velocity: np.ndarray) -> Body:
        """Client's body in `slot`, at rest in time and at this state, as Gymnasium's reset does."""
        model = self.models[client]
        while len(self._slots) <= slot:
            self._slots.append(self._mujoco.MjData(model))
        data = self._slots[slot]
        self._mujoco.mj_resetData(model, data)
        data.qpos[:] = position
        data.qvel[:] = velocity
        self._mujoco.mj_forward(model, data)
        return Body(model, data, data.ctrl, data.qpos, data.qvel)

    def observe(self, state: np.ndarray) -> np.ndarray:
        """[b, nq + nv] → [b, O]: without the distance run, and with clipped velocities."""
        observations = state[:, 1:].copy()
        limit = self._task.velocity_limit
        if limit < math.inf:
            velocities = observations[:, self.models[0].nq - 1 :]
            np.clip(velocities, -limit, limit, out=velocities)
        return observations

    def step(
        self, bodies: Sequence[Body], before: np.ndarray, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Next states [b, nq + nv], rewards [b] and ends [b] of one environment step."""
        self._simulate(bodies, actions)
        after = states_of(bodies)
        # Gymnasium charges the action as it was asked for, in its own precision; MuJoCo clips it.
        cost = self._task.control_cost * np.square(actions).sum(axis=1)
        forward = (after[:, 0] - before[:, 0]) / self._seconds
        if self._task.health is None:
            return after, forward - cost, np.zeros(len(bodies), bool)
        healthy = is_healthy(self._task.health, after)
        return after, forward + healthy - cost, ~healthy

    def _initial(self, client: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        model, bound = self.models[client], self.bounds[client]
        position = model.qpos0 + random.uniform(-bound, bound, model.nq)
        if self._task.health is None:
            return position, bound * random.standard_normal(model.nv)
        return position, random.uniform(-bound, bound, model.nv)

    def _simulate(self, bodies: Sequence[Body], actions: np.ndarray) -> None:
        shares = max(1, min(self.settings.threads, len(bodies) // self._task.smallest_share))
        waiting = [
            self._pool.submit(self._simulate_share, bodies[share::shares], actions[share::shares])
            for share in range(1, shares)
        ]
        self._simulate_share(bodies[::shares], actions[::shares])
        for future in waiting:
            future.result()

    def _simulate_share(self, bodies: Sequence[Body], actions: np.ndarray) -> None:
        mj_step, frames = self._mujoco.mj_step, self._task.frame_skip
        for (model, data, control, _, _), action in zip(bodies, actions):
            control[:] = action
            mj_step(model, data, frames)  # lets other threads run meanwhile


def states_of(bodies: Sequence[Body]) -> np.ndarray:
    """States [b, nq + nv]."""
    views = [view for body in bodies for view in (body.position, body.velocity)]
    return np.concatenate(views).reshape(len(bodies), -1)


def is_healthy(health: Health, state: np.ndarray) -> np.ndarray:
    (low, high), (left, right) = health.height, health.angle
    height, angle = state[:, 1], state[:, 2]
    healthy = (low < height) & (height < high) & (left < angle) & (angle < right)
    if health.state < math.inf:
        healthy &= (np.abs(state[:, 2:]) < health.state).all(axis=1)
    return healthy


def _silent(message: str) -> None:
    pass


def _load_mujoco(name: str) -> tuple[ModuleType, Path]:
    """MuJoCo and the folder of Gymnasium's models, without the cost of importing Gymnasium."""
    gymnasium = importlib.util.find_spec("gymnasium")
    if gymnasium is None or gymnasium.origin is None or not importlib.util.find_spec("mujoco"):
        raise UserError(f'world "{name}" needs the extra mujoco: pip install "fedrl[mujoco]"')
    import mujoco

    return mujoco, Path(gymnasium.origin).parent / "envs" / "mujoco" / "assets"


def _draws(seed: int, purpose: str, clients: int) -> np.ndarray:
    """U(-1, 1) per client; a client's own does not depend on how many others there are."""
    return np.array(
        [seeding.generator(seed, purpose, client=i).uniform(-1, 1) for i in range(clients)]
    )


def _build(mujoco: ModuleType, xml: str, length: float, gravity: float) -> mujoco.MjModel:
    """The model of Gymnasium's `xml`, its body and limbs `length` times as long, no thicker, and
    under `gravity` times the Earth's pull."""
    root = stretched(xml, length)
    heavier(root, gravity)
    # The compiler would do the same at the price of a deprecation warning on every build.
    mass = root.find("compiler").attrib.pop("settotalmass", None)  # type: ignore[union-attr]
    model = mujoco.MjModel.from_xml_string(ElementTree.tostring(root, encoding="unicode"))
    if mass is not None:
        mujoco.mj_setTotalmass(model, float(mass))
        mujoco.mj_setConst(model, mujoco.MjData(model))
    # One body alone is one island of constraints: looking for more finds none and costs 6%.
    model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_ISLAND)
    return model
