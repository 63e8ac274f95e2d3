"""`fedrl reproduce PAPER`: measure what the paper reports, then write the page about it."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fedrl
from fedrl.core.types import UserError
from fedrl.runs import provenance


@dataclass(frozen=True)
class Paper:
    """Where a paper's module is, the scales of its published page, the options that it reads."""

    module: str
    published: tuple[str, ...]
    options: tuple[str, ...] = ()


PAPERS = {
    "momentum": Paper("reproductions.momentum.paper", ("full",)),
    "fedagent": Paper(
        "reproductions.fedagent.paper", ("small", "full"), ("processes", "minutes", "model")
    ),
    "fedqhd": Paper("reproductions.fedqhd.paper", ("small",), ("processes", "minutes")),
    "fedrlhf": Paper(
        "reproductions.fedrlhf.paper", ("small", "full"), ("processes", "minutes", "model")
    ),
    # No paper's: what fedrl's own rules of aggregation are worth against clients that lie.
    "robustness": Paper("reproductions.robustness.paper", ("small",), ("processes", "minutes")),
}
SCALES = ("smoke", "small", "full")


def reproduce(
    paper: str,
    scale: str,
    only: tuple[str, ...],
    out: Path,
    page: Path | None,
    options: Mapping[str, Any],
) -> int:
    """Compute what is missing under `out`, write the page, say where it is."""
    about = PAPERS[paper]
    given = {name: value for name, value in options.items() if value is not None}
    for name in given:
        if name not in about.options:
            readers = ", ".join(p for p, one in PAPERS.items() if name in one.options)
            raise UserError(f"--{name} is not for {paper}, only for {readers}: remove it")
    if given.get("processes", 0) < 0 or given.get("minutes", 1) <= 0:
        raise UserError("--processes must not be negative, and --minutes must be above 0")
    find_reproductions()
    module = importlib.import_module(about.module)
    provenance.commit()  # before the first cell, which may take hours
    if unknown := [part for part in only if part not in module.PARTS]:
        raise UserError(f"--only {unknown[0]}: the parts are {', '.join(module.PARTS)}")
    folder = out / paper / scale
    page = page or default_page(paper, scale, folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        page.parent.mkdir(parents=True, exist_ok=True)
        page.touch()
    except OSError as error:
        raise UserError(f"cannot write to {error.filename}: {error.strerror}") from error
    results = module.measure_all(scale, only, folder, say, **given)
    module.write_page(results, scale, page)
    print(f"page: {page}")
    return 0


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
