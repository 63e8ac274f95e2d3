"""The result page of FedAgent: ours with intervals, the paper's numbers, and computed verdicts.

Every number comes from a run folder. What was not measured, or not to its end, is named.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

from fedrl.core.number_format import duration
from fedrl.runs.grid import TAIL, Trained
from fedrl.runs.read import Run
from reproductions.fedagent import figures, optimizer, sides
from reproductions.fedagent.claims import (
    NOTHING_LEARNED,
    TITLES,
    Found,
    Parts,
    claims,
    may_have_learned,
    success,
    told,
)
from reproductions.fedagent.numbers import BySeed, compared, gap, mean_of, shown
from reproductions.markdown import missing, table

KINDS = ("pick", "look", "clean", "heat", "cool", "pick_two")
PAPER = {
    "FedAgent": ((80.0, 75.0, 53.8, 37.5, 83.3, 50.0), 64.1, 83.2, 61.7),
    "Centralized": ((64.3, 37.5, 69.2, 50.0, 42.9, 28.6), 51.6, 79.9, 57.8),
    "Local 21": ((42.9, 25.0, 38.5, 37.5, 14.3, 14.3), 29.7, 69.9, 57.0),
    "Local 42": ((50.0, 37.5, 76.9, 25.0, 42.9, 14.3), 45.3, 75.1, 53.1),
    "Local 84": ((50.0, 37.5, 46.2, 25.0, 28.6, 0.0), 34.4, 72.7, 47.7),
}
"""Table 1, Qwen2.5-1.5B-Instruct: ALFWorld by KINDS and in all; WebShop's score and success."""


def write(scales: Mapping[str, Parts], scale: str, page: Path) -> None:
    pictures = page.with_suffix("")
    begun = {
        name: parts
        for name, parts in scales.items()
        if any(one.runs for found in parts.values() for one in found.values())
    }
    sections = [heading(begun, scale), claims(begun) if begun else ""]
    for name, parts in begun.items():
        sections += chapter(name, parts, pictures)
    if "full" not in begun:
        sections.append(missing("Full scale: SmolLM2-135M on the genuine worlds"))
    sections += [optimizer.section(pictures), left_out(begun), costs(begun)]
    page.write_text("\n\n".join(filter(None, sections)) + "\n", encoding="utf-8")


def heading(scales: Mapping[str, Parts], scale: str) -> str:
    ran = list(runs_of(scales))
    commits = sorted({str(run.meta["commit"]) for run in ran if run.meta.get("commit")})
    machines = sorted({machine(run) for run in ran})
    commands = "\n".join(
        f"    fedrl reproduce fedagent --scale {name}" for name in dict.fromkeys((*scales, scale))
    )
    return f"""# FedAgent: language agents trained across clients

Paper: *Federated Agent Reinforcement Learning* (FedAgent and FedAgentGym). Everything below was
written by

{commands}

which keeps every run and goes on where it was stopped (`--processes 0` writes the page of what is
there). Hardware: {"; ".join(machines) or "unknown"}. Commits (+: with local changes):
{", ".join(commits) or "unknown"}.

Success is on tasks that nobody trains on, in percent, the mean of the last {TAIL} evaluations in
the last tenth of the rounds that are named; ± is a 95% t-interval over seeds. A seed changes the
partition, the cohorts and everything that is sampled, but neither the tasks of the evaluation nor
the warm start, of which there is one: an interval says nothing about others. FedAgent plays with
M clients at once. So there are two views of Centralized and Local: at *equal local epochs* (the
paper's) they have played an M-th of FedAgent's episodes, at *equal rollouts* they have trained M
times as many rounds."""


def runs_of(scales: Mapping[str, Parts]) -> Iterator[Run]:
    for parts in scales.values():
        for found in parts.values():
            for one in found.values():
                yield from one.runs.values()


def machine(run: Run) -> str:
    hardware = run.meta.get("hardware", {})
    words = f"{hardware.get('cpu', 'unknown')}, {hardware.get('cores', '?')} cores"
    return f"{run.meta['accelerator']}; {words}" if run.meta.get("accelerator") else words


def chapter(name: str, parts: Parts, pictures: Path) -> list[str]:
    """The sections of one scale."""
    sections = []
    if "main" in parts:
        model = "the built-in model on generated worlds"
        sections += [
            f"## Scale {name}: {model}",
            comparison(parts["main"], "main", pictures),
            sides.decentralized(parts, pictures),
            sides.heterogeneity(parts, pictures),
            sides.estimators(parts, pictures),
            sides.momentum(parts, pictures),
            comparison(parts["webshop"], "webshop", pictures),
        ]
    else:
        sections.append(f"## Scale {name}: a language model on the genuine worlds")
        sections += [comparison(found, part, pictures) for part, found in parts.items()]
    return sections


