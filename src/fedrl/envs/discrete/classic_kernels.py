"""CartPole-v1, Acrobot-v1 and MountainCar-v0, compiled, for learners that are compiled themselves.

The same arithmetic in the same order as Gymnasium 1.4, in float64, so a state and an action give
Gymnasium's next state. CartPole and MountainCar agree to the last bit. So does Acrobot but for its
squares: x·x is rounded to the nearest number and NumPy's power not always, so the last bits differ
in about one step of a thousand.

A `kernel` says which world, so one compiled learner serves all three; the branch costs nothing
beside the step. Episodes end here only where the world itself ends them (`terminated`): counting to
`LIMIT` is the caller's, who must not mistake the one for the other.

numba's cache looks for changes in the caller's file only, so callers name this file among their
sources (`core.numba_cache`).
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Seen = NDArray[np.float32] | NDArray[np.float64]
Action = int | np.integer

CARTPOLE, ACROBOT, MOUNTAINCAR = 0, 1, 2

STATE = (4, 4, 2)
"""Length of the state, by kernel."""

MOST_STATE = max(STATE)
"""Room for the state and the draws of any kernel."""

DRAWS = (4, 4, 1)
"""Uniform numbers that a reset uses, by kernel."""

OBSERVATION = (4, 6, 2)
"""Length of the observation, by kernel."""

ACTIONS = (2, 3, 3)
LIMIT = (500, 500, 200)
"""Steps after which an episode is cut, by kernel."""

_SECONDS, _GRAVITY = 0.02, 9.8
_MASS_POLE, _TOTAL_MASS, _HALF_POLE = 0.1, 0.1 + 1.0, 0.5
_POLE_MOMENT = _MASS_POLE * _HALF_POLE
_X_LIMIT, _ANGLE_LIMIT = 2.4, 12 * 2 * math.pi / 360

_ACROBOT_SECONDS = 0.2
_FASTEST_1, _FASTEST_2 = 4 * math.pi, 9 * math.pi

_LEFT, _RIGHT, _GOAL, _FASTEST = -1.2, 0.6, 0.5, 0.07

_compiled = njit(cache=True, error_model="numpy")


@_compiled
def reset(kernel: int, state: Floats, uniforms: Floats) -> None:
    """Fill `state` (float64) from draws of [0, 1), as Gymnasium does with its generator's."""
    if kernel == CARTPOLE:
        for i in range(4):
            state[i] = -0.05 + (0.05 - -0.05) * uniforms[i]
    elif kernel == ACROBOT:
        for i in range(4):
            state[i] = np.float32(-0.1 + (0.1 - -0.1) * uniforms[i])
    else:
        state[0] = -0.6 + (-0.4 - -0.6) * uniforms[0]
        state[1] = 0.0


@_compiled
def step(kernel: int, state: Floats, action: Action) -> tuple[float, bool]:
    """Move `state` in place; returns (reward, terminated)."""
    if kernel == CARTPOLE:
        return 1.0, _push_cart(state, action)  # the step that lets the pole fall counts too
    if kernel == ACROBOT:
        up = _swing(state, action)
        return (0.0 if up else -1.0), up
    return -1.0, _drive(state, action)


@_compiled
def observe(kernel: int, state: Floats, out: Seen) -> None:
    """Write the observation, rounded to float32 as Gymnasium's is, into float32 or float64."""
    if kernel == ACROBOT:
        out[0] = np.float32(math.cos(state[0]))
        out[1] = np.float32(math.sin(state[0]))
        out[2] = np.float32(math.cos(state[1]))
        out[3] = np.float32(math.sin(state[1]))
        out[4] = np.float32(state[2])
        out[5] = np.float32(state[3])
    else:
        for i in range(STATE[kernel]):
            out[i] = np.float32(state[i])


@_compiled
def wander(kernel: int, actions: NDArray[np.int64], uniforms: Floats, out: Seen) -> None:
    """Play `actions` [n], episode after episode; `out` [n, O] gets the observations they acted on.

    `uniforms` [n, DRAWS] has a row per episode, of which there are n at most.
    """
    state = np.empty(STATE[kernel])
    episodes, steps, over = 0, 0, True
    for i in range(len(actions)):
        if over:
            reset(kernel, state, uniforms[episodes])
            episodes, steps = episodes + 1, 0
        observe(kernel, state, out[i])
        _, terminated = step(kernel, state, actions[i])
        steps += 1
        over = terminated or steps == LIMIT[kernel]


@_compiled
def step_rows(
    kernel: int,
    states: Floats,
    rows: NDArray[np.int64],
    actions: NDArray[np.int64],
    observations: NDArray[np.float32],
    rewards: Floats,
    terminated: NDArray[np.bool_],
) -> None:
    """`step` of states[rows] [n, STATE], in place; the others get what each has become [n, …]."""
    for i in range(len(rows)):
        state = states[rows[i]]
        rewards[i], terminated[i] = step(kernel, state, actions[i])
        observe(kernel, state, observations[i])


