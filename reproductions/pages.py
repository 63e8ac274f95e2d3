"""Pieces of a result page: tables, pictures, and where their numbers come from.

A page is a template, `page.md.jinja`, and what an analysis computes from records. A number that has
no record is None on its way to a table, and there the number that was published before records were
kept stands for it, marked; `published.toml` has these with what is known of where they come from.
"""

from __future__ import annotations

import re
import textwrap
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrl.config.seeds import seeds_in_words
from fedrl.core.number_format import duration
from fedrl.core.types import Tables
from fedrl.report import plots
from reproductions.records import Data

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARK = "†"
NOT_MEASURED = "not measured"
UNKNOWN = "unknown"
Row = Sequence[str | None]


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def filled(text: str) -> str:
    """Paragraphs in lines of a page's width, however long the numbers in them are."""
    plain = (" ".join(paragraph.split()) for paragraph in text.strip().split("\n\n"))
    return "\n\n".join(textwrap.fill(one, 100, break_on_hyphens=False) for one in plain)


def folded(title: str, text: str) -> str:
    """What most readers need not see, behind a line that opens: in a site and in a repository."""
    return f'<details markdown="1">\n<summary>{title}</summary>\n\n{text.strip()}\n\n</details>'


def measured_first(table: str, column: int) -> str:
    """The table without rows that say "not measured" in that column, which are folded below it."""
    head, rows = table.split("\n")[:2], table.split("\n")[2:]
    absent = [row for row in rows if row[2:-2].split(" | ")[column] == NOT_MEASURED]
    present = [row for row in rows if row not in absent]
    if not absent or not present:
        return table
    below = folded(f"{len(absent)} {NOT_MEASURED}", "\n".join([*head, *absent]))
    return "\n".join([*head, *present]) + f"\n\n{below}"


def measured_rows(table: str, keys: int = 1) -> str:
    """The table without rows and columns in which nothing was measured: a sentence names these."""
    head, *rows = [line[2:-2].split(" | ") for line in table.split("\n") if "| --- |" not in line]
    present = [row for row in rows if not unmeasured(row[keys:])]
    absent: dict[str, list[str]] = {}
    for row in rows:
        if row not in present:
            absent.setdefault("; ".join(row[: keys - 1]), []).append(row[keys - 1])
    shown = [
        at for at in range(len(head))
        if at < keys or not present or not unmeasured([row[at] for row in present])
    ]  # fmt: skip
    named = [f"{first}: {', '.join(them)}" if first else ", ".join(them)
             for first, them in absent.items()]  # fmt: skip
    if columns := [head[at] for at in range(len(head)) if at not in shown]:
        named.append(f"of the other rows {', '.join(columns)}")
    parts = []
    if present:
        kept = [[row[at] for at in shown] for row in present]
        parts.append(markdown_table([head[at] for at in shown], kept))
    if named:
        parts.append(filled(f"{NOT_MEASURED.capitalize()}: {'; '.join(named)}."))
    return "\n\n".join(parts)


def unmeasured(cells: Sequence[str]) -> bool:
    """Whether there is no number in any of them."""
    return NOT_MEASURED in cells and set(cells) <= {NOT_MEASURED, "–", ""}


@dataclass(frozen=True)
class Origin:
    """Where the numbers of a part come from: how many, when, how long, by which code and where."""

    part: str
    cells: int
    time: str
    steps: str
    commit: str
    machine: str
    command: str

    def row(self, mark: str = "") -> list[str]:
        command = f"`{self.command}`" if self.command != UNKNOWN else UNKNOWN
        return [self.part + mark, str(self.cells), self.time, self.steps, looked_up(self.commit),
                self.machine, command]  # fmt: skip


FOLDED = frozenset(
    tomllib.loads((Path(__file__).parent / "folded.toml").read_text(encoding="utf-8"))["commits"]
)
FOLD = "‡"
FOLDS = (
    f"{FOLD} beside a commit: it cannot be looked up, because it was published folded into others "
    "([how results are made](how.md))."
)


def looked_up(commit: str) -> str:
    """The commit as a page names it, marked where history does not have it."""
    return f"{commit} {FOLD}" if FOLDED & set(re.findall(r"[0-9a-f]{7,10}", commit)) else commit


def fold_note(text: str) -> str:
    """The text, and after it what ‡ means if it has one."""
    return f"{text.rstrip()}\n\n{FOLDS}" if FOLD in text else text


HEAD = ("part", "records", "time", "environment steps", "commit", "machine", "command")


