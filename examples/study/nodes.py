"""Some rounds of an example across two nodes of Flower, beside the same rounds in one process.

    pip install ./examples/environments          # nodes load code of installed packages only
    python -m examples.study nodes higher_lower

The nodes are processes with keys and TLS of their own. Each has its own server of OpenEnv, whose
address its owner gives after `--`; the coordinator has a third one, for evaluations.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

import fedrl
from examples.study.runs import SHORT, begin
from examples.study.studies import Cell
from fedrl.config.loading import resolve
from fedrl.core import tree
from fedrl.core.types import Json, UserError
from fedrl.envs.openenv.loopback_server import LoopbackServer
from fedrl.runs.run_dir import RunDir, read_checkpoint
from reproductions.grid import changed
from reproductions.records import Store, origin, rounded

PACKAGES = {"sort_digits": "fedrl-sort-digits", "word_game": "fedrl-word-game"}
OTHERS = "fedrl-example-environments"
INSTALLED: Mapping[str, Json] = {
    "word_hints": {"world.environment": "word_hints:load_environment"},
    "prices": {"world.tools": ["prices:price"], "world.reward": ["prices:right"]},
}
"""Settings that name files, by the names of the installed package."""
NODE = """
import sys
from fedrl.cli import call
client = int(sys.argv[sys.argv.index("--client") + 1])
urls = {urls!r}
sys.exit(call(["flower", "node", *sys.argv[1:], *(["--world.url", urls[client]] if urls else [])]))
"""
"""A node whose owner names a server of his own."""


def across(
    name: str, work: Path, records: Path, rounds: int = 3, seed: int = 0, short: bool = False
) -> Json:
    """Play the rounds on two nodes and here, compare them to the bit, and record both."""
    package = PACKAGES.get(name, OTHERS)
    try:
        version(package)
    except PackageNotFoundError as error:
        raise UserError(f"nodes run installed code only: pip install {package}") from error
    begin(name, work)
    os.chdir(work / name)
    cell = Cell(name, "federated", seed)
    place = {"seed": seed, "rounds": rounds, "eval_every": 1, "out": "runs", "name": "nodes"}
    less = {"federation.clients": 2} | (SHORT if short else {})
    said = cell.settings() | INSTALLED.get(name, {}) | less | place
    with ExitStack() as stack:
        urls: list[str] = []
        if "world.serve" in said:
            serve = said.pop("world.serve")
            servers = [LoopbackServer(str(Path(serve).resolve())) for _ in range(3)]
            for server in servers:
                stack.callback(server.close)
            *urls, said["world.url"] = (server.url for server in servers)
        own = ["--algorithm.model", str(Path(said["algorithm.model"]).resolve())]
        if "world.source" in said:
            own += ["--world.source", str(Path(said["world.source"]).resolve())]
        here = fedrl.run(resolve(changed({}, said)), progress=False)
        link = fedrl.flower.up(2, "flower", name="examples", packages=[package], own=own)
        link.program = ["-c", NODE.format(urls=urls)]
        stack.enter_context(link)
        words = {"engine": "flower", "connection": "examples"}
        there = fedrl.run(resolve(changed({}, said | words)), progress=False)
    metrics = [metric for metric in here.rounds[rounds] if metric.startswith(("eval/", "train/"))]
    data: Json = {
        "settings": {k: v for k, v in said.items() if k != "world.url"},
        "servers": len(urls),
        "rounds": rounds,
        "failures": int(sum(m.get("cohort/failed", 0.0) for m in there.rounds.values())),
        "same_metrics": all(
            here.rounds[r].get(metric) == there.rounds[r].get(metric)
            for r in range(rounds + 1)
            for metric in metrics
        ),
        "same_parameters": same_parameters(here.path, there.path),
        "success": rounded([there.rounds[r]["eval/success"] for r in range(rounds + 1)]),
        **(origin() | {"command": f"python -m examples.study nodes {name}"}),
    }
    Store(records).write("nodes", name, "two", data)
    return data


def same_parameters(a: Path, b: Path) -> bool:
    """Whether the last checkpoints of two runs hold the same model, to the bit."""
    one, other = (read_checkpoint(RunDir(path).checkpoints()[0])[0].states[0] for path in (a, b))
    p, q = tree.flatten(one), tree.flatten(other)
    same = (np.asarray(p[key]).tobytes() == np.asarray(q[key]).tobytes() for key in p)
    return p.keys() == q.keys() and all(same)
