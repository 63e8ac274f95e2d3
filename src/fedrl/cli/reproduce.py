"""`fedrl reproduce PAPER`: measure what the paper reports, then write the page about it."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fedrl
from fedrl.cli.parser import Parser
from fedrl.core.types import UserError
from fedrl.runs import provenance


@dataclass(frozen=True)
class Paper:
    """The scales of a paper's published page, and whether a model may be chosen."""

    published: tuple[str, ...]
    model: bool = False


PAPERS = {
    "momentum": Paper(("full",)),
    "fedagent": Paper(("small", "full"), model=True),
    "fedqhd": Paper(("small",)),
    "fedrlhf": Paper(("small", "full"), model=True),
    # No paper's: what fedrl's own rules of aggregation are worth against clients that lie.
    "robustness": Paper(("full",)),
}
SCALES = ("smoke", "small", "full")


def reproduce(
    paper: str,
    scale: str,
    only: tuple[str, ...],
    out: Path,
    page: Path | None,
    records: Path | None,
    options: Mapping[str, Any],
) -> int:
    """Compute what has no record, write the page, say where it is."""
    given = {name: value for name, value in options.items() if value is not None}
    if "model" in given and not PAPERS[paper].model:
        readers = ", ".join(name for name, about in PAPERS.items() if about.model)
        raise UserError(f"--model is not for {paper}, only for {readers}: remove it")
    if "model" in given and scale != "full":
        raise UserError(f"--model is for the full scale: the scale {scale} has a model of its own")
    if given.get("processes", 0) < 0 or given.get("minutes", 1) <= 0:
        raise UserError("--processes must not be negative, and --minutes must be above 0")
    find_reproductions()
    provenance.commit()  # before the first cell, which may take hours
    folder = out / paper / scale
    page = page or default_page(paper, scale, folder)
    records = records or page.with_suffix("") / "records"
    study = importlib.import_module("reproductions.study")
    model = given.pop("model", None)
    prepared = study.prepare(paper, scale, folder, records, model=model)
    study.wanted(prepared.grid, only)
    make_writable(folder, page)
    measured = study.measure(prepared, only, say, **given)
    study.write_page(measured, page, published=scale in PAPERS[paper].published)
    print(f"page: {page}")
    return 0


def make_writable(folder: Path, page: Path) -> None:
    """Say what cannot be written before anything is computed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        page.parent.mkdir(parents=True, exist_ok=True)
        page.touch()
    except OSError as error:
        raise UserError(f"cannot write to {error.filename}: {error.strerror}") from error


def find_reproductions() -> None:
    """Put the folder of reproductions on the path: in the package, or beside `src` in a checkout.

    Processes that are started inherit it.
    """
    package = Path(fedrl.__file__).parent
    inside = package / "papers"
    place = str(inside if inside.is_dir() else package.parent.parent)
    if place not in sys.path:
        sys.path.append(place)


def default_page(paper: str, scale: str, folder: Path) -> Path:
    """In a checkout some scales' page is published; that of others stays with their numbers."""
    docs = Path(fedrl.__file__).parent.parent.parent / "docs" / "results"
    published = scale in PAPERS[paper].published and docs.is_dir()
    return docs / f"{paper}.md" if published else folder / f"{paper}.md"


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


REPRODUCE = (
    "Regenerate a paper's tables and figures; stopped, it goes on where it was. robustness is no "
    "paper: it measures what fedrl's own rules of aggregation are worth against clients that lie."
)


def command(argv: list[str]) -> int:
    """Regenerate a paper's tables and figures."""
    parser = Parser("fedrl reproduce", description=REPRODUCE)
    parser.add_argument("paper", choices=PAPERS, metavar="PAPER", help=", ".join(PAPERS))
    parser.add_argument(
        "--scale", choices=SCALES, default="small", help="smoke: a minute or two. small: up to two "
        "hours on two cores. full: up to two hours, for fedagent on a GPU."
    )  # fmt: skip
    parser.add_argument("--only", nargs="+", default=[], metavar="PART", help="parts to compute")
    parser.add_argument(
        "--out", type=Path, default=Path("runs/reproduce"), help="where runs are kept"
    )
    parser.add_argument(
        "--page", type=Path, help="docs/results/PAPER.md for published scales in a checkout, else "
        "beside the measurements"
    )  # fmt: skip
    parser.add_argument(
        "--records", type=Path, help="where records are kept: PAPER/records beside the page"
    )
    parser.add_argument(
        "--processes", type=int, metavar="N", help="runs at a time (one per core, 3 on a "
        "GPU); 0 computes nothing and writes the page of what is there"
    )  # fmt: skip
    parser.add_argument(
        "--minutes", type=float, metavar="LIMIT", help="stop then, keep what there is "
        "and write the page; the same command goes on"
    )  # fmt: skip
    parser.add_argument(
        "--model", metavar="MODEL", help="fedagent, fedrlhf, full scale: folder or Hugging Face id "
        "that warm starts begin with (or set FEDRL_MODEL)"
    )  # fmt: skip
    asked = parser.parse_args(argv)
    options = {name: getattr(asked, name) for name in ("processes", "minutes", "model")}
    only = tuple(asked.only)
    return reproduce(asked.paper, asked.scale, only, asked.out, asked.page, asked.records, options)
