"""`fedrl.doctor`: what is installed here, which devices, data and space there are."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import fedrl
from fedrl.runs import provenance

State = Literal["good", "note", "trouble"]
LOW_DISK = 5e9
"""Bytes below which checkpoints of a language model may not fit."""


@dataclass(frozen=True)
class Finding:
    """One line: about what, how it stands, and what helps where it does not stand well."""

    about: str
    state: State
    text: str
    remedy: str = ""


def doctor(folder: str | Path = ".") -> list[Finding]:
    """What there is on this machine; `folder` is where runs are to be kept."""
    return [*_python(), *_extras(), *_devices(), *_data(), *_place(Path(folder))]


def _python() -> Iterator[Finding]:
    hardware = provenance.hardware()
    commit = provenance.commit()
    origin = f", commit {commit}" if commit else ""
    yield Finding(
        "fedrl", "good", f"{fedrl.__version__}{origin}, Python {platform.python_version()}"
    )
    memory = hardware.get("memory_gb")
    told = f"{hardware['cpu']}, {hardware['cores']} cores" + (f", {memory} GB" if memory else "")
    yield Finding("machine", "good", f"{told}, {platform.system()}")
    if sys.platform == "win32":
        yield Finding("system", "note", "fedrl is not tested on Windows", "use WSL")


# Extras


def extras() -> dict[str, list[str]]:
    """By name, the packages that an extra asks for on this system; extras that it names are
    followed, those of other packages too: gymnasium[box2d] is no use without its engine."""
    names = importlib.metadata.metadata("fedrl").get_all("Provides-Extra") or []
    return {name: list(dict.fromkeys(_asked("fedrl", name))) for name in names}


def _asked(package: str, extra: str) -> Iterator[str]:
    from packaging.requirements import Requirement  # matplotlib brings it

    try:
        lines = importlib.metadata.requires(package) or ()
    except importlib.metadata.PackageNotFoundError:
        return
    for need in map(Requirement, lines):
        marker = need.marker
        if (
            marker is None
            or marker.evaluate({"extra": ""})
            or not marker.evaluate({"extra": extra})
        ):
            continue
        if need.name != package:
            yield need.name
        for other in sorted(need.extras):
            yield from _asked(need.name, other)


UMBRELLAS = ("all", "dev", "docs")


def _extras() -> Iterator[Finding]:
    for name, needs in sorted(extras().items()):
        if name in UMBRELLAS:
            continue
        versions = {need: _version(need) for need in needs}
        absent = [package for package, version in versions.items() if version is None]
        if absent:
            text = f"not installed: {', '.join(absent)}"
            yield Finding(f"[{name}]", "note", text, provenance.installs(name))
        else:
            told = ", ".join(f"{package} {version}" for package, version in versions.items())
            yield Finding(f"[{name}]", "good", told)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


# Devices, data, space


def _devices() -> Iterator[Finding]:
    if importlib.util.find_spec("torch") is None:
        return
    import torch

    if not torch.cuda.is_available():
        yield Finding("GPU", "note", "none that torch can use: language agents train on the CPU")
        return
    for index in range(torch.cuda.device_count()):
        about = torch.cuda.get_device_properties(index)
        free, whole = torch.cuda.mem_get_info(index)
        text = f"{about.name}, {free / 1e9:.0f} of {whole / 1e9:.0f} GB free"
        yield Finding(f"GPU {index}", "good", text)


def _data() -> Iterator[Finding]:
    from fedrl.api.real_data import data_sets

    for name, each in data_sets().items():
        if each.place is not None:
            yield Finding(name, "good", f"{each.title} in {each.place}")
        else:
            text = f"{each.title.partition(':')[0]} is not here: generated data stands in"
            yield Finding(name, "note", text, f"fedrl data {name}")


def _place(folder: Path) -> Iterator[Finding]:
    place = folder.absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    text = f"{free / 1e9:.1f} GB free in {folder.absolute()}"
    if free < LOW_DISK:
        remedy = "free some, or give runs another place with --out"
        yield Finding("disk", "trouble", text, remedy)
    else:
        yield Finding("disk", "good", text)
    try:
        probe = place / f".fedrl-doctor-{platform.node()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        text = f"cannot write to {place}: {error.strerror}"
        yield Finding("disk", "trouble", text, "give runs another place with --out")
