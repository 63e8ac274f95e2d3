"""Where a number came from: command, commit, versions, machine."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import fedrl
from fedrl.core.types import Json

PACKAGES = ("numpy", "jax", "numba", "mujoco", "gymnasium", "torch", "transformers", "flwr")
COMMIT = "FEDRL_COMMIT"
"""The variable that tells the commit of a copy without its history."""


def collect() -> Json:
    return {
        "command": " ".join(["fedrl", *sys.argv[1:]]),
        "commit": commit(),
        "versions": versions(),
        "hardware": hardware(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "seconds": 0.0,
    }


@cache
def commit() -> str | None:
    """The checkout's commit, with a + when its tracked files are changed; None when installed.

    Asked once: a long run is of the code that it started with. A copy without its history, on a
    machine that only computes, is told by FEDRL_COMMIT.
    """
    if told := os.environ.get(COMMIT):
        return told
    folder = Path(fedrl.__file__).parent
    try:
        head = _git(folder, "rev-parse", "--short=10", "HEAD")
        # Result pages are written by the very command that they document.
        changed = _git(folder, "status", "--porcelain", "-uno", "--", ":/", ":!/docs")
    except (OSError, subprocess.CalledProcessError):
        return None
    return head + ("+" if changed else "")


def _git(folder: Path, *words: str) -> str:
    command = ["git", "-C", str(folder), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def versions() -> dict[str, str]:
    found = {"fedrl": fedrl.__version__, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def hardware() -> Json:
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        models = [x for x in info.read_text().splitlines() if x.startswith("model name")]
        cpu = models[0].split(":", 1)[1].strip() if models else cpu
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {"cpu": cpu, "cores": os.cpu_count(), "memory_gb": round(pages / 1e9, 1)}


def installs(extra: str) -> str:
    """The command for an extra: in a checkout, of the checkout itself."""
    checkout = Path(fedrl.__file__).parents[2]
    if all((checkout / name).is_file() for name in ("pyproject.toml", "constraints.txt")):
        return f'pip install -c constraints.txt -e ".[{extra}]"'
    return f'pip install "fedrl[{extra}]"'
