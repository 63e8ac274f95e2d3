"""`fedrl gap`: what agreeing on anchors costs each client of a FedQHD run, term by term.

The terms and what is behind them are in `algorithms/qhd/federation_gap.py`; here they are measured
on a run's newest checkpoint: its encoders, its anchors, what its clients hold (the checkpoint is as
their disks), and held-out states of other random play or of the box of plausible ones.
docs/fedqhd.md explains how to read them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

import numpy as np
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from fedrl.algorithms.qhd import encoders as rff
from fedrl.algorithms.qhd.federation_gap import Gap, federation_gap
from fedrl.config.build import build_algorithm
from fedrl.config.loading import read_recipe, resolve
from fedrl.config.schema import Config
from fedrl.core import seeding
from fedrl.core.types import Json, UserError
from fedrl.federation import round_loop
from fedrl.runs.evaluate import newest
from fedrl.runs.run_dir import RunDir, require_run

if TYPE_CHECKING:
    from fedrl.algorithms.qhd.fedqhd import FedQHD

AT_ONCE = 5
"""Clients side by side in a table of 80 columns."""

SHARED = (
    "this run's clients share one encoder: averaging readouts averages their value functions, so "
    "nothing is compiled and there is no gap; Theorem 2 is about --algorithm.encoders own"
)

TERMS = ("heterogeneity", "amplification", "shrinkage", "unseen", "learning")
WORDS = {
    "heterogeneity": "I heterogeneity",
    "amplification": "II amplification",
    "shrinkage": "III shrinkage",
    "unseen": "unseen by anchors",
    "learning": "learning",
}
REMEDIES = {
    "heterogeneity": "encoders that are more alike help: a smaller bandwidth_spread, more features",
    "amplification": "anchors that differ more help, and a larger ridge, which adds to III",
    "shrinkage": "a smaller ridge helps, as long as II stays below it",
    "unseen": "more anchors help",
    "learning": "more rounds help: clients are far from the best that their encoders can do",
}


class Run(NamedTuple):
    """A run as its newest checkpoint left it."""

    path: Path
    config: Config
    method: FedQHD
    last: round_loop.Snapshot


@dataclass(frozen=True)
class GapReport:
    """Everything that is printed and drawn; lists are by client, in the order of `clients`."""

    title: str
    clients: Sequence[int]
    sizes: Sequence[int]  # D_i
    weights: Sequence[int]  # per action: D_i, or 2 D_i of a complex encoder
    bandwidths: Sequence[float]  # σ_i
    anchors: int  # m
    states: int  # n
    ridge: float  # λ
    reference: str
    agree: str
    largest: float  # max |Q*|
    gaps: Sequence[Gap]
    notes: Sequence[str] = ()

    def angle(self, index: int) -> float:
        """Largest principal angle of a client with any other, degrees."""
        return max(self.pair(index, j) for j in range(len(self.gaps)) if j != index)

    def pair(self, index: int, other: int) -> float:
        return float(np.degrees(self.gaps[index].angles[other].max(initial=0.0)))


def open_run(path: Path, wanted: Sequence[str], flag: str = "") -> Run:
    """Its newest checkpoint; `flag` is the one that asked for it, `wanted` the methods that may."""
    require_run(path)
    config = resolve(read_recipe(path / "config.toml"))
    if config.algorithm.name not in wanted:
        raise UserError(
            f"{flag}{path} is a run of {config.algorithm.name}; name one of {' or '.join(wanted)}"
        )
    last = newest(RunDir(path).checkpoints(), config)
    if last is None or not last.clients:
        raise UserError(f"{flag}{path} has no round yet: nobody has learned anything")
    method = cast("FedQHD", build_algorithm(config))
    return Run(path, config, method, last)


def is_shared(path: Path) -> bool:
    """Whether there is nothing to measure, because one encoder serves all clients."""
    require_run(path)
    settings = resolve(read_recipe(path / "config.toml")).algorithm
    return settings.name == "fedqhd" and settings.encoders == "shared"


def measure(
    path: Path,
    states: int,
    seed: int = 0,
    reference: Path | None = None,
    source: Literal["rollouts", "box"] = "rollouts",
) -> GapReport:
    """Every term of every client that has taken part so far, on `states` held-out states."""
    if states < 1:
        raise UserError(f"--states is {states}; it must be at least 1")
    if seed < 0:
        raise UserError(f"--seed is {seed}; it must not be negative")
    run = open_run(path, ["fedqhd"])
    method, kind = run.method, run.config.federation.kind
    if not method.by_values:
        raise UserError(
            f"{path} averages readouts that are cut to the smallest; Theorem 2 is about clients "
            'that agree on anchors, agree = "values" or "corrections"'
        )
    clients = sorted(run.last.clients)
    if kind in ("centralized", "local") or len(clients) < 2:
        raise UserError(f"{path} has one client ({kind}): it agrees with nobody")
    oracle = None if reference is None else _reference(reference, run)

    from fedrl.algorithms.qhd import anchors

    state = run.last.states[0]
    held_out = anchors.draw(method.world, states, source, "", seeding.derive(seed, "gap"))
    everywhere = np.concatenate([state["anchors"], held_out])
    encoders = [method.client(client, state).encoder for client in clients]
    target = held_values(run if oracle is None else oracle, everywhere)
    scaled = method.world.scaling(everywhere)
    m, ridge = len(state["anchors"]), method.settings.ridge
    gaps = federation_gap(
        encoders, scaled[:m], scaled[m:], target, ridge, readouts=[*_readouts(run).values()]
    )
    return GapReport(
        title=f"{method.world.name}, {len(clients)} clients, round {run.last.round}",
        clients=clients,
        sizes=[encoder.features for encoder in encoders],
        weights=[encoder.features * (2 if encoder.complex else 1) for encoder in encoders],
        bandwidths=[method.bandwidth(client, state) for client in clients],
        anchors=m,
        states=states,
        ridge=ridge,
        reference="the mean of what the clients hold" if reference is None else str(reference),
        agree=method.settings.agree,
        largest=float(np.abs(target).max()),
        gaps=gaps,
        notes=list(_circumstances(run, clients)),
    )


def _circumstances(run: Run, clients: Sequence[int]) -> Iterator[str]:
    absent = run.config.federation.clients - len(clients)
    if absent:
        yield f"{absent} clients have not taken part yet and are left out."
    if run.config.federation.kind == "independent":
        yield "These clients learn alone: this is what agreeing now would cost them."
    if run.config.aggregate.name != "mean" or run.config.federation.cohort:
        yield (
            "The teacher here is the mean of all clients as they are now; the run's own, with "
            f"aggregate.name = {run.config.aggregate.name} and cohorts of "
            f"{run.config.federation.cohort or 'all'}, is another."
        )
    if run.method.settings.agree == "corrections":
        yield (
            "These clients compile corrections and keep what no anchor sees: the gap is the one "
            "that compiling the teacher itself would leave."
        )


def _reference(path: Path, run: Run) -> Run:
    oracle = open_run(path, ["fedqhd", "truncate-qhd"], "--reference ")
    mine, other = run.method.world.name, oracle.method.world.name
    if mine != other:
        raise UserError(f"--reference {path} plays {other}, the run {mine}")
    return oracle


def held_values(run: Run, states: np.ndarray) -> np.ndarray:
    """Q [n, |A|] of raw states: the mean of what the run's clients hold now."""
    method, state = run.method, run.last.states[0]
    scaled = method.world.scaling(states)
    each = [
        rff.values(method.client(client, state).encoder, readout, scaled)
        for client, readout in _readouts(run).items()
    ]
    return np.mean(each, axis=0)


