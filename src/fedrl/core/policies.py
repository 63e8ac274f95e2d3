"""What was learned, to be used without what learned it: policies in NumPy.

    NetworkPolicy   layers with tanh or relu; outputs are logits, a Gaussian's mean or Q-values
    FourierPolicy   Q-values of random Fourier features: scale · Σ_j cos(2π(ω·s + b)_j) rows[a, j]
    TablePolicy     logits, probabilities or Q-values of every state; an observation is its number

`act(observation)` takes the most likely or the most valuable action, a Gaussian's mean;
`act(observation, rng)` draws as in training, where the policy is a stochastic one. One observation
gives one action, a batch of them [b, …] as many. All are tensors and a description in plain words,
by which `restored` finds them again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, cast

import numpy as np

from fedrl.core.types import Json, Tables, Tensors, UserError

Output = Literal["logits", "probabilities", "values", "mean"]
"""What is computed of an observation: what a softmax is taken of, that itself, Q, or an action."""
Activation = Literal["tanh", "relu"]

Array = np.ndarray


class Scaling(NamedTuple):
    """How features see a state: (s - shift) / scale."""

    shift: Array  # [dimension] float64
    scale: Array

    def __call__(self, states: Array) -> Array:
        return (states - self.shift) / self.scale

    @property
    def single(self) -> tuple[Array, Array]:
        """Both in float32, as kernels read them."""
        return self.shift.astype(np.float32), self.scale.astype(np.float32)


@dataclass(frozen=True)
class ActionBox:
    """From what a Gaussian says to what an environment takes: clip(middle + reach · a).

    All in the shape of an action.
    """

    middle: Array
    reach: Array
    low: Array
    high: Array

    def __call__(self, actions: Array) -> Array:
        shaped = actions.reshape(-1, *self.low.shape)
        return np.clip(self.middle + self.reach * shaped, self.low, self.high).astype(np.float32)


class TensorPolicy(ABC):
    """A policy that is tensors and a description; see the module's docstring."""

    output: Output
    log_std: Array | None = None
    box: ActionBox | None = None
    rank = 1
    """Axes of one observation."""

    def __repr__(self) -> str:
        return f"<fedrl {type(self).__name__} of {self.output}>"

    @abstractmethod
    def outputs(self, observations: Array) -> Array:
        """Logits, probabilities, Q-values or means [b, A] of observations [b, …]."""

    @abstractmethod
    def tensors(self) -> Tensors: ...

    @abstractmethod
    def description(self) -> Json: ...

    @property
    @abstractmethod
    def actions(self) -> int:
        """How many there are, or how many numbers one is."""

    def act(self, observation: object, rng: np.random.Generator | None = None) -> Array | int:
        given = np.asarray(observation)
        single = given.ndim == self.rank
        if not single and given.ndim != self.rank + 1:
            raise UserError(f"an observation has {self.rank} axes, a batch one more: {given.shape}")
        outputs = self.outputs(given[None] if single else given)
        if self.output == "mean":
            chosen = self._continuous(outputs, rng)
        else:
            chosen = self._discrete(outputs, rng)
        if not single:
            return chosen
        return cast(Array, chosen[0]) if self.output == "mean" else int(chosen[0])

    def greedy(self, observation: object) -> Array | int:
        """The same as `act` without random numbers."""
        return self.act(observation)

    def _continuous(self, means: Array, rng: np.random.Generator | None) -> Array:
        if rng is not None and self.log_std is not None:
            noise = rng.standard_normal(means.shape).astype(np.float32)
            means = means + np.exp(self.log_std) * noise
        return means if self.box is None else self.box(means)

    def _discrete(self, outputs: Array, rng: np.random.Generator | None) -> Array:
        if rng is None or self.output == "values":
            return outputs.argmax(1)
        p = outputs
        if self.output == "logits":
            p = np.exp(outputs - outputs.max(1, keepdims=True))
        below = (p / p.sum(1, keepdims=True)).cumsum(1)[:, :-1]
        return (rng.random(len(p))[:, None] >= below).sum(1)


@dataclass(frozen=True, repr=False)
class NetworkPolicy(TensorPolicy):
    """Layers (weight [in, out], bias [out]) with an activation between them, in float32."""

    layers: tuple[tuple[Array, Array], ...]
    activation: Activation
    output: Output
    scaling: Scaling | None = None
    log_std: Array | None = None
    box: ActionBox | None = None

    @property
    def actions(self) -> int:
        return len(self.layers[-1][1])

    @property
    def sizes(self) -> list[int]:
        return [len(self.layers[0][0]), *(len(bias) for _, bias in self.layers)]

    def outputs(self, observations: Array) -> Array:
        x = _seen(observations, self.scaling, self.sizes[0])
        for number, (weight, bias) in enumerate(self.layers):
            x = x @ weight + bias
            if number < len(self.layers) - 1:
                x = np.tanh(x) if self.activation == "tanh" else np.maximum(x, 0)
        return x

    def tensors(self) -> Tensors:
        found: Tensors = {}
        for number, (weight, bias) in enumerate(self.layers):
            found |= {f"w{number}": weight, f"b{number}": bias}
        return found | _common(self)

    def description(self) -> Json:
        return {
            "kind": "network", "output": self.output, "activation": self.activation,
            "sizes": self.sizes,
        }  # fmt: skip


