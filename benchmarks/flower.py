"""What a round across processes costs: seconds and bytes for updates of several sizes.

python benchmarks/flower.py [--quick] [--large] [--json FILE]

Two clients send an update as large as the broadcast and compute nothing, so that a round is travel
alone. `--large` adds updates of 500 MB. A SuperNode looks for messages every 3 s: that, and not the
bytes, is most of a round of small updates.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import harness
import numpy as np

from fedrl import tree
from fedrl.engines.inprocess import InProcess
from fedrl.types import Job, Result, Spec, Tensors

CLIENTS = 2
LOAD_SECONDS = 3.0
"""What loading a small language model takes: the time that a warm worker saves."""


class Echo:
    """Sends the broadcast back; building it takes as long as loading a model."""

    opening = False
    reports: frozenset[str] = frozenset()

    def __init__(self, load: float = 0.0) -> None:
        time.sleep(load)

    def declare(self, broadcast: Tensors) -> dict[str, Spec]:
        return {"x": Spec(broadcast["x"].shape, "float32")}

    def local(self, job: Job) -> Result:
        return Result(job.client, {"x": job.broadcast["x"] + np.float32(job.client)})


def tensors(megabytes: float) -> Tensors:
    return {"x": np.random.default_rng(0).standard_normal(int(megabytes * 2.5e5), np.float32)}


def per_round(engine: Any, sent: Tensors, rounds: int) -> list[float]:
    seconds = []
    for number in range(rounds):
        start = time.perf_counter()
        jobs = [Job(client, sent, None, number) for client in range(CLIENTS)]
        outcomes = list(engine.run(jobs, 0.0))
        seconds.append(time.perf_counter() - start)
        failed = [o for o in outcomes if not isinstance(o, Result)]
        assert not failed, failed
    return seconds


def serve_node(argv: list[str]) -> None:
    """A node of this benchmark: as `fedrl flower node`, with Echo as the algorithm."""
    from fedrl.engines.flower.node import Client, Plan
    from fedrl.engines.flower.supernode import Node, serve

    parser = argparse.ArgumentParser()
    for flag in ("--client", "--superlink", "--folder", "--ca", "--key"):
        parser.add_argument(flag)
    parser.add_argument("--insecure", action="store_true")
    asked = parser.parse_args(argv)

    def plan(recipe: str) -> Plan:
        return Plan(partial(Echo, LOAD_SECONDS), False, 4_000_000, recipe == "warm")

    ca, key = (Path(p) if p else None for p in (asked.ca, asked.key))
    serve(Node(asked.superlink, ca, key), Client(int(asked.client), Path(asked.folder), plan))


@contextmanager
def federation(insecure: bool) -> Iterator[Callable[[str], Any]]:
    """Makes engines on a federation of processes: `engine("warm")`."""
    from fedrl.engines.flower.connection import FOLDER, find
    from fedrl.engines.flower.engine import Flower, Recipe
    from fedrl.engines.flower.settings import Settings
    from fedrl.engines.flower.up import Federation

    with tempfile.TemporaryDirectory() as folder:
        os.environ[FOLDER] = folder
        program = [str(Path(__file__).resolve()), "--node"]
        with Federation(Path(folder), CLIENTS, name="bench", insecure=insecure, program=program):
            yield lambda recipe: Flower(
                Echo(), Recipe("bench", recipe, 2), find("bench"), Settings(), print
            )


def measure(results: harness.Results, name: str, engine: Any, size: float, rounds: int) -> None:
    sent = tensors(size)
    with engine:
        first, *later = per_round(engine, sent, rounds + 1)
        minimum = tree.nbytes(sent) * CLIENTS * (rounds + 1)
        down, up = engine.bytes_sent / minimum, engine._link.bytes_received / minimum
    results.add(f"flower/{name}/{size:g}MB/round", float(np.median(later)), "s")
    print(f"{name}, {size:g} MB: first round {first:.1f} s, later {np.median(later):.1f} s, bytes "
          f"down {down:.4f} and up {up:.4f} of the least", flush=True)  # fmt: skip
    results.add(f"flower/{name}/{size:g}MB/bytes", (down + up) / 2, "of the least")


def growth(results: harness.Results, engine: Any) -> None:
    """Many small messages to two nodes: what the SuperLink and the driver take for each."""
    from fedrl.engines.flower import messages, protocol
    from fedrl.engines.flower.link import Outgoing

    with engine:
        per_round(engine, tensors(0.01), 1)
        link, nodes = engine._link, sorted(engine.owners.values())
        for count in (2, 10, 100):
            start = time.perf_counter()
            waiting = set()
            for number in range(count):
                content = messages.content(protocol.write(protocol.Who(protocol.nonce())))
                waiting |= set(link.push([Outgoing(nodes[number % len(nodes)], content, 600.0)]))
            pushed = time.perf_counter() - start
            while waiting:
                waiting -= {answer.message for answer in link.pull(waiting, 2**20)}
                time.sleep(0.05)
            total = time.perf_counter() - start
            print(
                f"{count} messages: sent in {pushed:.2f} s, answered in {total:.1f} s", flush=True
            )
            results.add(f"flower/messages/{count}/send", pushed / count * 1e3, "ms each")
            results.add(f"flower/messages/{count}/all", total, "s")


def main() -> None:
    if "--node" in sys.argv:
        serve_node(sys.argv[sys.argv.index("--node") + 1 :])
        return
    parser = harness.options(__doc__ or "")
    parser.add_argument("--large", action="store_true", help="also updates of 500 MB")
    asked = parser.parse_args()
    harness.header("Rounds across processes: two clients that send back what they get")
    results = harness.Results()
    sizes = [1.0] if asked.quick else [1.0, 50.0, 500.0] if asked.large else [1.0, 50.0]
    rounds = 2 if asked.quick else 3
    for size in sizes:
        seconds = per_round(InProcess(Echo()), tensors(size), rounds)  # type: ignore[arg-type]
        results.add(f"inprocess/{size:g}MB/round", float(np.median(seconds)), "s")
    if harness.missing("flwr"):
        print("flwr is not installed: only the in-process engine was measured")
    else:
        for insecure in (True, False):
            if asked.quick and insecure:
                continue
            with federation(insecure) as engine:
                kind = "plain" if insecure else "tls"
                for size in sizes:
                    measure(results, f"{kind}/warm", engine("warm"), size, rounds)
                if not insecure:
                    measure(results, f"{kind}/cold", engine("cold"), 1.0, rounds)
                    growth(results, engine("warm"))
    results.finish(asked.json)


if __name__ == "__main__":
    main()
