"""Which settings a resumed run keeps, and how a config.toml that is not the run's is found out."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

from fedrl.config.build import own_folders, packages
from fedrl.config.loading import as_dict
from fedrl.config.schema import Config
from fedrl.core.own_data import Pins
from fedrl.core.registry import absolute
from fedrl.core.types import Json, Tables, UserError
from fedrl.runs.read import flatten
from fedrl.runs.run_dir import require_run

NAMED = 5
"""Runs in a folder that are named; more are counted."""

MAY_CHANGE = {
    "rounds",
    "engine",
    "workers",
    "connection",
    "track",
    "checkpoint_every",
    "federation.quorum",
    "federation.retries",
    "federation.deadline",
    "privacy.epsilon",
    "algorithm.compile",
    "algorithm.device",
    "algorithm.microbatch",
    "algorithm.pass_tokens",
    "algorithm.rollouts",
    "algorithm.save_memory",
}
"""Settings of a stopped run that may be changed when it is resumed: how it runs, not what."""
FREE_TABLES = ("faults.", "flower.")
"""Whole tables of such settings."""


def may_change(key: str) -> bool:
    """Whether a resumed run may be told another value of this setting."""
    return key in MAY_CHANGE or key.startswith(FREE_TABLES)


def placed(config: Config) -> Config:
    """With the places of people's answers, and of code, as they are named from anywhere, and with a
    digest of data of one's own.

    A run may be resumed, and `fedrl feedback` started, in another folder than the run was.
    """
    keys = ["feedback_file", "feedback_folder"]
    if config.engine != "flower":  # nodes have a template of this name in their own folder
        keys.append("template")
    said = {key: getattr(config.algorithm, key, "") for key in keys}
    full = {key: str(Path(path).absolute()) for key, path in said.items() if path}
    method, world, rule, attack = config.algorithm, config.world, config.aggregate, config.attack
    dealt = config.partition
    own = dealt.strategy == "own"
    if own and not dealt.digests:  # nodes know their own
        dealt = replace(dealt, digests=own_folders(config).digests(config.engine != "flower"))
    if isinstance(world, Pins):
        world = world.pinned(digest="") if own else world.pinned()
    return replace(
        config,
        algorithm=replace(method, **full, name=absolute(method.name)),
        world=replace(world, name=absolute(world.name)),
        partition=dealt,
        aggregate=replace(rule, name=absolute(rule.name)),
        attack=replace(attack, kind=absolute(attack.kind)),
        packages=packages(config),
    )


def kept_settings(config: Config) -> Json:
    """What a resumed run must not change, flat: every checkpoint remembers it."""
    flat = flatten(as_dict(placed(config)))
    free = MAY_CHANGE | {"name", "out", "packages", "borrowed"}
    free |= {"world.digest", "partition.digests", "agree"}
    return {k: v for k, v in flat.items() if k not in free and not k.startswith(FREE_TABLES)}


def require_same(config: Config, then: Tables, path: Path) -> None:
    """Refuse a config.toml that is not the run's own; `then` are its checkpoint's settings.

    A text with a / in it may be the new place of a folder that was moved.
    """
    for key, value in json.loads(json.dumps(kept_settings(config))).items():
        said = then.get(key, value)
        if said != value and not any(isinstance(v, str) and "/" in v for v in (said, value)):
            raise UserError(
                f"{path / 'config.toml'}: {key} is {value!r}, and {said!r} in the run's "
                "checkpoint: put it back, or begin a new run"
            )


def require_one_run(path: Path) -> None:
    """A run's own folder; of a folder with runs in it, these are named."""
    # os.path, unlike pathlib, also answers for names that are too long
    if os.path.isdir(path) and not os.path.isfile(path / "config.toml"):
        below = [
            found.parent for depth in ("*", "*/*") for found in path.glob(f"{depth}/config.toml")
        ]
        below.sort(key=lambda run: (run / "config.toml").stat().st_mtime, reverse=True)
        if below:
            more = f", and {len(below) - NAMED} more" if len(below) > NAMED else ""
            raise UserError(
                f"{path} holds runs and is none; name one of them, the newest first: "
                f"{', '.join(map(str, below[:NAMED]))}{more}"
            )
    require_run(path)
