"""The parts of FedQHD's page beside its tables: D, m, N, and targets that nobody syncs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fedrl.runs.grid import Trained
from reproductions.fedqhd import figures, numbers
from reproductions.fedqhd.cells import CLIENTS, REFERENCE
from reproductions.fedqhd.gap import FITTED, RIDGELESS
from reproductions.fedqhd.methods import METHODS, TASKS
from reproductions.fedqhd.numbers import GAIN, SLOPE, TABLE1, BySeed, prose
from reproductions.fedqhd.results import Results
from reproductions.markdown import missing, number, table
from reproductions.verdicts import slope

ALONE = "box, alone, λ → 0"
LAST_ROUNDS = 3
"""Evaluations behind a policy's value: one of 20 episodes is noisy."""


# Errors


def errors(
    results: Results, part: str, ridge: float, kind: str = "error", source: str = "rollouts"
) -> dict[int, np.ndarray]:
    """By D (or m, where D is fixed), numbers of a kind [draws]: means over clients."""
    key = "features" if part == "dimension" else "anchors"
    found: dict[int, list[float]] = {}
    for draw in results.errors[part]:
        for point in draw:
            if point["ridge"] == ridge and point["source"] == source:
                found.setdefault(int(point[key]), []).append(float(np.mean(point[kind])))
    return {at: np.array(values) for at, values in found.items()}


Lines = dict[str, dict[int, np.ndarray]]


def by_dimension(results: Results) -> Lines:
    """What Figure 1 shows of errors, the paper's first; nothing where nothing was measured."""
    used = results.ridge
    shown = {
        f"largest error, λ = {used:g}": errors(results, "dimension", used),
        f"largest error, λ = {RIDGELESS:g}": errors(results, "dimension", RIDGELESS),
        f"rms error, λ = {used:g}": errors(results, "dimension", used, "rms"),
    }
    return {label: by for label, by in shown.items() if by}


def by_anchors(results: Results) -> Lines:
    """The same for Figure 3: with anchors of random play and of the box, and a client alone."""
    used = results.ridge
    shown = {
        f"random play, λ = {used:g}": errors(results, "anchors", used),
        f"box, λ = {used:g}": errors(results, "anchors", used, source="box"),
        ALONE: errors(results, "anchors", used, "alone", "box"),
    }
    return {label: by for label, by in shown.items() if by}


def slopes(by: Mapping[int, np.ndarray]) -> np.ndarray:
    """Per draw, of log error against log size."""
    x = np.array(list(by))
    return np.array([slope(x, y) for y in np.stack(list(by.values()), 1)])


def regimes(by: Mapping[int, np.ndarray], fixed: int) -> tuple[np.ndarray, np.ndarray]:
    """Per draw, the slopes of log error against log m up to m = D and from there on."""
    below = {m: values for m, values in by.items() if m <= fixed}
    above = {m: values for m, values in by.items() if m >= fixed}
    return slopes(below), slopes(above)


def span(results: Results, part: str) -> str:
    """How large values are, so that an error means something."""
    ranges = [p["range"] for draw in results.errors[part] for p in draw]
    return f"{np.mean(ranges):.0f}" if ranges else "–"


# Figure 1


def dimension(results: Results, pictures: Path) -> str:
    title = "Figure 1: the encoder's dimension D"
    found, scale = results.parts["dimension"], results.scale
    runs = [one for one in found.values() if one.cell.part == "dimension"]
    measured = by_dimension(results)
    if not measured and not any(one.runs for one in runs):
        return missing(title)
    rows, gaps = [], {}
    for features in scale.dimensions:
        one = found[f"D{features}-m{scale.ratio * features}"]
        gaps[features] = policy_gap(results, one)
        rows.append([
            str(features), str(scale.ratio * features),
            *(number(by[features], 2) for by in measured.values()),
            numbers.shown(numbers.last(one)), numbers.shown(value(one)),
            numbers.shown(gaps[features]),
        ])  # fmt: skip
    head = ("D", "m", *measured, "last 100 episodes", "greedy return", "gap to Oracle QHD's")
    losses = {features: list(lost.values()) for features, lost in gaps.items()}
    falling = ", ".join(
        f"{number(slopes(by), 3)} ({label.replace(', λ', ' with λ')})"
        for label, by in measured.items()
    )
    text = f"""CartPole with own encoders, all of D features, m = {scale.ratio}D anchors, {CLIENTS}
        clients. *Largest error*: the largest |Q̂_i − compiled| over {scale.held_out:,} held-out
        states of random rollouts and both actions, mean over clients, {scale.draws} draws of
        encoders and anchors; *rms* is the root mean square over the same states. Q* is the value
        function of Oracle QHD (D = {scale.features:,}, the clients' σ0, runs of its own in turn;
        its values on these states span {span(results, "dimension")}),
        Q̂_i its fit in client i's features on
        {scale.fit_states:,} other states, with a ridge of {FITTED:g} per state, and the
        teacher is the clients' mean on the anchors: the paper's definition, without the noise of
        learning. Intervals are over draws, given the {len(scale.seeds)} Q*. λ = {results.ridge:g}
        is the recipes'. The log-log slope in D: {falling or "not measured"}. The paper's is
        {SLOPE}, the theory's −1/2.

        The runs beside it train with that D and m ({len(scale.seeds)} seeds). *Greedy return* is
        that of compiled readouts, mean of the last {LAST_ROUNDS} rounds."""
    image = figures.dimension(results, measured, losses, pictures)
    return "\n\n".join([f"## {title}", prose(text), table(head, rows), image])


