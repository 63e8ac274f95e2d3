"""The tables and pictures of the examples' READMEs, from records."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from examples.study.studies import EXAMPLES, SEEDS, STUDIES, TUNING, cells, ends, reported
from fedrl.report import plots
from reproductions.pages import filled, markdown_table
from reproductions.records import Store
from reproductions.verdicts import gap, signed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BEGIN, END = "<!-- {}: written by python -m examples.study write -->", "<!-- until here -->"
TITLES = {
    "federated": "federated",
    "centralized": "all 4,000 prompts in one place, as many episodes",
    "as-many": "500 prompts in one place, as many episodes",
    "local": "client 0 alone",
    "local-more": "client 0 alone, five times the episodes",
}
HEAD = ("", *(f"seed {seed}" for seed in SEEDS), "gain", "episodes", "learning rate", "minutes")


def row(name: str, method: str, records: Path) -> list[str]:
    """Success before → after by seed, the paired gain, and what it took."""
    found = [cell.read(records) for cell in reported(name, method, records)]
    if not found or not all(found):
        return [TITLES[method], *["not measured"] * (len(HEAD) - 1)]
    before, after = (dict(zip(SEEDS, values)) for values in zip(*map(ends, found)))
    gained = gap(after, before, 100.0)
    assert gained is not None
    return [
        TITLES[method],
        *(f"{100 * before[seed]:.0f} → {100 * after[seed]:.0f}%" for seed in SEEDS),
        f"**{signed(gained)}**",
        f"{found[0]['metrics']['env/episodes'][1][-1]:,.0f}",
        f"{found[0]['settings']['algorithm.lr']:g}",
        f"{np.mean([record['seconds'] for record in found]) / 60:.1f}",
    ]


def figure(name: str, records: Path) -> Figure | None:
    """Success on held-out tasks by round, for the methods that were measured."""
    x: dict[str, np.ndarray] = {}
    lines: dict[str, np.ndarray] = {}
    for method in STUDIES[name].methods:
        found = [cell.read(records) for cell in reported(name, method, records)]
        if found and all(found):
            curves = [record["metrics"]["eval/success"] for record in found]
            x[TITLES[method]] = np.array(curves[0][0])
            lines[TITLES[method]] = np.array([values for _, values in curves])
    title = f"{name}: success on held-out tasks"
    return plots.curves([plots.Panel(title, "round", x, lines, share=True)]) if lines else None


def origins(name: str, records: Path) -> str:
    """What ± is, and where the records come from."""
    found = [record for cell in cells(name, records) if (record := cell.read(records))]
    commits = sorted({str(record["commit"]) for record in found})
    machines = sorted({f"{r['hardware']['cpu']}, {r['hardware']['cores']} cores" for r in found})
    failed = sum(record["failures"] for record in found)
    rates = STUDIES[name].rates
    said = (
        "Gains in points, ± a 95% t-interval of the paired differences over three seeds; minutes "
        "of one run, beside others."
    )
    if rates:
        tried = ", ".join(f"{rate:g}" for rate in rates)
        seeds = " and ".join(map(str, TUNING))
        said += f" Learning rates {tried} were tried with every method on seeds {seeds}."
    said += f" {len(found)} records; {failed} updates of clients failed."
    return filled(f"{said} Commit {', '.join(commits)}; {'; '.join(machines)}." if found else said)


def across_nodes(name: str, records: Path) -> str:
    """What the rounds on two nodes gave, in a sentence."""
    found = Store(records).read("nodes", name, "two")
    if not found:
        return "Across two nodes: not measured."
    servers = ", each with a server of its own" if found["servers"] else ""
    bits = found["same_metrics"] and found["same_parameters"]
    same = "the same as those" if bits else "NOT the same as those"
    success = " → ".join(f"{100 * value:.0f}" for value in found["success"])
    return filled(
        f"Across two nodes of Flower{servers}: {found['rounds']} rounds, success {success}%, "
        f"{found['failures']} updates failed; metrics and model {same} of two clients in one "
        f"process, to the bit (`{found['command']}`)."
    )


def write(records: Path, examples: Path = EXAMPLES) -> None:
    """Between the marks of every README; a picture where methods are compared."""
    for name, study in STUDIES.items():
        path, begin = examples / study.folder / "README.md", BEGIN.format(name)
        before, rest = path.read_text(encoding="utf-8").split(begin)
        said = [markdown_table(HEAD, [row(name, method, records) for method in study.methods])]
        if len(study.methods) > 1 and (drawn := figure(name, records)):
            plots.save(drawn, path.with_name(f"{name}.png"), dpi=110)
            said.append(f"![{name}: success by round, mean and 95% interval]({name}.png)")
        said += [origins(name, records), across_nodes(name, records)]
        after = rest.split(END, 1)[1]
        text = f"{before}{begin}\n\n" + "\n\n".join(said) + f"\n\n{END}{after}"
        path.write_text(text, encoding="utf-8")