def _readouts(run: Run) -> dict[int, np.ndarray]:
    """W_i [D_i, |A|] of every client that has taken part."""
    state, kept = run.last.states[0], run.last.clients
    return {
        client: rff.unpack(run.method.client(client, state).encoder, kept[client]["online"])
        for client in sorted(kept)
    }


def advice(report: GapReport) -> Iterator[str]:
    """What follows from the terms, and what mends it."""
    gaps, m = report.gaps, report.anchors
    worst = max(range(len(gaps)), key=lambda i: gaps[i].measured)
    share = gaps[worst].measured / report.largest if report.largest else 0.0
    yield (
        f"The largest measured gap is {gaps[worst].measured:.3g} (client {report.clients[worst]}), "
        f"{share:.1%} of the largest |Q*|, {report.largest:.3g}."
    )
    few = [i for i, needed in enumerate(report.weights) if needed > m]
    if few:
        most = max(report.weights[i] for i in few)
        yield (
            f"m = {m} anchors are fewer than the weights per action of {_who(report, few)} (up to "
            f"{most:,}): at every exchange "
            f"{'nobody hears of' if report.agree == 'corrections' else 'they lose'} what no anchor "
            "sees. The theorem asks for "
            f"m ≥ D_i: --algorithm.anchors {most}, or --algorithm.sizes of at most {m}."
        )
    for i, gap in enumerate(gaps):
        if gap.warning and i not in few:
            yield gap.warning.replace(f"client {i}:", f"client {report.clients[i]}:", 1) + "."
    above = [i for i, gap in enumerate(gaps) if gap.measured > gap.bound]
    if above:
        yield (
            f"The gap of {_who(report, above)} is above the paper's bound, which leaves out what "
            "no anchor sees and what is not learned yet; the repaired bound counts both."
        )
    leading = [max(TERMS, key=lambda term: getattr(gap, term)) for gap in gaps]
    term = max(TERMS, key=leading.count)
    yield (
        f"The largest term is {WORDS[term]} for {leading.count(term)} of {len(gaps)} clients; "
        f"{REMEDIES[term]}."
    )
    total = m + report.states
    blind = [i for i, needed in enumerate(report.weights) if needed >= total]
    if blind:
        yield (
            f"There are no more states, m + n = {total:,}, than weights per action of "
            f"{_who(report, blind)}: but for rounding they can represent everything there, so ε, "
            "the angles, I and II tell nothing about them. --states above "
            f"{max(report.weights):,} would, and its time grows with the cube."
        )


