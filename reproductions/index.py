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
from string import ascii_uppercase

from fedrl.api.papers import PAPERS
from fedrl.core.types import Tables
from reproductions.pages import (
    FOLD,
    NOT_MEASURED,
    UNKNOWN,
    filled,
    folded,
    looked_up,
    machine,
    markdown_table,
)
from reproductions.records import Data
from reproductions.statements import NOT_JUDGED, WORDS, Health, Statement, findings, tally
from reproductions.study import FOLDER, analysis_of, prepare
from reproductions.verdict_bars import drawn
from reproductions.verdicts import FAILS, HOLDS, OPEN

INDEXED = ("fedagent", "fedqhd", "momentum", "fedrlhf")
NOWHERE = "–"

ABOUT = """
What {papers} papers say, and what came out here: of {all} statements {decided} are decided by their
intervals: {holding} hold and {failing} do not; {open} more are undecided. The command
`fedrl reproduce index` writes this page from the records beside the pages of
[FedAgent](fedagent.md), [FedQHD](fedqhd.md), [momentum](momentum.md) and [FedRLHF](fedrlhf.md);
nothing here is written by hand.
"""
RULE = """
Every interval is a 95% t-interval over seeds, seed by seed between two methods, or over draws
where a statement is about these. Intervals are per statement: of forty one or two miss by chance.
"""
RULES = (
    (HOLDS, "the whole interval lies where the statement says; of several parts, all of them do"),
    (FAILS, "the whole interval lies elsewhere, or what is left of a difference is below the "
            "margin that counts"),
    (OPEN, "everything else; then the number of seeds that would decide it, if mean and deviation "
           "stay what they are, and their cost stand beside it, or that the line is too near for "
           "that. Nothing follows from one seed"),
    (NOT_JUDGED, "one of two sides has not been tuned for the comparison as the other was, or is "
                 "best at an end of what was tried, or explores more to the end; or neither has "
                 "learned anything; or a bound up to a constant that is not named is exceeded; or "
                 "what the paper does not say was chosen by the same cells"),
    (NOT_MEASURED, "there is no record yet"),
)  # fmt: skip
FROM = "In the tables *from* is the commit of the code and the machine: {}."
SIGNS = """
Margins, numbers of seeds and what a rule means for a statement are in a file that each table names
with its commit. Verdicts of fewer seeds than were planned are what they are so far.

◦ beside a verdict: runs behind it are older than that commit, or its rule was written anew when
they were there, so somebody could have known them. ‡ beside a commit: it cannot be looked up,
because it was published folded into others; that a rule of such a commit is older than the runs
rests on the dates in the records alone. + behind a commit: the code had changes that were not
committed.
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
    """The page from the records under `results`, and its picture in a folder beside it."""
    found = [read(paper, results) for paper in papers]
    counts = {one.title: count(one) for one in found}
    picture = path.with_suffix("") / "verdicts.svg"
    picture.parent.mkdir(parents=True, exist_ok=True)
    picture.write_text(drawn(list(counts.items())), encoding="utf-8")
    alt = "A bar for each paper: how many of its statements hold, do not, and are open"
    parts = ["# Every statement of the papers", told(list(counts.values())),
             f"![{alt}]({picture.parent.name}/{picture.name})", counted(found),
             folded("How a statement is judged", rule())]  # fmt: skip
    letters = lettered(found)
    if letters:
        parts.append(
            filled(FROM.format("; ".join(f"{at} is {name}" for name, at in letters.items())))
        )
    for one in found:
        parts += [f"## {one.title}", introduced(one), table(one, letters)]
    parts += ["## Are the baselines healthy?", filled(HEALTH), healthy(found, letters)]
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def told(counts: Sequence[Counter[str]]) -> str:
    total = sum(counts, Counter())
    number = {2: "two", 3: "three", 4: "four"}.get(len(counts), str(len(counts)))
    decided = total[HOLDS] + total[FAILS]
    return filled(ABOUT.format(papers=number, all=total.total(), decided=decided,
                               holding=total[HOLDS], failing=total[FAILS],
                               open=total[OPEN]))  # fmt: skip


def rule() -> str:
    rows = [[f"**{word}**", meaning] for word, meaning in RULES]
    return "\n\n".join([filled(RULE), markdown_table(("verdict", "if"), rows), filled(SIGNS)])


HEALTH = """
Beside each baseline: what its own authors or a maintained library publish of it on the same task,
or on the closest that there is. A baseline that is far below is not at its best here, and a method
that is better than it has not shown much. Returns of training are lower than greedy ones.
"""


def count(one: Indexed) -> Counter[str]:
    """How many statements of the paper there are of each verdict."""
    found = Counter(s.verdict for s in one.statements if not s.ours)
    found[NOT_MEASURED] += len(silent(one))
    return found


def counted(found: Sequence[Indexed]) -> str:
    rows = []
    for one in found:
        counts = count(one)
        link = f"[{one.title}](#{anchor(one.title)})"
        rows.append([link, *(str(counts[word]) for word in WORDS)])
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
    own = [name for name in ("verdicts.toml", "claims.py") if (FOLDER / one.paper / name).is_file()]
    told = (
        f"[The page]({one.paper}.md) has tables, figures and settings. Rules and margins: "
        f"`reproductions/{one.paper}/{own[0]}`, commit {one.rules}. Command: {commands}. "
        "Rows in italics are not the paper's: what its statements rest on."
    )
    rows = [statement for statement in one.statements if not statement.ours]
    if findings(rows) < len(rows):
        told += f" Some rows are readings of one finding: {tally(rows)}."
    return filled(told)


HEAD = ("where", "statement", "verdict", "found", "seeds", "from")


def table(one: Indexed, letters: Mapping[str, str]) -> str:
    """What is judged, and folded below it what is not, and what is not measured."""
    order = {where: at for at, where in enumerate(one.contents)}
    said = sorted(one.statements, key=lambda s: order.get(s.where, len(order)))
    judged = [row(s, letters, one.since) for s in said if s.verdict in (HOLDS, FAILS, OPEN)]
    waiting = [row(s, letters, one.since) for s in said if s.verdict == NOT_JUDGED]
    absent = [s for s in said if s.verdict == NOT_MEASURED]
    parts = [markdown_table(HEAD, judged)] if judged else []
    if waiting:
        parts.append(folded(f"{len(waiting)} not judged", markdown_table(HEAD, waiting)))
    if absent or silent(one):
        rows = [*gathered(absent), *([where, NOWHERE, NOWHERE] for where in silent(one))]
        title = f"{len(absent) + len(silent(one))} not measured"
        parts.append(folded(title, markdown_table(("where", "statement", "of"), rows)))
    return "\n\n".join(parts)


def gathered(statements: Iterable[Statement]) -> list[list[str]]:
    """One row for statements that differ only behind the colon: "better than DQN: CartPole"."""
    found: dict[tuple[str, str], list[str]] = {}
    for one in statements:
        claim, _, part = one.claim.partition(": ")
        claim = f"*{claim}*" if one.ours else claim
        found.setdefault((one.where, claim), []).append(part or NOWHERE)
    return [[where, claim, "; ".join(parts)] for (where, claim), parts in found.items()]


def row(one: Statement, letters: Mapping[str, str], since: str = "") -> list[str]:
    """◦ where the rule came after a record, by that date or by its own account."""
    claim = f"*{one.claim}*" if one.ours else one.claim
    verdict = f"**{one.verdict}**"
    late = one.afterwards or older(one.records, since)
    if one.verdict in (HOLDS, FAILS, OPEN) and late:
        verdict += " ◦"
    return [one.where, claim, verdict, one.found, str(one.seeds), origin(one.records, letters)]


def lettered(found: Sequence[Indexed]) -> dict[str, str]:
    """A letter for each machine, the most used one first."""
    rows: list[Statement | Health] = []
    for one in found:
        rows += [*one.statements, *one.health]
    machines = Counter(machine_of(record) for row in rows for record in row.records)
    ordered = sorted(machines, key=lambda name: (-machines[name], name))
    return {name: ascii_uppercase[at] for at, name in enumerate(ordered)}


def machine_of(record: Data) -> str:
    return machine({"hardware": record.get("hardware", {})})


def origin(records: Sequence[Data], letters: Mapping[str, str]) -> str:
    """Commits and machines of the records, the most of them first: "e935e22, A"."""
    if not records:
        return NOWHERE
    pairs = Counter(
        (short(str(r.get("commit") or UNKNOWN)), letters[machine_of(r)]) for r in records
    )
    ordered = sorted(pairs, key=lambda pair: (-pairs[pair], pair))
    return "; ".join(f"{commit}, {letter}" for commit, letter in ordered)


def older(records: Sequence[Data], since: str) -> bool:
    return any(str(record.get("date") or "") < since for record in records)


def short(commit: str) -> str:
    """Seven digits, and the + of one with local changes."""
    mark = " " + FOLD if FOLD in looked_up(commit) else ""
    return commit[:7] + ("+" if commit.endswith("+") else "") + mark


def healthy(found: Sequence[Indexed], letters: Mapping[str, str]) -> str:
    head = ("paper", "baseline", "task", "here", "published", "source", "from")
    rows = [
        [paper.paper, one.baseline, one.task, one.here, one.published, one.source,
         origin(one.records, letters)]
        for paper in found for one in paper.health
    ]  # fmt: skip
    return markdown_table(head, rows)
