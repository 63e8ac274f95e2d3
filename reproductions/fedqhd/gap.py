"""The compilation error of FedQHD, measured: how far a compiled client is from its own oracle.

The paper's Figures 1 and 3 show the largest deviation, on states that no anchor is, between what a
client compiled and the best that its encoder can do. All of it is linear algebra once Q* is known:

    Q*        the value function of a trained Oracle QHD
    Q̂_i       its ridge fit in client i's features, on many states of random play
    teacher   the mean of Q̂_1 … Q̂_N on m anchors, other states of random play
    compiled  the ridge solve of client i, as FedQHD does it
    error     max over held-out states and actions of |Q̂_i − compiled|, mean over clients

`alone` is that error with nobody else in the teacher and λ → 0: what anchors do not see of a
client's own oracle, the part of the gap that m ≥ D ends.

`algorithms/federation_gap` has every term of Theorem 2 for one run; here there is one of them, for
many D and m.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from fedrl.config.build import build_algorithm
from fedrl.config.loading import as_dict
from fedrl.config.schema import Config
from fedrl.core import seeding
from fedrl.core.types import Json, UserError
from fedrl.runs.evaluate import newest
from fedrl.runs.grid import find, short_hash
from fedrl.runs.run_dir import RunDir
from reproductions.records import rounded

if TYPE_CHECKING:
    from fedrl.algorithms.qhd.fedqhd import FedQHD

Points = tuple[tuple[int, int], ...]

Source = Literal["rollouts", "box"]
"""Of all states of a measurement: random play, or uniform in the box of plausible ones."""
SOURCES: Mapping[str, tuple[Source, ...]] = {
    "dimension": ("rollouts",),
    "anchors": ("rollouts", "box"),
}
RIDGELESS = 1e-6
"""The λ that shows what is left when the ridge hardly shrinks anything."""
USUAL = 1e-3
"""The λ of the recipes."""
FITTED = 1e-6
"""λ of an oracle's fit, per state. It decides what Figure 1 shows: features of random play are
nearly dependent, and a fit with hardly any ridge (1e-9 and less were tried) takes values outside
that play which mean nothing and which no teacher can pass on; the error then grows with D."""
DECOMPOSED = 512
"""Features up to which singular values are worth their time."""


@dataclass(frozen=True)
class Measurement:
    """One draw of encoders, anchors and states, at several (D, m); `reference` has finished."""

    part: str
    draw: int
    source: Source
    points: Points
    ridges: tuple[float, ...]
    fit_states: int
    held_out: int
    learner: Config
    reference: Config

    @property
    def name(self) -> str:
        return f"{self.part}: errors, {self.source}, draw {self.draw}"

    @property
    def digest(self) -> str:
        settings = {**dataclasses.asdict(self), "learner": self._encoders(), "reference": ""}
        return short_hash([settings, Path(self.reference.name).name])

    def _encoders(self) -> Json:
        """What of the learner's settings moves an error; D, m and λ are the points'."""
        s = self.learner.algorithm
        clients = self.learner.federation.clients
        world = as_dict(self.learner.world)
        return {"world": world, "clients": clients, "bandwidth": s.bandwidth,
                "spread": s.bandwidth_spread, "complex": s.complex}  # fmt: skip


def averaged(one: Measurement) -> list[Json]:
    """The errors of every point and ridge as a record has them: means over clients."""

    def mean(value: Any) -> Any:
        return rounded(float(np.mean(value))) if isinstance(value, list) and value else value

    return [{key: mean(value) for key, value in point.items()} for point in measure(one)]


def measure(one: Measurement) -> list[Json]:
    """For every point and ridge, the error of each client: largest, and root mean square.

    `disagreement` is how far the mean of the oracles is from a client's own, at most: what Lemma 1
    bounds by h̄. With few features also `alone`; `gamma`, γ of Theorem 2: the smallest eigenvalue of
    the anchors' Gram matrix that is not 0; and `seen`: how many directions the anchors tell more of
    than the ridge hides, Σ s²/(s² + λ) over the singular values s of their features.
    """
    world = build(one.learner).world
    fit, held_out = (
        states_of(world, count, one, purpose)
        for purpose, count in (("fit", one.fit_states), ("held out", one.held_out))
    )
    truth, span = (reference_values(one.reference, states) for states in (fit, held_out))
    found = []
    for features in dict.fromkeys(features for features, _ in one.points):
        group = _clients(one, features, fit, truth)
        for anchors in (anchors for same, anchors in one.points if same == features):
            found += _point(one, group, anchors, held_out)
    common = {"source": one.source, "range": float(np.ptp(span))}
    return [point | common for point in found]


class _Clients(NamedTuple):
    """Encoders of one D and the readouts of their oracles: the same for every m."""

    algorithm: FedQHD
    encoders: list[Any]
    oracles: list[np.ndarray]


def _clients(one: Measurement, features: int, fit: np.ndarray, truth: np.ndarray) -> _Clients:
    from fedrl.algorithms.qhd import encoders as rff
    from fedrl.algorithms.qhd.ridge import Compiler

    settings = replace(one.learner.algorithm, sizes=(features,))
    algorithm = build(replace(one.learner, algorithm=settings))
    start = algorithm.init(_seed(one))
    numbers = range(one.learner.federation.clients)
    encoders = [algorithm.client(number, start).encoder for number in numbers]
    scaled = algorithm.world.scaling(fit)
    oracles = [
        Compiler(rff.design(encoder, scaled), FITTED * len(truth)).compile(truth)
        for encoder in encoders
    ]
    return _Clients(algorithm, encoders, oracles)


def _point(one: Measurement, group: _Clients, count: int, held_out: np.ndarray) -> list[Json]:
    """All ridges at one D and m."""
    from fedrl.algorithms.qhd import encoders as rff
    from fedrl.algorithms.qhd.ridge import Compiler

    world = group.algorithm.world
    anchors = world.scaling(states_of(world, count, one, "anchors"))
    new = world.scaling(held_out)
    members = list(zip(group.encoders, group.oracles, strict=True))
    teacher = np.mean([rff.values(e, oracle, anchors) for e, oracle in members], axis=0)
    designs = [rff.design(encoder, anchors) for encoder in group.encoders]
    features = group.encoders[0].features
    said = [rff.values(encoder, oracle, new) for encoder, oracle in members]
    apart = [float(np.abs(np.mean(said, axis=0) - own).max()) for own in said]
    unseen, singular = [], []
    if features <= DECOMPOSED:
        for (encoder, oracle), rows in zip(members, designs, strict=True):
            compiled, _, _, values = np.linalg.lstsq(rows, rows @ oracle, rcond=None)
            unseen.append(float(np.abs(rff.values(encoder, oracle - compiled, new)).max()))
            singular.append(values)
    points = []
    for ridge in one.ridges:
        gaps = [
            rff.values(encoder, oracle - Compiler(rows, ridge).compile(teacher), new)
            for (encoder, oracle), rows in zip(members, designs, strict=True)
        ]
        points.append({
            "features": features, "anchors": count, "ridge": ridge,
            "error": [float(np.abs(gap).max()) for gap in gaps],
            "rms": [float(np.sqrt(np.mean(gap**2))) for gap in gaps],
            "disagreement": apart, "gamma": [float(s.min() ** 2) for s in singular],
            "alone": unseen, "seen": [float(np.sum(s**2 / (s**2 + ridge))) for s in singular],
        })  # fmt: skip
    return points


def reference_values(config: Config, states: np.ndarray) -> np.ndarray:
    """Q* [states, |A|] of the run's only client."""
    from fedrl.algorithms.qhd import encoders as rff

    path = find(config)
    snapshot = None if path is None else newest(RunDir(path).checkpoints())
    if snapshot is None:
        raise UserError(f"{config.name} has no checkpoint to take Q* from: compute it first")
    algorithm, state = build(config), snapshot.states[0]
    encoder = algorithm.client(0, state).encoder
    readout = rff.unpack(encoder, algorithm.readout(0, state))
    return rff.values(encoder, readout, algorithm.world.scaling(states))


def build(config: Config) -> FedQHD:
    return build_algorithm(config)  # type: ignore[return-value]


def states_of(world: Any, count: int, one: Measurement, purpose: str) -> np.ndarray:
    from fedrl.algorithms.qhd import anchors

    return anchors.draw(world, count, one.source, "", seeding.derive(_seed(one), purpose))


def _seed(one: Measurement) -> int:
    return seeding.derive(one.draw, "compilation")
