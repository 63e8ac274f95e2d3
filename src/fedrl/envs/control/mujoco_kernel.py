"""Whole episodes of MuJoCo's bodies in compiled code: policy, physics and reward without Python.

`World.rollout` asks a policy in Python once per step, which takes a third as long as the physics.
Here a network of tanh layers with normal noise is part of the loop, and MuJoCo's `mj_step` is
called by its address, on the memory that its Python objects show: the same physics to the last bit.
The network's sums are taken in another order than NumPy's, so actions differ in their last digits.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import carray, njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from fedrl.core.numba_cache import cached
from fedrl.envs.control.mujoco_tasks import Task
from fedrl.envs.interfaces import Network, Trajectories

if TYPE_CHECKING:
    from numba.core.typing.templates import Signature

Floats = NDArray[np.float32]
Addresses = NDArray[np.uint64]
_inlined = njit(forceinline=True, error_model="numpy")


class Bodies(NamedTuple):
    """Where MuJoCo's model, data, controls, positions and velocities of every row lie."""

    model: Addresses
    data: Addresses
    control: Addresses
    position: Addresses
    velocity: Addresses


class Rules(NamedTuple):
    """A task in numbers. `health` has the open ranges of height, angle and state; none if empty."""

    step: np.uint64  # mj_step
    frames: int
    seconds: float
    control_cost: float
    velocity_limit: float
    health: NDArray[np.float64]


def rules(mujoco: ModuleType, task: Task, seconds: float) -> Rules:
    health = task.health
    limits = () if health is None else (*health.height, *health.angle, health.state)
    return Rules(step_address(mujoco), task.frame_skip, seconds, task.control_cost,
                 task.velocity_limit, np.array(limits, np.float64))  # fmt: skip


def player(
    bodies: Sequence[tuple[Any, ...]],
    rules: Rules,
    network: Network,
    noise: Floats,
    record: Trajectories[np.ndarray],
) -> Callable[[NDArray[np.int64]], None]:
    """What plays the rows that it is given; `bodies` are models, data and views into these."""
    where = [[model._address, data._address, *(view.ctypes.data for view in views)]
             for model, data, *views in bodies]  # fmt: skip
    found = Bodies(*np.array(where, np.uint64).T.copy())
    weights, deviation = (
        np.ascontiguousarray(one, np.float32) for one in (network.weights, network.deviation)
    )
    sizes = np.array(network.sizes, np.int64)
    return lambda rows: play(rows, found, rules, sizes, weights, deviation, noise, *record)


@cache
def step_address(mujoco: ModuleType) -> np.uint64:
    """Of `mj_step` in the library that the package has loaded."""
    folder = Path(str(mujoco.__file__)).parent
    library = ctypes.CDLL(str(next(folder.glob("libmujoco.*"))))
    return np.uint64(ctypes.cast(library.mj_step, ctypes.c_void_p).value or 0)


@intrinsic
def _pointer(typing, address):  # type: ignore[no-untyped-def]
    """An address as a pointer."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.uint64), generate


pointer: Any = _pointer  # numba gives the first argument itself


@intrinsic
def _advance(typing, step, model, data):  # type: ignore[no-untyped-def]
    """`step(model, data)`, all three by their addresses."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        byte = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, byte])
        function = builder.inttoptr(arguments[0], kind.as_pointer())
        builder.call(function, [builder.inttoptr(one, byte) for one in arguments[1:]])
        return context.get_dummy_value()

    signature: Signature = types.void(types.uint64, types.uint64, types.uint64)
    return signature, generate


advance: Any = _advance


@_inlined
def forward(weights: Floats, sizes: NDArray[np.int64], x: Floats, y: Floats) -> None:
    """The network's outputs, into the first entries of x: layer by layer w [in, out], then b [out];
    tanh after all but the last."""
    at = 0
    for layer in range(len(sizes) - 1):
        before, after = sizes[layer], sizes[layer + 1]
        bias = at + before * after
        for j in range(after):
            y[j] = weights[bias + j]
        for i in range(before):
            value, row = x[i], at + i * after
            for j in range(after):
                y[j] += value * weights[row + j]
        at = bias + after
        last = layer == len(sizes) - 2
        for j in range(after):
            x[j] = y[j] if last else np.tanh(y[j])


@_inlined
def is_healthy(health: NDArray[np.float64], q: NDArray[np.float64], v: NDArray[np.float64]) -> bool:
    if not (health[0] < q[1] < health[1] and health[2] < q[2] < health[3]):
        return False
    for i in range(2, len(q)):
        if not abs(q[i]) < health[4]:
            return health[4] == np.inf
    for i in range(len(v)):
        if not abs(v[i]) < health[4]:
            return health[4] == np.inf
    return True


@cached(nogil=True)
def play(
    rows: NDArray[np.int64],
    bodies: Bodies,
    rules: Rules,
    sizes: NDArray[np.int64],
    weights: Floats,
    deviation: Floats,
    noise: Floats,
    observations: Floats,
    actions: Floats,
    rewards: Floats,
    mask: Floats,
) -> None:
    """One episode of each of these rows, into the last four arrays, which are 0 before."""
    steps, controls = noise.shape[1], noise.shape[2]
    seen = observations.shape[2]
    velocities = (seen + 1) // 2  # as many positions as velocities
    x, y = np.empty(sizes.max(), np.float32), np.empty(sizes.max(), np.float32)
    for row in rows:
        control = carray(pointer(bodies.control[row]), (controls,), np.float64)
        q = carray(pointer(bodies.position[row]), (seen + 1 - velocities,), np.float64)
        v = carray(pointer(bodies.velocity[row]), (velocities,), np.float64)
        for t in range(steps):
            for i in range(len(q) - 1):
                observations[row, t, i] = q[i + 1]
            for i in range(len(v)):
                clipped = min(max(v[i], -rules.velocity_limit), rules.velocity_limit)
                observations[row, t, len(q) - 1 + i] = clipped if v[i] == v[i] else v[i]
            for i in range(seen):
                x[i] = observations[row, t, i]
            forward(weights[row], sizes, x, y)
            cost = np.float32(0.0)
            for i in range(controls):
                action = x[i] + deviation[row, i] * noise[row, t, i]
                actions[row, t, i] = action
                control[i] = action
                cost += action * action
            before = q[0]
            for _ in range(rules.frames):
                advance(rules.step, bodies.model[row], bodies.data[row])
            forward_speed = (q[0] - before) / rules.seconds
            reward = forward_speed - np.float32(rules.control_cost) * cost
            mask[row, t] = 1.0
            if len(rules.health) == 0:
                rewards[row, t] = reward
                continue
            if not is_healthy(rules.health, q, v):
                rewards[row, t] = reward
                break
            rewards[row, t] = reward + 1.0