def _who(report: GapReport, places: Sequence[int]) -> str:
    if len(places) == len(report.clients):
        return "all clients"
    names = ", ".join(str(report.clients[i]) for i in places)
    return f"client{'s' if len(places) > 1 else ''} {names}"


def rows(report: GapReport) -> dict[str, list[str]]:
    """The table: a line per quantity, a cell per client."""
    gaps = report.gaps
    cells: dict[str, list[str]] = {
        "features D_i": [f"{size:,}" for size in report.sizes],
        "bandwidth σ_i": [f"{sigma:.3g}" for sigma in report.bandwidths],
        "largest angle": [f"{report.angle(i):.1f}°" for i in range(len(gaps))],
    }
    numbers: dict[str, str] = {
        "representation error ε_i": "representation",
        "γ_i": "gamma",
        "‖Ŵ_i‖": "oracle_norm",
        **{WORDS[term]: term for term in TERMS[:3]},
        "the paper's bound": "bound",
        **{WORDS[term]: term for term in TERMS[3:]},
        "repaired bound": "repaired",
        "measured gap": "measured",
    }
    for name, attribute in numbers.items():
        cells[name] = [f"{getattr(gap, attribute):.3g}" for gap in gaps]
    return cells


def show(report: GapReport, console: Console) -> None:
    """Tables of a few clients each, then the advice."""
    console.print(
        f"Federation gap on {report.title}: m = {report.anchors} anchors, n = {report.states} "
        f"held-out states, λ = {report.ridge:g}; Q* is {report.reference}",
        soft_wrap=True, markup=False,
    )  # fmt: skip
    cells = rows(report)
    for first in range(0, len(report.clients), AT_ONCE):
        table = Table(box=SIMPLE, padding=(0, 1, 0, 0))
        table.add_column("client")
        for client in report.clients[first : first + AT_ONCE]:
            table.add_column(str(client), justify="right")
        for name, values in cells.items():
            strong = name in ("the paper's bound", "repaired bound", "measured gap")
            table.add_row(name, *values[first : first + AT_ONCE], style="bold" if strong else "")
        console.print(table)
    for line in (*report.notes, *advice(report)):
        console.print(f"• {line}", soft_wrap=True, markup=False)


def as_json(report: GapReport) -> Json:
    """The same numbers for programs; angles are in degrees, [client, client]."""
    count = range(len(report.clients))
    return {
        "anchors": report.anchors,
        "states": report.states,
        "ridge": report.ridge,
        "reference": report.reference,
        "largest_value": report.largest,
        "angles": [[report.pair(i, j) for j in count] for i in count],
        "clients": [
            {
                "client": report.clients[i],
                "features": report.sizes[i],
                "bandwidth": report.bandwidths[i],
                "angle": report.angle(i),
                **{
                    key: getattr(report.gaps[i], key)
                    for key in ("representation", "gamma", "oracle_norm", "mismatch", *TERMS)
                },
                "bound": report.gaps[i].bound,
                "repaired": report.gaps[i].repaired,
                "measured": report.gaps[i].measured,
            }
            for i in count
        ],
        "advice": [*report.notes, *advice(report)],
    }
