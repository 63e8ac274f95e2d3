"""Packages of others, as pip would have installed them, in a folder that tests put on the path."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

METHOD = '''
from dataclasses import dataclass
from fedrl.algorithms.momentum.algorithm import Momentum
from fedrl.algorithms.momentum.settings import Settings as Base


class Doubled(Momentum):
    """PAvg whose server takes steps of another length."""

    kinds = ("control",)

    @dataclass(frozen=True)
    class Settings(Base):
        # How much longer.
        factor: float = 2.0
        beta: float = 1.0

    def __init__(self, settings, world, rounds, client_env_ids):
        super().__init__(settings, world, rounds, client_env_ids)
        self.server_lr *= settings.factor
'''


def install(
    folder: Path,
    name: str,
    source: str,
    version: str = "0.1",
    points: Mapping[str, Mapping[str, str]] | None = None,
) -> Path:
    """A distribution with one module of its name; `points` are its entry points by groups."""
    module = name.replace("-", "_")
    (folder / module).mkdir(parents=True, exist_ok=True)
    (folder / module / "__init__.py").write_text(source)
    info = folder / f"{module}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nSummary: made by a test\n"
    )
    (info / "top_level.txt").write_text(f"{module}\n")
    (info / "RECORD").write_text(f"{module}/__init__.py,,\n")
    lines = [
        line
        for group, entries in (points or {}).items()
        for line in (f"[{group}]", *(f"{key} = {place}" for key, place in entries.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))
    return folder
