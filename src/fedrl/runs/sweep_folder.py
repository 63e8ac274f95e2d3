"""A sweep's folder holds one grid: runs of a variant and seed with other settings are in the way.

Two grids in one folder would later be taken for one, and a flag that was forgotten when a sweep
goes on would begin all its runs anew. Runs that only other code or data makes others are begun.
"""

from __future__ import annotations

import glob
import tomllib
from collections.abc import Iterable
from pathlib import Path

from fedrl.config.loading import read_recipe, to_toml
from fedrl.config.schema import Config
from fedrl.core.types import Tables, UserError
from fedrl.runs.grid import MOVES_NOTHING, find
from fedrl.runs.read import flatten
from fedrl.runs.resume_rules import placed

NO_SETTING = (MOVES_NOTHING - {"rounds"}) | {"partition.digests", "world.digest"}
"""What may differ: how it runs, its place, and what its code and data held."""
SHOWN = 3


def refuse_other_settings(wanted: Iterable[Config], out: Path) -> None:
    others, told = 0, ""
    for config in wanted:
        called = glob.escape(config.name.rpartition(".")[0])
        there = sorted(Path(config.out).glob(f"{called}.*/*/config.toml"))
        if not there or find(config) is not None:
            continue
        here = flatten(tomllib.loads(to_toml(placed(config))))
        found = [_differing(flatten(read_recipe(file)), here) for file in there]
        if all(found):
            others, told = others + 1, told or found[-1]
    if others:
        lie = "run with other settings lies" if others == 1 else "runs with other settings lie"
        raise UserError(
            f"{others} {lie} in {out} ({told}). To go on with those, give the same sweep and "
            "flags; to begin others, another --out"
        )


def _differing(before: Tables, here: Tables) -> str:
    keys = [key for key in here if key not in NO_SETTING and before.get(key) != here[key]]
    told = [f"{key} {before.get(key, 'not set')}, here {here[key]}" for key in keys[:SHOWN]]
    return "; ".join(told) + ("; …" if len(keys) > SHOWN else "")