@dataclass(frozen=True, repr=False)
class FourierPolicy(TensorPolicy):
    """FedQHD's features: ω [d, L] and b [L] in turns, rows [A, L]."""

    omega: Array
    phase: Array
    rows: Array
    scale: float
    scaling: Scaling | None = None
    output: Output = "values"

    @property
    def actions(self) -> int:
        return len(self.rows)

    def outputs(self, observations: Array) -> Array:
        turns = _seen(observations, self.scaling, len(self.omega)) @ self.omega + self.phase
        waves = np.cos(np.float32(2 * np.pi) * (turns - np.rint(turns)))
        return cast(Array, np.float32(self.scale) * (waves @ self.rows.T))

    def tensors(self) -> Tensors:
        return {"omega": self.omega, "phase": self.phase, "rows": self.rows} | _common(self)

    def description(self) -> Json:
        sizes = [*self.omega.shape, self.actions]
        return {"kind": "fourier", "output": self.output, "scale": self.scale, "sizes": sizes}


@dataclass(frozen=True, repr=False)
class TablePolicy(TensorPolicy):
    """A row [A] for every state."""

    table: Array
    output: Output
    rank = 0

    @property
    def actions(self) -> int:
        return self.table.shape[1]

    def outputs(self, observations: Array) -> Array:
        if not np.issubdtype(observations.dtype, np.integer):
            raise UserError(f"an observation is a state's number, 0 to {len(self.table) - 1}")
        return cast(Array, self.table[observations])

    def tensors(self) -> Tensors:
        return {"table": self.table}

    def description(self) -> Json:
        return {"kind": "table", "output": self.output, "sizes": list(self.table.shape)}


def _seen(observations: Array, scaling: Scaling | None, size: int) -> Array:
    if observations.shape[-1] != size:
        raise UserError(f"an observation has {size} numbers, not {observations.shape[-1]}")
    return (observations if scaling is None else scaling(observations)).astype(np.float32)


def _common(policy: NetworkPolicy | FourierPolicy) -> Tensors:
    """Scaling, deviation and bounds, as far as there are any."""
    found: Tensors = {}
    if policy.scaling is not None:
        found |= {"shift": policy.scaling.shift, "scale": policy.scaling.scale}
    if policy.log_std is not None:
        found["log_std"] = policy.log_std
    if policy.box is not None:
        found |= {f"action_{name}": getattr(policy.box, name) for name in BOX}
    return found


BOX = ("middle", "reach", "low", "high")


def restored(description: Tables, tensors: Mapping[str, Array]) -> TensorPolicy:
    """The policy that said these; a KeyError or ValueError of what is none."""
    scaling = Scaling(tensors["shift"], tensors["scale"]) if "shift" in tensors else None
    box = (
        ActionBox(*(tensors[f"action_{name}"] for name in BOX)) if "action_low" in tensors else None
    )
    output = description["output"]
    match description["kind"]:
        case "network":
            count = sum(name[:1] == "w" and name[1:].isdecimal() for name in tensors)
            layers = tuple((tensors[f"w{i}"], tensors[f"b{i}"]) for i in range(count))
            return NetworkPolicy(
                layers, description["activation"], output, scaling, tensors.get("log_std"), box
            )
        case "fourier":
            return FourierPolicy(
                tensors["omega"], tensors["phase"], tensors["rows"], description["scale"], scaling
            )
        case "table":
            return TablePolicy(tensors["table"], output)
    raise ValueError(f"no policy is of the kind {description['kind']!r}")


def of_parameters(
    theta: Tensors, scaling: Scaling | None = None, box: ActionBox | None = None
) -> TensorPolicy:
    """The policy of a policy gradient's parameters: a table, or a network of tanh layers."""
    for output in ("logits", "probabilities"):
        if output in theta:
            return TablePolicy(np.asarray(theta[output]), cast(Output, output))
    count = sum(name.startswith("w") for name in theta)
    layers = tuple((np.asarray(theta[f"w{i}"]), np.asarray(theta[f"b{i}"])) for i in range(count))
    log_std = theta.get("log_std")
    output = "logits" if log_std is None else "mean"
    return NetworkPolicy(layers, "tanh", cast(Output, output), scaling, log_std, box)
