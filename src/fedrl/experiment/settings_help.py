"""`fedrl run RECIPE --help`: every setting of the recipe, its meaning and its value."""

from __future__ import annotations

import dataclasses

import tyro

from fedrl.experiment.config import Config


def show(config: Config, prog: str) -> int:
    """Let tyro draw the help of the resolved configuration (it reads the comments of fields)."""
    chosen = {"algorithm": type(config.algorithm), "world": type(config.world)}
    resolved = dataclasses.make_dataclass(
        "Config",
        [(f.name, chosen.get(f.name, f.type)) for f in dataclasses.fields(Config)],
        bases=(Config,),
        frozen=True,
    )
    values = {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}
    try:
        tyro.cli(resolved, default=resolved(**values), args=["--help"], prog=prog)
    except SystemExit as done:
        return int(done.code or 0)
    return 0
