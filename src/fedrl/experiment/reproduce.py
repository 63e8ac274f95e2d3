"""`fedrl reproduce PAPER`: measure what the paper reports, then write the page about it."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import fedrl
from fedrl.experiment import provenance
from fedrl.types import UserError

PAPERS = {"momentum": "fedrl.experiment.papers.momentum"}
SCALES = ("smoke", "small", "full")


def reproduce(paper: str, scale: str, only: tuple[str, ...], out: Path, page: Path | None) -> int:
    """Compute what is missing under `out`, write the page, say where it is."""
    module = importlib.import_module(PAPERS[paper])
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
    results = module.measure_all(scale, only, folder, say)
    module.write_page(results, scale, page)
    print(f"page: {page}")
    return 0


def default_page(paper: str, scale: str, folder: Path) -> Path:
    """In a checkout the full scale's page is published; others stay with their numbers."""
    docs = Path(fedrl.__file__).parent.parent.parent / "docs" / "results"
    return docs / f"{paper}.md" if scale == "full" and docs.is_dir() else folder / f"{paper}.md"


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