@_compiled
def _push_cart(state: Floats, action: Action) -> bool:
    x, x_dot, angle, angle_dot = state[0], state[1], state[2], state[3]
    force = 10.0 if action == 1 else -10.0
    cos, sin = math.cos(angle), math.sin(angle)
    pull = (force + _POLE_MOMENT * (angle_dot * angle_dot) * sin) / _TOTAL_MASS
    angle_acc = (_GRAVITY * sin - cos * pull) / (
        _HALF_POLE * (4.0 / 3.0 - _MASS_POLE * (cos * cos) / _TOTAL_MASS)
    )
    x_acc = pull - _POLE_MOMENT * angle_acc * cos / _TOTAL_MASS
    state[0] = x + _SECONDS * x_dot
    state[1] = x_dot + _SECONDS * x_acc
    state[2] = angle + _SECONDS * angle_dot
    state[3] = angle_dot + _SECONDS * angle_acc
    return abs(state[0]) > _X_LIMIT or abs(state[2]) > _ANGLE_LIMIT


@_compiled
def _swing(state: Floats, action: Action) -> bool:
    """One Runge-Kutta step of the two links; True when the tip is above the bar."""
    y0, y1, y2, y3 = state[0], state[1], state[2], state[3]
    torque, dt = float(action - 1), _ACROBOT_SECONDS
    half = dt / 2.0
    a0, a1, a2, a3 = _accelerate(y0, y1, y2, y3, torque)
    b0, b1, b2, b3 = _accelerate(
        y0 + half * a0, y1 + half * a1, y2 + half * a2, y3 + half * a3, torque
    )
    c0, c1, c2, c3 = _accelerate(
        y0 + half * b0, y1 + half * b1, y2 + half * b2, y3 + half * b3, torque
    )
    d0, d1, d2, d3 = _accelerate(y0 + dt * c0, y1 + dt * c1, y2 + dt * c2, y3 + dt * c3, torque)
    sixth = dt / 6.0
    state[0] = _wrapped(y0 + sixth * (a0 + 2 * b0 + 2 * c0 + d0))
    state[1] = _wrapped(y1 + sixth * (a1 + 2 * b1 + 2 * c1 + d1))
    state[2] = _bounded(y2 + sixth * (a2 + 2 * b2 + 2 * c2 + d2), _FASTEST_1)
    state[3] = _bounded(y3 + sixth * (a3 + 2 * b3 + 2 * c3 + d3), _FASTEST_2)
    return -math.cos(state[0]) - math.cos(state[1] + state[0]) > 1.0


@_compiled
def _accelerate(
    first: float, second: float, first_dot: float, second_dot: float, torque: float
) -> tuple[float, float, float, float]:
    """Time derivatives of both angles and both speeds.

    Sutton and Barto's equations with both links' length, mass and moment of inertia 1 and their
    centres of mass at 0.5. Factors 1 are left out; the order of what is added is Gymnasium's.
    """
    cos, sin = math.cos(second), math.sin(second)
    d1 = 0.25 + (1.25 + cos) + 1.0 + 1.0
    d2 = (0.25 + 0.5 * cos) + 1.0
    phi2 = 0.5 * _GRAVITY * math.cos(first + second - math.pi / 2.0)
    phi1 = (
        -0.5 * (second_dot * second_dot) * sin
        - second_dot * first_dot * sin
        + 1.5 * _GRAVITY * math.cos(first - math.pi / 2.0)
        + phi2
    )
    second_acc = (torque + d2 / d1 * phi1 - 0.5 * (first_dot * first_dot) * sin - phi2) / (
        1.25 - d2 * d2 / d1
    )
    return first_dot, second_dot, -(d2 * second_acc + phi1) / d1, second_acc


@_compiled
def _wrapped(angle: float) -> float:
    while angle > math.pi:
        angle -= 2 * math.pi
    while angle < -math.pi:
        angle += 2 * math.pi
    return angle


@_compiled
def _bounded(speed: float, limit: float) -> float:
    return min(max(speed, -limit), limit)


@_compiled
def _drive(state: Floats, action: Action) -> bool:
    position, speed = state[0], state[1]
    speed += (action - 1) * 0.001 + math.cos(3 * position) * -0.0025
    speed = _bounded(speed, _FASTEST)
    position = min(max(position + speed, _LEFT), _RIGHT)
    if position == _LEFT and speed < 0:
        speed = 0.0
    state[0], state[1] = position, speed
    return position >= _GOAL and speed >= 0.0