def comparison(found: Found, part: str, pictures: Path) -> str:
    """FedAgent, Centralized and Local in both views, by type of task, and as curves."""
    title = f"### {TITLES[part]}: FedAgent, Centralized, Local"
    if not found["fedagent"].runs:
        return f"{title}\n\nNot measured at this scale yet."
    rounds, last = found["fedagent"].cell.rounds, found["centralized"].cell.rounds
    ours, start = success(found, "fedagent"), found["fedagent"].first("eval/success")
    rows = [
        ["warm start", shown(start), "", "", ""],
        ["FedAgent", shown(ours), "–", shown(ours), "–"],
    ]
    others = {name.capitalize().replace("-", " "): [name] for name in found if name != "fedagent"}
    others["Local, mean"] = [name for name in found if name.startswith("local-")]
    for label, names in others.items():
        row = [label]
        for at in (rounds, last):
            theirs = mean_of([success(found, name, at) for name in names])
            row += [shown(theirs), against(ours, theirs, start)]
        rows.append(row)
    head = ["", f"equal local epochs (round {rounds})", "FedAgent against it",
            f"equal rollouts (round {last} for the others)", "FedAgent against it"]  # fmt: skip
    columns = 5 if last > rounds else 3  # without longer baselines there is one view
    seeds = found["fedagent"].cell.seeds
    pieces = [
        f"{title}\n\n{plural(rounds, 'round')}, {plural(len(seeds), 'seed')}.",
        sides.setting(found),
        table(head[:columns], [row[:columns] for row in rows]),
        beside_the_paper(part),
        by_kind(found, rounds, part == "alfworld"),
        scores(found, rounds, last) if "webshop" in part else "",
        figures.comparison(found, pictures, part, f"{TITLES[part]}: success in both views"),
        "The paper's Figure 2: marks are the success of a client's own episodes while it trained, "
        "a colour per client; the line is the server's model on unseen tasks, played at a lower "
        "temperature. One seed.",
        figures.dynamics(found, pictures, f"{part}-clients", f"{TITLES[part]}: clients"),
    ]
    return "\n\n".join(filter(None, pieces))


def against(ours: BySeed, theirs: BySeed, start: BySeed) -> str:
    """No verdict where FedAgent is not above the warm start: others that fell are no achievement
    of it."""
    rise, difference = gap(ours, start), gap(ours, theirs)
    if rise is None or difference is None or may_have_learned(rise):
        return compared(ours, theirs)
    return f"{NOTHING_LEARNED} ({told(difference)})"


def plural(count: int, word: str) -> str:
    return f"{count} {word}{'s' * (count != 1)}"


def beside_the_paper(part: str) -> str:
    """The paper's own numbers, of far larger models: an order, not a target."""
    shop = "webshop" in part
    said = ", ".join(f"{name} {values[3] if shop else values[1]}" for name, values in PAPER.items())
    return f"The paper, Qwen2.5-1.5B-Instruct after 70 rounds, success in %: {said}."


def by_kind(found: Found, rounds: int, with_paper: bool) -> str:
    """Success by type of task at equal local epochs; the paper's are of the genuine games."""
    metrics = sorted(
        {
            metric
            for run in found["fedagent"].runs.values()
            for metric in run.rounds[0]
            if metric.startswith("eval/success_")
        }
    )
    kinds = [m.removeprefix("eval/success_") for m in metrics]
    ordered = [k for k in KINDS if k in kinds] + [k for k in kinds if k not in KINDS]
    if not ordered:
        return ""
    rows = []
    for label, several in figures.groups(found).items():
        row = [label]
        for kind in ordered:
            values = [one.value(f"eval/success_{kind}", rounds) for one in several]
            row.append(shown(mean_of(values)))
        rows.append(row)
    if with_paper and ordered == list(KINDS):
        rows += [
            [f"*{name}, the paper's*", *(f"{v:.1f}" for v in values[0])]
            for name, values in PAPER.items()
        ]
    return f"By type of task, at equal local epochs:\n\n{table(['', *ordered], rows)}"


def scores(found: Found, rounds: int, last: int) -> str:
    """WebShop's score: the reward of what was bought, in percent."""
    rows = []
    for label, several in figures.groups(found).items():
        at = (rounds, last if label != "FedAgent" else rounds)
        views = [shown(mean_of([one.value("eval/return", r) for one in several])) for r in at]
        said = [f"{v[2]:.1f}" for name, v in PAPER.items() if name.split()[0] == label.split()[0]]
        rows.append([label, *views, " / ".join(said)])
    head = ("score", "equal local epochs", "equal rollouts", "the paper's")
    if last == rounds:
        return table((*head[:2], head[3]), [[*row[:2], row[3]] for row in rows])
    return table(head, rows)


def left_out(scales: Mapping[str, Parts]) -> str:
    """Runs that are not there, or not to their end."""
    told = [
        f"{name}, {part}, {one.cell.name}: {line}"
        for name, parts in scales.items()
        for part, found in parts.items()
        for one in found.values()
        if (line := one.missing())
    ]
    return "## Missing\n\n" + "\n".join(f"- {line}" for line in told) if told else ""


def costs(scales: Mapping[str, Parts]) -> str:
    rows = []
    for name, parts in scales.items():
        for part, found in parts.items():
            if any(one.runs for one in found.values()):
                rows.append([name, part, *cost_row(list(found.values()))])
    command = shlex.join(["fedrl", "reproduce", "fedagent", "--only", "PART"])
    head = ("scale", "part", "runs", "time", "client epochs", "episodes", "commit")
    return f"""## What it took

Seconds of computation added up over runs, which share the machine; warm starts and labels come on
top. One part again: `{command}`.

{table(head, rows)}"""


def cost_row(cells: list[Trained]) -> list[str]:
    ran = [(one.cell, run) for one in cells for run in one.runs.values()]
    last = [run.rounds[max(run.rounds)] for _, run in ran]
    return [
        str(len(ran)),
        duration(sum(run.seconds for _, run in ran)),
        f"{sum(cell.epochs(max(run.rounds)) for cell, run in ran):,}",
        f"{sum(metrics.get('env/episodes', 0.0) for metrics in last):,.0f}",
        ", ".join(sorted({str(run.meta.get("commit") or "unknown") for _, run in ran})),
    ]
