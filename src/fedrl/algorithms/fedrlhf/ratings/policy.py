"""Q-learning and REINFORCE on bandit steps with the network of `rating_network`, compiled.

    π(a | s) = softmax(out(s) / T)    J(θ) = mean over states of Σ_a π(a | s) R(s, a)
    a ~ π(· | s)

    Q-learning   outputs are values: down the slope of the mean of (out_a − R(s, a))² / 2
    REINFORCE    outputs are preferences: up ∇J ≈ mean over a minibatch of R(s, a) ∇ log π(a | s)

Passes forward and back are those of `rating_kernels`; what is here is the losses and the loop, with
Adam or with plain steps θ ← θ + η g (Algorithm 1, line 11).

REINFORCE has no baseline, because rewards are paid as ±R: either action then pushes the same way,
and the noise that actions add is x(1 − 4x)R², x = π(1 − π). The usual baseline, the value of the
state, would make it four times as large.

numba's cache looks for changes in a function's own file only, so `learn` carries a fingerprint of
the kernels that are compiled into it.
"""

from __future__ import annotations

import inspect
import math
import zlib
from collections.abc import Callable

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fedrl.feedback import rating_kernels as kernels
from fedrl.feedback.rating_kernels import Examples, Ints, Rules, Single, Sizes, Work

Floats = NDArray[np.float64]
Learn = Callable[
    [Single, Sizes, Examples, Single, Ints, Floats, Rules, Single, Ints], tuple[float, float]
]

_part = njit(error_model="numpy", nogil=True)  # compiled into what is cached, or rarely used
_compiled = njit(cache=True, error_model="numpy", nogil=True)


@_part
def high_probability(work: Work, b: int, rules: Rules) -> float:
    """π(high | s) of row b."""
    return kernels.logistic((work.out[b, 1] - work.out[b, 0]) / rules.temperature)


@_part
def q_learning_slopes(
    work: Work, rewards: Single, chances: Floats, rules: Rules
) -> tuple[float, float]:
    """Actions by the policy; the sums of their rewards and of (Q(s, a) − R(s, a))² / 2.

    Only the value of the action that was taken gets a slope.
    """
    earned, loss, count = 0.0, 0.0, work.picks.size
    work.dout[:] = np.float32(0)
    for b in range(count):
        action = 1 if chances[b] < high_probability(work, b, rules) else 0
        reward = rewards[work.picks[b], action]
        error = work.out[b, action] - reward
        work.dout[b, action] = error / count
        earned += reward
        loss += 0.5 * error * error
    return earned, loss


@_part
def reinforce_slopes(
    work: Work, rewards: Single, chances: Floats, rules: Rules
) -> tuple[float, float]:
    """Actions by the policy; the sums of their rewards and of −R(s, a) log π(a | s).

    The slopes are of the mean of the latter: going down them goes up J.
    """
    earned, loss, count = 0.0, 0.0, work.picks.size
    for b in range(count):
        high = high_probability(work, b, rules)
        action = 1 if chances[b] < high else 0
        reward = rewards[work.picks[b], action]
        push = reward * (action - high) / (rules.temperature * count)
        work.dout[b, 0], work.dout[b, 1] = push, -push
        earned += reward
        loss -= reward * math.log(max(high if action == 1 else 1 - high, 1e-30))
    return earned, loss


@_part
def expected_slopes(work: Work, rewards: Single, rules: Rules) -> float:
    """Slopes of −J, both actions enumerated instead of one sampled; J itself."""
    total, count = 0.0, work.picks.size
    for b in range(count):
        high = high_probability(work, b, rules)
        low_reward, high_reward = rewards[work.picks[b], 0], rewards[work.picks[b], 1]
        push = high * (1 - high) * (high_reward - low_reward) / (rules.temperature * count)
        work.dout[b, 0], work.dout[b, 1] = push, -push
        total += high * high_reward + (1 - high) * low_reward
    return total / count


def _build(fingerprint: int) -> Learn:
    @_compiled
    def learn(
        weights: Single,
        sizes: Sizes,
        examples: Examples,
        rewards: Single,
        order: Ints,
        chances: Floats,
        rules: Rules,
        moments: Single,
        steps: Ints,
    ) -> tuple[float, float]:
        """Learn as the rules say, `order` [passes, n] of places; the last pass's mean reward and
        loss.

        In each state the client acts by its own policy (`chances` [passes, n] decide) and learns
        from the reward, of `rewards` [n, 2], of the action that it took. Adam goes on from
        `moments` [2, weights] after `steps` [1], both in place (`rating_network.AdamMemory`).
        """
        _ = fingerprint
        gradient, (first, second) = np.zeros_like(weights), (moments[0], moments[1])
        passes, count = order.shape
        batch = min(rules.batch, count)
        whole = kernels.scratch(sizes, batch, gradient)
        rest = kernels.scratch(sizes, count % batch, gradient)
        earned, loss = 0.0, 0.0
        for turn in range(passes):
            earned, loss = 0.0, 0.0
            for start in range(0, count, batch):
                work = whole if start + batch <= count else rest
                stop = start + work.picks.size
                work.picks[:] = order[turn, start:stop]
                kernels.forward(weights, sizes, examples, work)
                draws = chances[turn, start:stop]
                if rules.reinforce:
                    got, missed = reinforce_slopes(work, rewards, draws, rules)
                else:
                    got, missed = q_learning_slopes(work, rewards, draws, rules)
                earned, loss = earned + got, loss + missed
                kernels.backward(weights, sizes, examples, work)
                steps[0] += 1
                if rules.plain:
                    kernels.add_row(weights, np.float32(-rules.lr), gradient)
                else:
                    kernels.adam(weights, gradient, first, second, rules, steps[0])
        return earned / count, loss / count

    return learn


learn = _build(zlib.crc32(inspect.getsource(kernels).encode()))


@_part
def expected_return(
    weights: Single,
    sizes: Sizes,
    examples: Examples,
    rewards: Single,
    rules: Rules,
    gradient: Single,
) -> float:
    """J over all these states; `gradient` becomes that of −J."""
    work = kernels.scratch(sizes, examples.user.size, gradient)
    work.picks[:] = np.arange(examples.user.size)
    kernels.forward(weights, sizes, examples, work)
    value = expected_slopes(work, rewards, rules)
    kernels.backward(weights, sizes, examples, work)
    return value


@_part
def gradient_moments(
    weights: Single, sizes: Sizes, examples: Examples, rewards: Single, rules: Rules
) -> Floats:
    """E_a ‖R(s, a) ∇ log π(a | s)‖² of every state [n], both actions enumerated."""
    gradient, moments = np.zeros_like(weights), np.empty(examples.user.size)
    work = kernels.scratch(sizes, 1, gradient)
    for place in range(moments.size):
        work.picks[0] = place
        kernels.forward(weights, sizes, examples, work)
        high = high_probability(work, 0, rules)
        work.dout[0, 0], work.dout[0, 1] = -1, 1
        kernels.backward(weights, sizes, examples, work)
        steep = 0.0  # ‖∇(out₁ − out₀)‖²
        for i in range(gradient.size):
            steep += float(gradient[i]) * float(gradient[i])
        low, up = float(rewards[place, 0]) * high, float(rewards[place, 1]) * (1 - high)
        moments[place] = ((1 - high) * low * low + high * up * up) * steep
    return moments / rules.temperature**2
