"""One client's influence, bounded: its update as one long vector, no longer than C.

The bound is on all numbers together (flat clipping): Δ ← Δ · min(1, C / ‖Δ‖₂). Methods that send
values instead of changes (FedQHD's readouts and teachers, DQN's weights: `SendsParameters`) are
bounded in the difference from the values that were broadcast, which everybody knows already.

Counts of who holds a row (`HeldApart`) are within the bound like all else, but half a count is
none: of an update that is too long the change gives way.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fedrl.core import tree
from fedrl.core.abilities import HeldApart, sends_parameters
from fedrl.core.types import Algorithm, Tensors, UserError


@dataclass(frozen=True)
class Layout:
    """How an update is one vector of doubles: its change from `reference`, tensor by tensor."""

    shapes: dict[str, tuple[int, ...]]
    dtypes: dict[str, np.dtype]
    reference: dict[str, np.ndarray]
    counts: frozenset[str] = frozenset()

    @property
    def size(self) -> int:
        return sum(math.prod(shape) for shape in self.shapes.values())

    def vector(self, update: Tensors) -> np.ndarray:
        flat = tree.flatten(update)
        parts = []
        for name in self.shapes:
            leaf = np.asarray(flat[name], np.float64)
            base = self.reference.get(name)
            parts.append((leaf if base is None else leaf - base).reshape(-1))
        return np.concatenate(parts)

    def update(self, vector: np.ndarray) -> Tensors:
        """The update whose vector this is, in the dtypes that were declared."""
        flat: dict[str, np.ndarray] = {}
        first = 0
        for name, shape in self.shapes.items():
            after = first + math.prod(shape)
            leaf = vector[first:after].reshape(shape)
            base = self.reference.get(name)
            flat[name] = (leaf if base is None else leaf + base).astype(self.dtypes[name])
            first = after
        return tree.unflatten(flat)

    def shorten(self, vector: np.ndarray, bound: float) -> np.ndarray:
        """`shorten`, of the change alone if the counts leave room for it."""
        if not self.counts or not length(vector) > bound:
            return shorten(vector, bound)
        sizes = [math.prod(shape) for shape in self.shapes.values()]
        counted = np.repeat([name in self.counts for name in self.shapes], sizes)
        room = bound**2 - length(vector[counted]) ** 2
        if not room > 0:
            return shorten(vector, bound)
        short = vector.copy()
        # A little less than the room, or rounding would leave the whole a little too long.
        short[~counted] = shorten(vector[~counted], math.sqrt(room) * (1 - 1e-12))
        return short


def layout(algorithm: Algorithm, broadcast: Tensors) -> Layout:
    """The layout of a round's updates, and what they are differences from."""
    specs = dict(sorted(algorithm.declare(broadcast).items()))
    dtypes = {name: np.dtype(spec.dtype) for name, spec in specs.items()}
    if others := [name for name, dtype in dtypes.items() if dtype.kind != "f"]:
        raise UserError(f"privacy.clip bounds real numbers, and {others[0]} is {dtypes[others[0]]}")
    known = tree.flatten(broadcast) if sends_parameters(algorithm) else {}
    if known and not specs.keys() <= known.keys():
        raise UserError(
            "privacy.clip: the method sends values that are not in its broadcast, so there is "
            "nothing to bound their difference from: remove [privacy]"
        )
    base = {name: np.asarray(known[name], np.float64) for name in specs} if known else {}
    counts = algorithm.counts if isinstance(algorithm, HeldApart) else frozenset()
    return Layout({name: tuple(spec.shape) for name, spec in specs.items()}, dtypes, base, counts)


def length(vector: np.ndarray) -> float:
    """‖x‖₂, without overflow on the way."""
    largest = float(np.max(np.abs(vector), initial=0.0))
    if largest == 0 or not math.isfinite(largest):
        return largest
    return largest * float(np.linalg.norm(vector / largest))


def shorten(vector: np.ndarray, bound: float) -> np.ndarray:
    """The nearest vector of length at most `bound`: itself, or on the sphere."""
    long = length(vector)
    # What is not finite stays as it is: the server's check refuses it and says why.
    return vector if long <= bound or not math.isfinite(long) else vector * (bound / long)


def bounded(vector: np.ndarray, bound: float) -> np.ndarray:
    """`shorten` for those who do not see the vector: what has no length counts as no change.

    Left as it is, one number that is not finite would let all others through the bound; and that
    there is one would be told without noise.
    """
    return shorten(vector, bound) if np.isfinite(vector).all() else np.zeros_like(vector)


def clip(update: Tensors, bound: float, form: Layout) -> Tensors:
    """The update with its change scaled down to length `bound`; a short one is left untouched."""
    vector = form.vector(update)
    short = form.shorten(vector, bound)
    return update if short is vector else form.update(short)


def vectors(
    stream: Iterable[tuple[Tensors, float]], bound: float, form: Layout
) -> Iterable[np.ndarray]:
    """The server's own look: a client that did not keep to the bound is made to."""
    return (form.shorten(form.vector(update), bound) for update, _ in stream)
