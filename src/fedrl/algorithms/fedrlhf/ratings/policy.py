"""REINFORCE on bandit steps with the network of `rating_network`, compiled.

    π(a | s) = softmax(out(s) / T)    J(θ) = mean over states of Σ_a π(a | s) R(s, a)
    a ~ π(· | s)                      ∇J ≈ mean over a minibatch of R(s, a) ∇ log π(a | s)

Passes forward and back are those of `rating_kernels`; what is here is the loss and the loop, with
Adam or with plain steps θ ← θ + η g (Algorithm 1, line 11).

There is no baseline, because rewards are paid as ±R: either action then pushes the same way, and
the noise that actions add is x(1 − 4x)R², x = π(1 − π). The usual baseline, the value of the state,
would make it four times as large.

numba's cache looks for changes in a function's own file only, so `learn_policy` carries a
fingerprint of the kernels that are compiled into it.
"""

from __future__ import annotations

import inspect
import math
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fedrl.feedback import rating_kernels as kernels
from fedrl.feedback.rating_kernels import Examples, Ints, Rules, Single, Sizes, Work

Floats = NDArray[np.float64]

_part = njit(error_model="numpy", nogil=True)  # compiled into what is cached
_compiled = njit(cache=True, error_model="numpy", nogil=True)


@_part
def policy_slopes(
    work: Work, rewards: Single, chances: Floats, rules: Rules
) -> tuple[float, float]:
    """Actions by the policy; the sums of their rewards and of −R(s, a) log π(a | s).

    The slopes are of the mean of the latter: going down them goes up J.
    """
    earned, loss, count = 0.0, 0.0, work.picks.size
    for b in range(count):
        edge = (work.out[b, 1] - work.out[b, 0]) / rules.temperature
        high = kernels.logistic(edge)
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
        edge = (work.out[b, 1] - work.out[b, 0]) / rules.temperature
        high = kernels.logistic(edge)
        low_reward, high_reward = rewards[work.picks[b], 0], rewards[work.picks[b], 1]
        push = high * (1 - high) * (high_reward - low_reward) / (rules.temperature * count)
        work.dout[b, 0], work.dout[b, 1] = push, -push
        total += high * high_reward + (1 - high) * low_reward
    return total / count


def _build(sources: int) -> tuple[Callable[..., Any], ...]:
    @_compiled
    def learn_policy(
        weights: Single,
        sizes: Sizes,
        examples: Examples,
        rewards: Single,
        order: Ints,
        chances: Floats,
        rules: Rules,
        moments: Single,
        steps: Ints,
        plain: bool,
    ) -> tuple[float, float]:
        """REINFORCE, `order` [passes, n] of places; the last pass's mean reward and loss.

        Arguments are those of `rating_kernels.learn_values`; `plain` steps without Adam.
        """
        _ = sources
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
                got, missed = policy_slopes(work, rewards, chances[turn, start:stop], rules)
                earned, loss = earned + got, loss + missed
                kernels.backward(weights, sizes, examples, work)
                steps[0] += 1
                if plain:
                    kernels.add_row(weights, np.float32(-rules.lr), gradient)
                else:
                    kernels.adam(weights, gradient, first, second, rules, steps[0])
        return earned / count, loss / count

    @_compiled
    def ascent(
        weights: Single,
        sizes: Sizes,
        examples: Examples,
        rewards: Single,
        rules: Rules,
        gradient: Single,
    ) -> float:
        """J over all these states; `gradient` becomes that of −J."""
        _ = sources
        work = kernels.scratch(sizes, examples.user.size, gradient)
        work.picks[:] = np.arange(examples.user.size)
        kernels.forward(weights, sizes, examples, work)
        value = expected_slopes(work, rewards, rules)
        kernels.backward(weights, sizes, examples, work)
        return value

    @_compiled
    def spreads(
        weights: Single, sizes: Sizes, examples: Examples, rewards: Single, rules: Rules
    ) -> Floats:
        """E_a ‖R(s, a) ∇ log π(a | s)‖² of every state [n], both actions enumerated."""
        _ = sources
        gradient, found = np.zeros_like(weights), np.empty(examples.user.size)
        work = kernels.scratch(sizes, 1, gradient)
        for place in range(found.size):
            work.picks[0] = place
            kernels.forward(weights, sizes, examples, work)
            edge = (work.out[0, 1] - work.out[0, 0]) / rules.temperature
            high = kernels.logistic(edge)
            work.dout[0, 0], work.dout[0, 1] = -1, 1
            kernels.backward(weights, sizes, examples, work)
            steep = 0.0  # ‖∇(out₁ − out₀)‖²
            for i in range(gradient.size):
                steep += float(gradient[i]) * float(gradient[i])
            low, up = float(rewards[place, 0]) * high, float(rewards[place, 1]) * (1 - high)
            found[place] = ((1 - high) * low * low + high * up * up) * steep
        return found / rules.temperature**2

    return learn_policy, ascent, spreads


fingerprint = zlib.crc32(inspect.getsource(kernels).encode())
learn_policy, ascent, spreads = _build(fingerprint)
