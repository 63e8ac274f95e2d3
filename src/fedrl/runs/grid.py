"""Whole runs as cells of a grid, in sweeps and reproductions: one recipe, a few seeds.

A run lies in `runs/PART/NAME-seedS.HASH`, where the hash is of everything that its numbers depend
on. One that was stopped goes on from its checkpoint, one that is there is only read, and one whose
recipe changed is computed anew. What may change when a run is resumed is not part of the hash, the
number of rounds included: more rounds lengthen the runs that are there, fewer read less of them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path

from fedrl.algorithms.fedagent.settings import Settings as AgentSettings
from fedrl.config import parts
from fedrl.config.build import packages
from fedrl.config.loading import as_dict, resolve
from fedrl.config.schema import Config
from fedrl.core.types import Tables, UserError
from fedrl.federation.client_sampling import groups
from fedrl.runs.logs import last_round
from fedrl.runs.read import flatten
from fedrl.runs.resume_rules import MAY_CHANGE
from fedrl.runs.run_dir import RunDir

MOVES_NOTHING = frozenset({"name", "out", "packages", "borrowed"}) | MAY_CHANGE
"""Settings that the numbers of a round do not depend on."""
COMPILED = "JAX_COMPILATION_CACHE_DIR"
"""JAX's own name for where compiled functions are kept."""


@dataclass(frozen=True)
class RunCell:
    """One row of a table or curve of a figure: a recipe, as `config.resolve` takes it, and seeds.

    Models and labels are named by paths whose last part holds a hash of how they are made, and so
    are folders of answers; if not, `mark` tells what they hold.
    """

    part: str
    name: str
    recipe: Tables
    seeds: tuple[int, ...]
    mark: str = ""

    def config(self, seed: int, folder: Path) -> Config:
        """The run of one seed, with its place under `folder`; what no folder is called is _."""
        plain = resolve({**self.recipe, "seed": seed})
        called = re.sub(r"[^\w.+-]+", "_", self.name)
        name = f"{called}-seed{seed}.{digest(plain, self.mark)}"
        return replace(plain, name=name, out=str(folder / "runs" / self.part))


SALT: tuple[str, ...] = ()
"""To be lengthened when a default changes its value: old runs are then computed anew."""
REPAIRED = {
    "feddqn": "targets by steps",
    "distill-dqn": "targets by steps",
    "fedagent": "even minibatches",
}
"""Methods that compute other numbers than they did: their older runs are computed anew."""
REPAIRED_ALONE = {
    "fedagent": "moments kept, whole pool",
    "fedrlhf-text": "moments kept",
    "fedrlhf": "moments kept",
}
"""The same of runs in which every client learns alone. Withdrawn numbers are not to come back."""


def digest(config: Config, mark: str = "") -> str:
    """Of what differs from the defaults: a new setting leaves the runs that do not use it alone."""
    names = {key: {"name": getattr(config, key).name} for key in ("algorithm", "world")}
    usual = defaults(config.algorithm.name, config.world.name)
    said = flatten(as_dict(config)).items()
    flat = {k: v for k, v in said if k not in MOVES_NOTHING and v != usual.get(k)}
    for key in ("algorithm.model", "partition.labels"):
        flat[key] = Path(flat.get(key, "")).name
    if files := flat.get("algorithm.feedback_file"):  # one per client: their folder has the hash
        flat["algorithm.feedback_file"] = Path(files).parent.name
    if plans_with_rounds(config):
        flat["rounds"] = config.rounds
    code = packages(config)
    return short_hash([names, flat, *SALT, *repaired(config), *([mark] if mark else []), *code])


def plans_with_rounds(config: Config) -> bool:
    """Whether a run's first rounds are others if there shall be more of them."""
    method = config.algorithm
    return not isinstance(method, AgentSettings) or method.lr_schedule != "constant"


def repaired(config: Config) -> list[str]:
    """What was mended of this run's method since its numbers could be read here."""
    alone = all(len(group) == 1 for group in groups(config.federation))
    tables = (REPAIRED, REPAIRED_ALONE) if alone else (REPAIRED,)
    name = config.algorithm.name
    return [table[name] for table in tables if name in table]


@cache
def defaults(algorithm: str, world: str) -> Tables:
    """Every setting, flat, where nothing but these two are named.

    Of a world that must be told more (a server, an environment) its fields' own defaults.
    """
    names = {"algorithm": {"name": algorithm}, "world": {"name": world}}
    try:
        return flatten(as_dict(resolve(names)))
    except UserError:
        usual = flatten(as_dict(resolve({"algorithm": names["algorithm"]})))
        own = {
            f"world.{field.name}": field.default for field in fields(parts.world(world).settings)
        }
        return {key: value for key, value in usual.items() if key.split(".")[0] != "world"} | own


def short_hash(data: object) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:12]


# What is there


def find(config: Config) -> Path | None:
    """The run's folder, if it was ever begun."""
    place = Path(config.out) / config.name
    begun = sorted(path.parent for path in place.glob("*/config.toml"))
    return begun[0] if begun else None


def reached(config: Config) -> int:
    """The last round that is logged; −1 if there is none."""
    path = find(config)
    log = None if path is None else path / "metrics.jsonl"
    if log is None or not log.is_file():
        return -1
    return last_round(log)


def finished(config: Config) -> bool:
    """Whether all rounds are there, the last checkpoint included.

    A run that was longer is finished, too; one that was killed between its last line and its last
    checkpoint is not.
    """
    path, last = find(config), reached(config)
    if path is None or last < config.rounds:
        return False
    return last > config.rounds or RunDir(path).read_meta().get("status") == "finished"


def accelerator() -> str:
    """The GPU that runs use here, or nothing."""
    import torch

    return str(torch.cuda.get_device_name()) if torch.cuda.is_available() else ""


def cost(config: Config, done: int = 0) -> float:
    """What is left after round `done`: which run of a list takes longest.

    For language agents in client epochs of 128 episodes, where an evaluation's are cheaper; for
    others in rounds of one client.
    """
    settings = config.algorithm
    clients = sum(
        min(len(group), config.federation.cohort or len(group))
        for group in groups(config.federation)
    )
    rounds = config.rounds - max(done, 0)
    if not isinstance(settings, AgentSettings):
        return float(rounds * clients)
    trained = rounds * clients * settings.local_epochs * settings.tasks * settings.group
    evaluated = (rounds // config.eval_every + 1) * (settings.eval_tasks or 200)
    return (trained + evaluated / 2) / 128


@contextlib.contextmanager
def compiled_once(folder: Path) -> Iterator[None]:
    """Processes that begin now keep what JAX compiles: for a short run that is most of its time."""
    before = os.environ.get(COMPILED)
    os.environ[COMPILED] = before or str((folder / "compiled").absolute())
    try:
        yield
    finally:
        if before is None:
            del os.environ[COMPILED]
