"""The index of results: every statement of the papers on one page, judged, with its origin.

    fedrl reproduce index

Nothing is computed: a paper's analysis says what its records show (`statements`), and which of its
baselines stand beside a published result (`health`). `paper.toml` lists what the paper has in
`contents`; what nothing is said about is on the page as not measured.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedrl.api.papers import PAPERS
from fedrl.core.types import Tables
from reproductions.pages import (
    FOLD,
    NOT_MEASURED,
    UNKNOWN,
    filled,
    looked_up,
    machine,
    markdown_table,
)
from reproductions.records import Data
from reproductions.statements import WORDS, Health, Statement
from reproductions.study import FOLDER, analysis_of, prepare
from reproductions.verdicts import FAILS, HOLDS, OPEN

INDEXED = ("fedqhd", "momentum", "fedrlhf")
NOWHERE = "–"

ABOUT = """
Written by `fedrl reproduce index` from the records beside the pages of [FedQHD](fedqhd.md),
[momentum](momentum.md) and [FedRLHF](fedrlhf.md); nothing here is written by hand.

**The rule.** Every interval is a 95% t-interval over seeds, seed by seed between two methods, or
over draws where a statement is about these. A statement *holds* if the whole interval lies where it
says, *does not hold* if the whole of it lies elsewhere, or if what is left of a difference is below
the margin that counts, and is *undecided* otherwise; then the number of seeds that would decide it,
if mean and deviation stay what they are, and their cost stand beside it. A statement of several
parts holds if all of them do. Nothing follows from one seed. *Not judged*: what it is compared with
has not been tuned as the method was, or explores more to the end. Margins, numbers of seeds and
what a rule means for a statement are in a file that each table names with its commit. Where ◦
stands beside a verdict, runs behind it are older than that commit: the rule was written when
somebody could have known them. Intervals are per statement: of forty one or two miss by chance.
Verdicts of fewer seeds than were planned are what they are so far. ‡ stands beside commits that
cannot be looked up, because they were published folded into others: that a rule of such a commit
is older than the runs rests on the dates in the records alone.
"""


@dataclass(frozen=True)
class Indexed:
    """A paper's part of the page."""

    paper: str
    title: str
    contents: Sequence[str]
    rules: str
    """The commit of its verdicts.toml, and when that was."""
    since: str
    scales: Sequence[str]
    statements: Sequence[Statement]
    health: Sequence[Health]


def read(paper: str, results: Path) -> Indexed:
    folder, scales = FOLDER / paper, PAPERS[paper].published
    about = tomllib.loads((folder / "paper.toml").read_text(encoding="utf-8"))
    rules: Tables = tomllib.loads((folder / "grid.toml").read_text(encoding="utf-8"))
    analysis = analysis_of(paper)
    said: list[Statement] = []
    healthy: list[Health] = []
    for scale in scales:
        study = prepare(paper, scale, Path("runs"), results / paper / "records")
        known = {(one.where, one.claim) for one in said}
        said += [one for one in analysis.statements(study) if (one.where, one.claim) not in known]
        healthy += analysis.health(study) if hasattr(analysis, "health") else []
    commits = [looked_up(str(rules[k])) for k in sorted(rules) if k.endswith("_commit")]
    return Indexed(paper, about["title"], about.get("contents", ()), ", ".join(commits) or UNKNOWN,
                   str(rules.get("rules_date", "")), scales, said, healthy)  # fmt: skip


def write(path: Path, results: Path, papers: Iterable[str] = INDEXED) -> None:
    """The page from the records under `results`."""
    found = [read(paper, results) for paper in papers]
    parts = ["# Every statement of the papers", filled(ABOUT), counted(found)]
    for one in found:
        parts += [f"## {one.title}", introduced(one), table(one)]
    parts += ["## Are the baselines healthy?", filled(HEALTH), healthy(found)]
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


HEALTH = """
Beside each baseline: what its own authors or a maintained library publish of it on the same task,
or on the closest that there is. A baseline that is far below is not at its best here, and a method
that is better than it has not shown much. Returns of training are lower than greedy ones.
"""


def counted(found: Sequence[Indexed]) -> str:
    """How many there are of each verdict."""
    rows = []
    for one in found:
        count = Counter(s.verdict for s in one.statements if not s.ours)
        count[NOT_MEASURED] += len(silent(one))
        rows.append([f"[{one.title}](#{anchor(one.title)})", *(str(count[word]) for word in WORDS)])
    return markdown_table(["paper", *WORDS], rows)


def anchor(title: str) -> str:
    """As GitHub and MkDocs make it of a heading."""
    kept = "".join(sign for sign in title.lower() if sign.isalnum() or sign in " -_")
    return kept.replace(" ", "-")


def silent(one: Indexed) -> list[str]:
    """What the paper has and no statement is about."""
    said = {statement.where for statement in one.statements}
    return [where for where in one.contents if where not in said]


def introduced(one: Indexed) -> str:
    commands = ", ".join(f"`fedrl reproduce {one.paper} --scale {scale}`" for scale in one.scales)
    told = (
        f"[The page]({one.paper}.md) has tables, figures and settings. Rules and margins: "
        f"`reproductions/{one.paper}/verdicts.toml`, commit {one.rules}. Command: {commands}. "
        "Rows in italics are not the paper's: what its statements rest on."
    )
    return filled(told)


HEAD = ("where", "statement", "verdict", "found", "seeds", "commit", "machine")


def table(one: Indexed) -> str:
    order = {where: at for at, where in enumerate(one.contents)}
    said = sorted(one.statements, key=lambda s: order.get(s.where, len(order)))
    rows = [row(statement, one.since) for statement in said]
    rows += [[where, "–", NOT_MEASURED, "–", "–", NOWHERE, NOWHERE] for where in silent(one)]
    return markdown_table(HEAD, rows)


def row(one: Statement, since: str = "") -> list[str]:
    """◦ where a record is older than the rules of that date."""
    claim = f"*{one.claim}*" if one.ours else one.claim
    verdict = one.verdict if one.verdict == NOT_MEASURED else f"**{one.verdict}**"
    if one.verdict in (HOLDS, FAILS, OPEN) and older(one.records, since):
        verdict += " ◦"
    commits, machines = origin(one.records)
    seeds = str(one.seeds) if one.records else NOWHERE
    return [one.where, claim, verdict, one.found, seeds, commits, machines]


def origin(records: Sequence[Data]) -> tuple[str, str]:
    """Commits and machines of the records, the most of them first."""
    if not records:
        return NOWHERE, NOWHERE
    commits = Counter(short(str(record.get("commit") or UNKNOWN)) for record in records)
    machines = Counter(machine({"hardware": record.get("hardware", {})}) for record in records)
    return in_order(commits), in_order(machines)


def older(records: Sequence[Data], since: str) -> bool:
    return any(str(record.get("date") or "") < since for record in records)


def short(commit: str) -> str:
    """Seven digits, and the + of one with local changes."""
    mark = " " + FOLD if FOLD in looked_up(commit) else ""
    return commit[:7] + ("+" if commit.endswith("+") else "") + mark


def in_order(counts: Mapping[str, int]) -> str:
    return "; ".join(sorted(counts, key=lambda name: (-counts[name], name)))


def healthy(found: Sequence[Indexed]) -> str:
    rows = []
    for paper in found:
        for one in paper.health:
            commits, machines = origin(one.records)
            rows.append([paper.paper, one.baseline, one.task, one.here, one.published, one.source,
                         commits, machines])  # fmt: skip
    head = ("paper", "baseline", "task", "here", "published", "source", "commit", "machine")
    return markdown_table(head, rows)
