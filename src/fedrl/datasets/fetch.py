"""Where a data set lies, and how it gets there from its publisher.

FEDRL_DATA, when set, names the folder that holds one folder per data set; otherwise that is the
user's cache. FEDRL_MIRROR, when set, is an address that serves `FOLDER/FILE` in the publishers'
stead, for machines behind a firewall; the sha256 must be right all the same.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.filesize import decimal

from fedrl.datasets import DATASETS, Dataset, File
from fedrl.datasets.download import FAILURES, digest, download, why
from fedrl.registry import suggestion
from fedrl.types import UserError

RECORD = "fedrl-sources.jsonl"
"""Beside the files: where they came from, their sums, and when."""


def find(name: str) -> Dataset:
    if name not in DATASETS:
        raise UserError(f"no data set is called {name!r}; {suggestion(name, list(DATASETS))}")
    return DATASETS[name]


def place(name: str) -> Path:
    """Where the data set belongs, whether it is there or not."""
    named = os.environ.get("FEDRL_DATA")
    if named:
        return Path(named).expanduser() / find(name).folder
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "fedrl" / "data" / find(name).folder


def present(name: str) -> bool:
    """Whether the data set is in its place, in one of the forms that the readers know."""
    folder = place(name)
    return any(
        all(any(folder.glob(pattern)) for pattern in layout) for layout in find(name).layouts
    )


def root(name: str) -> Path:
    """The folder of a data set that is there."""
    folder = place(name)
    if folder.is_dir():
        return folder
    get = f"get it with `fedrl data {name}` ({decimal(find(name).size)})"
    named = os.environ.get("FEDRL_DATA")
    if named:
        raise UserError(f"FEDRL_DATA is {named}, which has no folder {folder.name}; {get}")
    raise UserError(f"{name} is not here; {get}, or set FEDRL_DATA to the folder that holds it")


def fetch(name: str, yes: bool = False) -> Path:
    """Download a data set that is not there yet; `yes` agrees to its terms beforehand."""
    dataset, folder = find(name), place(name)
    console = Console(stderr=True, highlight=False)
    if present(name):
        console.print(f"{name} is here already", markup=False)
        return folder
    for line in terms(dataset, folder):
        console.print(line, markup=False, soft_wrap=True)
    if not yes:
        _agree(name)
    _prepare(dataset, folder)
    for file in dataset.files:
        source = _get(dataset, file, folder, console)
        _note(folder, file, source)
    return folder


def terms(dataset: Dataset, folder: Path) -> list[str]:
    return [
        dataset.title,
        f"  publisher  {dataset.publisher}",
        f"  licence    {dataset.licence}",
        f"  size       {decimal(dataset.size)}",
        f"  goes into  {folder}",
    ]


def _agree(name: str) -> None:
    if not sys.stdin.isatty():
        raise UserError(f"agree to these terms with: fedrl data {name} --yes")
    print("download it under these terms? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UserError(f"nothing downloaded; fedrl data {name} --yes does not ask")


def _prepare(dataset: Dataset, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise UserError(
            f"cannot make the folder {folder}: {error.strerror}; set FEDRL_DATA to a folder that "
            "you can write to"
        ) from error
    needed = sum(file.size for file in dataset.files if not (folder / file.name).exists())
    if free < needed:
        raise UserError(
            f"{folder} has {decimal(free)} free, and {decimal(needed)} are needed; set FEDRL_DATA "
            "to a folder on a larger disk"
        )


def _get(dataset: Dataset, file: File, folder: Path, console: Console) -> str:
    """The address that a file came from; "by hand" when it was there already."""
    target = folder / file.name
    if target.is_file():
        if digest(target) == file.sha256:
            return "by hand"
        raise UserError(f"{target} is not the published file (sha256 differs): move it away")
    url = _address(dataset, file)
    try:
        download(url, target, file.sha256, console)
    except FAILURES as error:
        raise UserError(
            f"{why(error, url)}; try again, or by hand: save {file.url} as {target}"
        ) from error
    except KeyboardInterrupt:
        console.print("the same command goes on from here", markup=False)
        raise
    console.print(f"{file.name}  sha256 {file.sha256}", markup=False, soft_wrap=True)
    return url


def _address(dataset: Dataset, file: File) -> str:
    mirror = os.environ.get("FEDRL_MIRROR")
    if not mirror:
        return file.url
    if "://" not in mirror:
        raise UserError(f"FEDRL_MIRROR is {mirror!r}; it is an address: https://HOST/PATH")
    return f"{mirror.rstrip('/')}/{dataset.folder}/{file.name}"


def _note(folder: Path, file: File, source: str) -> None:
    """One more line of the record."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    line = {"file": file.name, "from": source, "sha256": file.sha256, "date": now}
    try:
        with open(folder / RECORD, "a", encoding="utf-8") as record:
            record.write(json.dumps(line) + "\n")
    except OSError as error:
        raise UserError(f"cannot write {folder / RECORD}: {error.strerror}") from error
