"""`fedrl.reproduce`: measure what a paper reports, then write the page about it."""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import fedrl
from fedrl.core.limits import one_of
from fedrl.core.types import Json, UserError
from fedrl.runs import provenance


@dataclass(frozen=True)
class Paper:
    """The scales of a paper's published page, and whether a model may be chosen."""

    published: tuple[str, ...]
    model: bool = False
    planned: bool = False
    """Whether it has the scale `paper`: the authors' own sizes, planned for whoever has them."""


PAPERS = {
    "momentum": Paper(("full",)),
    "fedagent": Paper(("small", "full"), model=True, planned=True),
    "fedqhd": Paper(("small",)),
    "fedrlhf": Paper(("small", "full"), model=True),
    # No paper's: what fedrl's own rules of aggregation are worth against clients that lie.
    "robustness": Paper(("full",)),
    # No paper's: what models and updates give away of what they were trained on.
    "exposure": Paper(("small",)),
    # No paper's: methods of every family in Gymnasium's own environments.
    "gymnasium": Paper(("small",)),
}
SCALES = ("smoke", "small", "full", "paper")
NO_RECORDS = (
    "0 records of the scale {scale} under {folder}: the page has no numbers of them; --records "
    "names the folder where they are"
)


def reproduce(
    paper: str,
    scale: Literal["smoke", "small", "full", "paper"] = "small",
    *,
    only: Iterable[str] = (),
    cells: Iterable[str] = (),
    out: str | Path = "runs/reproduce",
    page: str | Path | None = None,
    records: str | Path | None = None,
    processes: int | None = None,
    minutes: float | None = None,
    model: str | None = None,
    say: Callable[[str], None] | None = None,
) -> Path:
    """Compute what has no record, write the page; where it is.

    `only` are parts to compute, `cells` patterns of names (`fedagent-seed*`) of what is computed of
    them, `say` hears how it goes on. Stopped, the same call goes on where it
    was.
    """
    one_of("paper", paper, list(PAPERS))
    one_of("scale", scale, SCALES)
    if scale == "paper" and not PAPERS[paper].planned:
        able = ", ".join(name for name, about in PAPERS.items() if about.planned)
        raise UserError(f"--scale paper is not for {paper}, only for {able}: choose another scale")
    if model is not None and not PAPERS[paper].model:
        readers = ", ".join(name for name, about in PAPERS.items() if about.model)
        raise UserError(f"--model is not for {paper}, only for {readers}: remove it")
    if model is not None and scale != "full":
        raise UserError(f"--model is for the full scale: the scale {scale} has a model of its own")
    if (processes or 0) < 0 or (minutes is not None and minutes <= 0):
        raise UserError("--processes must not be negative, and --minutes must be above 0")
    find_reproductions()
    provenance.commit()  # before the first cell, which may take hours
    folder = Path(out) / paper / scale
    place = default_page(paper, scale, folder) if page is None else Path(page)
    kept = place.with_suffix("") / "records" if records is None else Path(records)
    study = importlib.import_module("reproductions.study")
    prepared = study.prepare(paper, scale, folder, kept, model=model)
    parts = tuple(only)
    study.wanted(prepared.grid, parts)
    make_writable(folder, place)
    limits: Json = {"processes": processes, "minutes": minutes, "cells": tuple(cells) or None}
    given = {name: value for name, value in limits.items() if value is not None}
    measured = study.measure(prepared, parts, say or logging.getLogger("fedrl").info, **given)
    if processes == 0 and scale != "paper" and not any(measured.records().values()):
        logging.getLogger("fedrl").warning(NO_RECORDS.format(scale=scale, folder=kept))
    study.write_page(measured, place, published=scale in PAPERS[paper].published)
    return place


def write_index(page: str | Path | None = None) -> Path:
    """Every statement of the papers on one page, from the records of a checkout; where it is."""
    results = Path(fedrl.__file__).parent.parent.parent / "docs" / "results"
    if not results.is_dir():
        raise UserError("the index is made of the records in docs/results: run it in a checkout")
    find_reproductions()
    place = results / "index.md" if page is None else Path(page)
    make_writable(place.parent, place)
    importlib.import_module("reproductions.index").write(place, results)
    return place


def write_partitions(page: str | Path | None = None) -> Path:
    """FedAgent's pictures of what clients hold, of the genuine data where FEDRL_DATA is set; where
    the page is. The published one is of genuine data alone."""
    data = os.environ.get("FEDRL_DATA")
    results = Path(fedrl.__file__).parent.parent.parent / "docs" / "results"
    if page is None and not (data and results.is_dir()):
        raise UserError(
            "the published page is of the genuine data: set FEDRL_DATA in a checkout, or say where "
            "another page is to be written (--page)"
        )
    find_reproductions()
    place = results / "fedagent_partitions.md" if page is None else Path(page)
    make_writable(place.parent, place)
    module = importlib.import_module("reproductions.fedagent.partitions")
    module.write(place, Path(data) if data else None)
    return place


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
