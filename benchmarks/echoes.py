"""Clients that compute nothing, on real nodes: what a round takes is then travel alone.

Run as a program it is such a node, started by `federation` with the words of `fedrl flower node`.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent))  # nodes are started with `python -P`

import harness  # noqa: F401 - pins every library to one thread
import numpy as np

from fedrl import privacy
from fedrl.clients.local_noise import Private
from fedrl.core import seeding
from fedrl.core.types import Job, Result, Spec, Tensors
from fedrl.privacy.secure_aggregation import Terms

if TYPE_CHECKING:
    from fedrl.engines.flower.engine import FlowerEngine
    from fedrl.engines.flower.node_plan import Plan

LOAD_SECONDS = 3.0
"""What loading a small language model takes: the time that a warm worker saves."""
LINK = ("-m", "fedrl", "flower", "link")
POLLED_LINK = ("-c", """
import sys
from fedrl.cli import call
from fedrl.engines.flower.superlink_waiting import WaitingNodes
WaitingNodes.__init__.__defaults__ = (0.0, 0.0, 0.0)
sys.exit(call(["flower", "link", *sys.argv[1:]]))
""")  # fmt: skip
"""A SuperLink at which no question waits: a SuperNode then asks every 3 s, as Flower has it."""
SECURE = privacy.Settings(clip=1.0, secure=True)


class Echo:
    """Sends the broadcast back; building it takes as long as loading a model."""

    initial_exchange = False
    reports: frozenset[str] = frozenset()

    def __init__(self, load: float = 0.0) -> None:
        time.sleep(load)

    def declare(self, broadcast: Tensors) -> dict[str, Spec]:
        return {"x": Spec(broadcast["x"].shape, "float32")}

    def local(self, job: Job) -> Result:
        return Result(job.client, {"x": job.broadcast["x"] + np.float32(job.client)})


def tensors(megabytes: float) -> Tensors:
    return {"x": np.random.default_rng(0).standard_normal(int(megabytes * 2.5e5), np.float32)}


def per_round(engine: Any, sent: Tensors, clients: int, rounds: int, first: int = 0) -> list[float]:
    """Seconds of each round; every client must have answered.

    No two broadcasts are equal: Flower carries equal objects once.
    """
    seconds = []
    for number in range(first, first + rounds):
        new = {"x": sent["x"] + np.float32(number)}
        start = time.perf_counter()
        seeds = [seeding.local(0, number, 0, client) for client in range(clients)]
        jobs = [Job(client, new, None, seed, number) for client, seed in enumerate(seeds)]
        outcomes = list(engine.run(jobs, 0.0))
        seconds.append(time.perf_counter() - start)
        failed = [o for o in outcomes if not isinstance(o, Result)]
        assert not failed, failed
    return seconds


@contextmanager
def federation(
    clients: int,
    insecure: bool = False,
    poll: float = 3.0,
    peers: bool = False,
    link: Sequence[str] = LINK,
) -> Iterator[Callable[[str], FlowerEngine]]:
    """Makes engines on a federation of processes; their recipes are `warm`, `cold`, `secure`."""
    from fedrl.config.flower import Settings
    from fedrl.engines.flower.connection import FOLDER, find
    from fedrl.engines.flower.engine import FlowerEngine, Recipe
    from fedrl.engines.flower.local_federation import LocalFederation

    def engine(kind: str) -> FlowerEngine:
        terms = Terms.of(SECURE, clients) if kind == "secure" else None
        algorithm: Any = Private(Echo(), SECURE) if terms else Echo()  # type: ignore[arg-type]
        recipe = Recipe("bench", f"{kind} {clients}", 2)
        return FlowerEngine(algorithm, recipe, here, Settings(), print, terms=terms)

    with tempfile.TemporaryDirectory() as folder:
        os.environ[FOLDER] = folder
        program = [str(Path(__file__).resolve())]
        with LocalFederation(
            Path(folder),
            clients,
            name="bench",
            insecure=insecure,
            program=program,
            poll=poll,
            peers=peers,
            link=link,
        ):
            here = find("bench")
            yield engine


# A node


def algorithm(terms: Terms | None) -> Any:
    from fedrl.clients.masked_updates import SecureClient

    echo: Any = Echo(LOAD_SECONDS)
    return echo if terms is None else SecureClient(Private(echo, SECURE), SECURE, terms)


def plan(recipe: str) -> Plan:
    from fedrl.engines.flower.node_plan import Plan

    kind, clients = recipe.split()
    terms = Terms.of(SECURE, int(clients)) if kind == "secure" else None
    return Plan(partial(algorithm, terms), "float32", 4_000_000, kind != "cold", terms)


def main() -> None:
    from fedrl.engines.flower.node import NodeClient
    from fedrl.engines.flower.supernode import SuperNode, serve
    from fedrl.privacy.secure_aggregation.identity import load

    parser = argparse.ArgumentParser()
    for flag in ("--client", "--superlink", "--folder", "--ca", "--key", "--peers"):
        parser.add_argument(flag)
    parser.add_argument("--insecure", action="store_true")
    parser.add_argument("--poll", type=float)
    asked = parser.parse_args()
    ca, key, peers = (Path(p) if p else None for p in (asked.ca, asked.key, asked.peers))
    client = NodeClient(int(asked.client), Path(asked.folder), plan, identity=load(key, peers))
    serve(SuperNode(asked.superlink, ca, key, asked.poll), client)


if __name__ == "__main__":
    main()