def value(one: Trained) -> dict[int, float]:
    """The greedy policy's, by seed."""
    return numbers.late(one, "eval/return", LAST_ROUNDS)


def policy_gap(results: Results, one: Trained) -> dict[int, float]:
    """How much less than Oracle QHD's greedy policy earns, by seed."""
    best = value(oracle(results))
    return {seed: best[seed] - ours for seed, ours in value(one).items() if seed in best}


def oracle(results: Results) -> Trained:
    return results.parts["dimension"][REFERENCE]


# Figure 3


def anchors(results: Results, pictures: Path) -> str:
    scale = results.scale
    title = f"Figure 3: the number of anchors m, at D = {scale.fixed}"
    found = {one.cell.name: one for one in results.parts["anchors"].values()
             if one.cell.part == "anchors"}  # fmt: skip
    measured = by_anchors(results)
    if not measured and not any(one.runs for one in found.values()):
        return missing(title)
    rows = []
    for count in scale.anchors:
        one = found.get(f"D{scale.fixed}-m{count}")
        rows.append([
            str(count), f"{count / scale.fixed:.2g}",
            *(compact(by[count]) for by in measured.values()),
            "–" if one is None else numbers.shown(numbers.last(one)),
            "–" if one is None else numbers.shown(value(one)),
        ])  # fmt: skip
    head = ("m", "m / D", *measured, "last 100 episodes", "greedy return")
    text = f"""As for Figure 1, with D = {scale.fixed} and another m. {explained(results)}"""
    image = figures.anchors(results, measured, found, pictures)
    return "\n\n".join([f"## {title}", prose(text), table(head, rows), image])


def compact(values: np.ndarray) -> str:
    """An error that may be far below 1."""
    return number(values, 2) if values.mean() >= 0.1 else f"{values.mean():.0e}"


def explained(results: Results) -> str:
    """Why m = D shows with some anchors and not with others."""
    fixed, used = results.scale.fixed, results.ridge
    seen = {
        source: errors(results, "anchors", used, "seen", source) for source in ("rollouts", "box")
    }
    if not all(seen.values()):
        return "The errors are not measured."
    most = max(seen["rollouts"])
    some = {source: by[most].mean() for source, by in seen.items()}
    return f"""m = D is where anchors can tell all D directions of a readout apart, if they differ
        enough. *Alone* shows it: a client compiles its own oracle with λ → 0, from anchors drawn
        uniformly in the box of plausible states. States of random play differ less: of {fixed}
        directions, {most:,} of them tell {some["rollouts"]:.0f} apart by more than
        λ = {used:g} hides (Σ s²/(s² + λ) over the singular values s of their features), and as many
        states of the box {some["box"]:.0f}. Where these are far fewer than D, the error falls with
        m, but m = D is no border."""


# Figure 4


def by_clients(results: Results, task: str) -> dict[int, BySeed]:
    """By N, the return of the last round's episodes, mean over clients."""
    found = results.parts["clients"]
    cells = {count: found[f"{task}-{count}"] for count in results.scale.agents}
    cells[CLIENTS] = found[f"{task}-fedqhd-shared"]
    return {n: numbers.last(cells[n], "train/return") for n in sorted(cells)}


def clients(results: Results, pictures: Path) -> str:
    title = "Figure 4: the number of clients N"
    ends = {task: by_clients(results, task) for task in results.scale.agent_tasks}
    if not any(values for by in ends.values() for values in by.values()):
        return missing(title)
    rows = []
    for task, by in ends.items():
        base = by[min(by)]
        for count, values in by.items():
            difference = numbers.gap(values, base)
            rows.append([
                TASKS[task], str(count), numbers.shown(values),
                "–" if count == min(by) or difference is None else numbers.told(difference),
            ])  # fmt: skip
    said = ", ".join(f"{TASKS[task]} +{percent}%" for task, percent in GAIN.items())
    scale = results.scale
    text = f"""FedQHD with a shared encoder of D = {scale.features:,}, {scale.rounds} rounds of
        {scale.episodes} episodes per client, {len(scale.seeds)} seeds. Returns of the last round's
        episodes, mean over clients. The paper, over the last 30 episodes: {said} from N = 1 to
        N = 20."""
    head = ("task", "N", "return", "against one client")
    image = figures.clients(ends, pictures)
    return "\n\n".join([f"## {title}", prose(text), table(head, rows), image])


# Targets


def unsynced(results: Results) -> str:
    title = "Targets that nobody syncs, and the paper's Independent QHD"
    found = results.parts["unsynced"]
    if not any(one.runs for one in found.values()):
        return missing(title)
    rows = []
    for task in results.scale.unsynced_tasks:
        column = list(TASKS).index(task)
        for method in ("independent", "fedqhd"):
            usual = results.parts["table"][f"{task}-{method}-shared"]
            rows.append([
                TASKS[task], METHODS[method].title,
                numbers.shown(numbers.last(found[f"{task}-{method}"])),
                numbers.shown(numbers.last(usual)),
                str(TABLE1[method]["shared"][column]),
            ])  # fmt: skip
    head = ("task", "method", "synced by the server's word only", "synced as in Table 1",
            "the paper's")  # fmt: skip
    text = f"""The paper's algorithms set the target to what the server sends and then sync it
        "every τ eps", and say no τ. If τ is longer than the {results.scale.episodes} episodes
        between two exchanges, clients that federate still get a fresh target with every word of the
        server, and a client alone never does: its target stays 0, so that its values look one step
        ahead. That would make a gap between the two which is not federation's. Everywhere else on
        this page the targets of all methods are synced alike. Shared encoder, the rest as in
        Table 1."""
    return "\n\n".join([f"## {title}", prose(text), table(head, rows)])