@dataclass
class Page:
    """A page in the making. `published` is what its earlier edition said; nothing at other scales.

    `used` tells whether any of that is shown, `gaps` what is not there at all.
    """

    folder: Path
    pictures: Path
    published: Tables = field(default_factory=dict)
    used: bool = False
    gaps: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, folder: Path, page: Path, published: bool) -> Page:
        file = folder / "published.toml"
        text = file.read_text(encoding="utf-8") if published and file.is_file() else ""
        return cls(folder, page.with_suffix(""), tomllib.loads(text))

    def table(self, name: str, head: Sequence[str], rows: Iterable[Row], keys: int = 1) -> str:
        """Rows whose first columns are `keys`. What is None was published before, or never.

        Rows with the same keys stand for each other in their order.
        """
        before: dict[tuple[str, ...], list[Sequence[str]]] = {}
        for row in self.published.get("tables", {}).get(name, ()):
            before.setdefault(tuple(row[:keys]), []).append(row)
        done = []
        for row in rows:
            same = before.get(tuple(map(str, row[:keys])))
            earlier = same.pop(0) if same else ()
            cells = [self._cell(cell, earlier, at) for at, cell in enumerate(row)]
            if any(cell.startswith(NOT_MEASURED) for cell in cells):
                self.gaps.append(f"{name}, {', '.join(cells[:keys])}: {NOT_MEASURED}")
            done.append(cells)
        return markdown_table(head, done)

    def _cell(self, value: str | None, earlier: Sequence[str], at: int) -> str:
        if value is not None:
            return value
        said = earlier[at] if at < len(earlier) else NOT_MEASURED
        if said in ("–", "") or said.startswith(NOT_MEASURED):
            return said
        self.used = True
        return f"{said} {MARK}"

    def text(self, name: str, now: str | None) -> str:
        """A phrase with numbers in it; its earlier edition where it cannot be written anew."""
        if now is not None:
            return now
        said = self.published.get("text", {}).get(name)
        if said is None:
            return NOT_MEASURED
        self.used = True
        return f"{said}{MARK}" if said else said

    def picture(
        self, name: str, alt: str, draw: Callable[[], Figure] | None, whole: bool = True
    ) -> str:
        """The figure, drawn if its numbers are there; else the one that was published, if any.

        One that is not `whole` is drawn where none was published.
        """
        link = f"![{alt}]({self.pictures.name}/{name}.png)"
        if draw is not None and (whole or name not in self.published.get("figures", {})):
            drawn = draw()
            for ending in ("png", "svg"):
                plots.save(drawn, self.pictures / f"{name}.{ending}", dpi=110)
            return link
        commit = self.published.get("figures", {}).get(name)
        if commit is None or not (self.pictures / f"{name}.png").is_file():
            return f"*{alt}: not drawn, its numbers have no record.*"
        self.used = True
        return f"{link}\n\n*Drawn before records were kept {MARK}, commit {commit}.*"

    def shows(self, found: object) -> bool:
        """Whether a section has anything to say."""
        return bool(found) or bool(self.published)

    def write(self, page: Path, template: str = "page.md.jinja", **context: Any) -> None:
        """Render the template; what it is not given is an error."""
        import jinja2

        environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(self.folder),
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
            autoescape=False,
        )
        environment.filters["filled"] = filled
        environment.filters["looked_up"] = looked_up
        environment.filters["seeds"] = seeds_in_words
        environment.filters["fold_note"] = fold_note
        environment.filters["measured_rows"] = measured_rows
        environment.filters["folded"] = lambda text, title: folded(title, text)
        environment.filters["measured_first"] = measured_first
        text = environment.get_template(template).render(page=self, **context)
        page.write_text(text.rstrip() + "\n", encoding="utf-8")

    # Where numbers come from

    def origins(
        self,
        recorded: Mapping[str, Sequence[Data]],
        planned: Mapping[str, int],
        marked: bool | None = None,
    ) -> str:
        """A table of all parts, and a list of what is not known or not there.

        `marked`: only what rests on what was published before, or only what does not.
        """
        rows = []
        gaps = [*self.gaps, *(self.published.get("gaps", ()) if self.used else ())]
        before = {one["part"]: one for one in self.published.get("parts", ())}
        for part, count in planned.items():
            records = recorded.get(part, ())
            by_origin: dict[tuple[str, str, str], list[Data]] = {}
            for record in records:
                key = (str(record.get("commit") or UNKNOWN), machine(record), command(record))
                by_origin.setdefault(key, []).append(record)
            for key, several in sorted(by_origin.items()):
                rows.append(Origin(part, len(several), *spent(several), *key).row())
            if len(records) < count and part in before:
                old = Origin(**{"machine": UNKNOWN, "command": UNKNOWN, **before[part]})
                rows.append(old.row(f" {MARK}"))
                gaps.append(f"{part}: {count - len(records)} of {count} records are missing; the "
                            f"page shows what was published before {MARK}")  # fmt: skip
            elif len(records) < count:
                gaps.append(f"{part}: {count - len(records)} of {count} records are missing")
        gaps += [f"{row[0]}: {name} {UNKNOWN}" for row in rows
                 for name, value in zip(HEAD, row) if UNKNOWN in value]  # fmt: skip
        if marked is not None:
            rows = [row for row in rows if (MARK in row[0]) == marked]
            gaps = [line for line in gaps if (MARK in line) == marked]
        listed = "\n".join(f"- {line}" for line in gaps)
        parts = []
        if rows:
            folds = f"\n\n{FOLDS}" if any(FOLD in row[4] for row in rows) else ""
            parts.append(
                folded(f"Every part: {', '.join(HEAD[1:])}", markdown_table(HEAD, rows) + folds)
            )
        if gaps:
            parts.append(
                folded(f"{len(gaps)} gaps: what is unknown, missing or not measured", listed)
            )
        return "\n\n".join(parts) or "No record yet."


def spent(records: Sequence[Data]) -> tuple[str, str]:
    """Seconds and environment steps, added up."""
    timed = [float(one["seconds"]) for one in records if one.get("seconds") is not None]
    steps = sum(float(one.get("steps") or one.get("totals", {}).get("env/steps") or 0.0)
                for one in records)  # fmt: skip
    return duration(sum(timed)) if timed else UNKNOWN, f"{steps:.3g}" if steps else "–"


def machine(record: Data) -> str:
    hardware = record.get("hardware", {})
    words = [str(hardware.get("cpu", UNKNOWN)), f"{hardware.get('cores', '?')} cores"]
    words += [str(hardware["accelerator"])] if hardware.get("accelerator") else []
    if record.get("processes"):
        words.append(f"{record['processes']} at a time")
    return ", ".join(words)


def command(record: Data) -> str:
    return str(record.get("command") or UNKNOWN)
