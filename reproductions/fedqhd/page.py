"""The result page of FedQHD: ours with intervals, the paper's numbers, and computed verdicts.

Every number comes from a run folder or from an error that was measured and kept. What was not
measured, or not to its end, is named.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from fedrl.core.number_format import duration
from fedrl.runs.grid import Trained
from fedrl.runs.read import Run
from reproductions.fedqhd import figures, numbers, sides
from reproductions.fedqhd.cells import CLIENTS, FULL
from reproductions.fedqhd.choices import choices, records, tuning
from reproductions.fedqhd.claims import better, claims, reaching, row
from reproductions.fedqhd.methods import ENCODERS, METHODS, TASKS, learner
from reproductions.fedqhd.numbers import TABLE1, TABLE2, BySeed, prose
from reproductions.fedqhd.results import Found, Results
from reproductions.markdown import missing, table

SHORTEST = 12.0
"""A return on CartPole of always the same push, a little more than nine steps."""
Paper = Mapping[str, Mapping[str, Sequence[float | None]]]
Reader = Callable[[Trained], BySeed]


def write(results: Results, scale: str, page: Path) -> None:
    pictures = page.with_suffix("")
    sections = [
        heading(results, scale),
        claims(results),
        table1(results),
        curves(results, pictures),
        table2(results),
        full_size(results),
        sides.unsynced(results),
        sides.clients(results, pictures),
        sides.dimension(results, pictures),
        sides.anchors(results, pictures),
        tuning(results),
        choices(results),
        left_out(results),
        costs(results),
    ]
    page.write_text("\n\n".join(filter(None, sections)) + "\n", encoding="utf-8")
    if tried := records(results):
        pictures.mkdir(parents=True, exist_ok=True)
        text = json.dumps(tried, indent=1)
        (pictures / "tuning.json").write_text(text + "\n", encoding="utf-8")


def heading(results: Results, scale: str) -> str:
    commits = sorted({str(run.meta["commit"]) for run in results.runs() if run.meta.get("commit")})
    sizes = results.scale
    before = """Paper: *FedQHD: Closed-Form Function-Space Federated Reinforcement Learning*.
        Everything below was written by"""
    after = f"""which keeps every run and goes on where it was stopped (`--processes 0` writes the
        page of what is there). Hardware: {computers(results)}. Commits (+: with local changes):
        {", ".join(commits) or "unknown"}.

        {CLIENTS} clients, {sizes.rounds} rounds of {sizes.episodes} episodes each,
        {len(sizes.seeds)} seeds. One encoder for all has D = {sizes.features:,}; own ones have D =
        {listed(sizes.sizes)}, in turn. A return is the mean of the last 100 episodes of training,
        exploration included, over clients; ± is a 95% t-interval over seeds."""
    return "\n\n".join([
        "# FedQHD: hyperdimensional Q-learning across clients", prose(before),
        f"    fedrl reproduce fedqhd --scale {scale}", prose(after),
    ])  # fmt: skip


def listed(sizes: Sequence[int]) -> str:
    return ", ".join(f"{size:,}" for size in sizes)


def computers(results: Results) -> str:
    return "; ".join(machines(results.runs())) or "unknown"


def machines(runs: Iterable[Run]) -> list[str]:
    """What computed, and how many runs at once."""
    found = set()
    for run in runs:
        hardware = run.meta.get("hardware", {})
        found.add(
            f"{hardware.get('cpu', 'unknown')}, {hardware.get('cores', '?')} cores, "
            f"{run.meta.get('processes', '?')} runs at a time, each on one thread"
        )
    return sorted(found)


# Tables


def table1(results: Results) -> str:
    text = f"""Ours, and the paper's in brackets. *Independent* and *Oracle* are the same learner in
        another federation: clients alone, and one client that plays all {CLIENTS} clients'
        episodes. With a shared encoder nothing is cut, so that Truncate FedAvg-QHD *is* FedQHD: the
        cell shows the same runs. An Oracle is alone, with one encoder or network: the same runs in
        both columns, too. It remembers as many transitions as one client, and its ε and its target
        go by its own episodes, of which it plays {CLIENTS} times as many. FedAvg cannot average
        networks of other sizes; with own encoders Distillation's networks have two layers of
        {listed(results.scale.widths)} units. The row *corrections* is not in the paper: a client
        compiles how the teacher differs from what it said, and so keeps what no anchor sees."""
    return "\n\n".join(filter(None, [
        "## Table 1: return of the last 100 episodes", prose(text),
        both(results.parts["table"], TABLE1, numbers.last, 1), prose(stuck(results)),
    ]))  # fmt: skip


def stuck(results: Results) -> str:
    """Runs on CartPole that ended with the shortest episodes there are."""
    told = []
    for name, one in results.parts["table"].items():
        task, _, who = name.partition("-")
        low = [str(seed) for seed, value in numbers.last(one).items() if value < SHORTEST]
        if task == "cartpole" and low:
            method, _, encoders = who.rpartition("-")
            told.append(f"{METHODS[method].title} ({encoders}) with seed {', '.join(low)}")
    if not told:
        return ""
    return f"""Stayed at nine steps on CartPole from the first round on: {"; ".join(told)}. Such
        a row says nothing about the method, only about these settings: [how clients
        learn](../fedqhd.md#how-clients-learn) has what was found about a network's targets."""


def table2(results: Results) -> str:
    text = f"""Wall-clock minutes of the rounds themselves, evaluations and checkpoints not counted,
        as the runs' `timings.jsonl` have them; the paper's, on hardware that it does not name, in
        brackets. Ours: {computers(results)}. Kernels were compiled before."""
    return "\n\n".join([
        "## Table 2: minutes per run", prose(text),
        both(results.parts["table"], TABLE2, numbers.minutes, 2),
    ])  # fmt: skip


def full_size(results: Results) -> str:
    """What there is of Table 1 with encoders as large as the paper's."""
    if not any(one.runs for one in results.full.values()):
        return ""
    hardware = "; ".join(
        machines(run for one in results.full.values() for run in one.runs.values())
    )
    text = f"""The same with the paper's encoders: D = {FULL.features:,} for all, own ones of
        {listed(FULL.sizes)}; settings as tuned at the smaller ones. Networks have no D: their runs
        are the same. Computed by `fedrl reproduce fedqhd --scale full --only table`, on
        {hardware}."""
    reached = [
        row("FedQHD reaches the paper's return", reaching(results.full)),
        row("FedQHD is better than Independent QHD", better(results.full, "independent")),
    ]
    head = ["the paper says", *(f"{title}, {e}" for title in TASKS.values() for e in ENCODERS)]
    return "\n\n".join([
        "## Table 1 at the paper's sizes", prose(text),
        both(results.full, TABLE1, numbers.last, 1), table(head, reached),
    ])  # fmt: skip


def both(found: Found, paper: Paper, values: Reader, digits: int) -> str:
    pieces = []
    for encoders in ENCODERS:
        rows = []
        for method, about in METHODS.items():
            name = learner(method, encoders)
            if name is None and method not in paper:
                continue
            cells = [about.title]
            for column, task in enumerate(TASKS):
                said = paper.get(method, {}).get(encoders, [None] * len(TASKS))[column]
                ours = {} if name is None else values(found[f"{task}-{name}"])
                cells.append(beside(name is not None, ours, said, digits))
            rows.append(cells)
        word = "One encoder for all" if encoders == "shared" else "Own encoders"
        pieces.append(f"{word}:\n\n" + table(["", *TASKS.values()], rows))
    return "\n\n".join(pieces)


def beside(possible: bool, ours: BySeed, paper: float | None, digits: int) -> str:
    if not possible:
        return "–"
    return numbers.shown(ours, digits) + (f" ({paper})" if paper is not None else "")


def curves(results: Results, pictures: Path) -> str:
    title = "Figure 2: learning curves"
    tasks = [task for task in TASKS if played(results, task)]
    if not tasks:
        return missing(title)
    text = """Mean return of a round's episodes, exploration included, over clients; bands are 95%
        t-intervals over seeds. Oracle learners play all clients' episodes in a round. With a shared
        encoder Truncate FedAvg-QHD is FedQHD and is not drawn again; Oracle DQN is the same line in
        both panels."""
    pieces = [f"## {title}", prose(text)]
    found = results.parts["table"]
    return "\n\n".join(pieces + [figures.learning(found, task, pictures) for task in tasks])


def played(results: Results, task: str) -> bool:
    found = results.parts["table"].items()
    return any(one.runs for name, one in found if name.startswith(f"{task}-"))


# What is missing, and what there is


def left_out(results: Results) -> str:
    """Runs that are not there, or not to their end; a tuning that nobody asked for is no gap."""
    told = [
        f"{TASKS[task]}: {why}" for task, why in results.absent.items() if not played(results, task)
    ]
    for part, found in results.parts.items():
        if part == "tuning" and not any(one.runs for one in found.values()):
            continue
        told += [
            f"{part}, {one.cell.name}: {line}"
            for one in found.values()
            if one.cell.part == part and (line := one.missing())
        ]
    return "## Missing\n\n" + "\n".join(f"- {line}" for line in told) if told else ""


def costs(results: Results) -> str:
    rows = []
    for part, found in results.parts.items():
        ran = [run for one in found.values() if one.cell.part == part for run in one.runs.values()]
        if ran:
            last = [run.rounds[max(run.rounds)] for run in ran]
            rows.append([
                part, str(len(ran)), duration(sum(run.seconds for run in ran)),
                f"{sum(metrics.get('env/steps', 0.0) for metrics in last):,.0f}",
                ", ".join(sorted({str(run.meta.get("commit") or "unknown") for run in ran})),
            ])  # fmt: skip
    text = """Seconds of computation added up over runs, which share the machine. `--only PART`
        computes one part; `tuning` is computed only if it is asked for so."""
    head = ("part", "runs", "time", "environment steps", "commit")
    return "\n\n".join(["## What it took", prose(text), table(head, rows)])
