"""`fedrl sweep --dry-run`: what a sweep's runs would be, as the commands that one could type."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from fedrl.config.loading import dotted
from fedrl.core.types import Tables
from fedrl.runs.sweep import Sweep


def plan(sweep: Sweep, flags: Sequence[str]) -> list[str]:
    """A line per variant, with its seeds; what cannot be is an error, as of the sweep itself."""
    sweep.cells(flags)
    seeds = ["--seeds" if len(sweep.seeds) > 1 else "--seed", ",".join(map(str, sweep.seeds))]
    lines = []
    for name, own in sweep.variants.items():
        said = shlex.split(own) if isinstance(own, str) else as_flags(own)
        command = shlex.join(["fedrl", "run", sweep.recipe, *said, *flags, *seeds])
        lines.append(f"{name}: {command}")
    return lines


def as_flags(settings: Tables) -> list[str]:
    """`["--algorithm.lr", "0.1"]` of `{"algorithm": {"lr": 0.1}}`."""
    return [word for key, value in dotted(settings) for word in (f"--{key}", _text(value))]


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(_text, value)) if isinstance(value, list | tuple) else str(value)
