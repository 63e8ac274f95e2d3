"""What a round across processes costs: seconds and bytes for updates of several sizes.

python benchmarks/flower.py [sizes] [cold] [messages] [poll] [--quick] [--large] [--json FILE]

Two clients send an update as large as the broadcast and compute nothing, so that a round is travel
alone. `--large` adds updates of 500 MB. `poll` has a SuperNode that sleeps for half a second at
most where it finds nothing, which made small rounds shorter while it asked for messages every 3 s;
now its questions wait at the SuperLink (`waiting.py`).
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import echoes
import harness
import numpy as np

from fedrl.core import tree
from fedrl.engines.in_process import InProcess

if TYPE_CHECKING:
    from fedrl.engines.flower.engine import FlowerEngine

PARTS = ("sizes", "cold", "messages", "poll")
OFTEN = 0.5
CLIENTS = 2
TRIPS = 1 + 5 * CLIENTS
"""How often an update's bytes pass the loopback in a round, at the least: from the driver to the
SuperLink (once for all clients), to a SuperNode, to its executor, and all the way back."""


def loopback() -> int:
    """Bytes that this machine has sent to itself, headers of all protocols included."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, _, counts = line.partition(":")
        if name.strip() == "lo":
            return int(counts.split()[0])
    return 0


def measure(
    results: harness.Results, name: str, engine: FlowerEngine, size: float, rounds: int
) -> None:
    sent = echoes.tensors(size)
    with engine:
        before = loopback()
        first, *later = echoes.per_round(engine, sent, CLIENTS, rounds + 1)
        minimum = tree.nbytes(sent) * CLIENTS * (rounds + 1)
        down, up = engine.calls.bytes_sent / minimum, engine.calls.bytes_received / minimum
        wire = (loopback() - before) / (tree.nbytes(sent) * TRIPS * (rounds + 1))
    results.add(f"flower/{name}/{size:g}MB/round", float(np.median(later)), "s")
    print(f"{name}, {size:g} MB: first round {first:.1f} s, later {np.median(later):.1f} s, bytes "
          f"down {down:.4f} and up {up:.4f} of the least, on the wire {wire:.4f}",
          flush=True)  # fmt: skip
    results.add(f"flower/{name}/{size:g}MB/bytes", (down + up) / 2, "of the least")
    results.add(f"flower/{name}/{size:g}MB/wire", wire, "of the least")


def growth(results: harness.Results, engine: FlowerEngine) -> None:
    """Many small messages to two nodes: what the SuperLink and the driver take for each."""
    from fedrl.engines.flower import messages
    from fedrl.engines.flower.adapter import records
    from fedrl.engines.flower.superlink_client import Outgoing

    with engine:
        echoes.per_round(engine, echoes.tensors(0.01), CLIENTS, 1)
        link, nodes = engine.calls.link(), sorted(engine.owners.values())
        assert link is not None
        for count in (2, 10, 100):
            start = time.perf_counter()
            waiting = set()
            for number in range(count):
                content = records.content(messages.to_json(messages.Who(messages.nonce())))
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


def alone(results: harness.Results, sizes: list[float], rounds: int) -> None:
    for size in sizes:
        engine = InProcess(echoes.Echo())  # type: ignore[arg-type]
        seconds = echoes.per_round(engine, echoes.tensors(size), CLIENTS, rounds)
        results.add(f"inprocess/{size:g}MB/round", float(np.median(seconds)), "s")


def main() -> None:
    parser = harness.options(__doc__ or "")
    parser.add_argument("parts", nargs="*", help=f"{', '.join(PARTS)}; all by default")
    parser.add_argument("--large", action="store_true", help="also updates of 500 MB")
    asked = parser.parse_args()
    if unknown := set(asked.parts) - set(PARTS):
        parser.error(f"no part {', '.join(unknown)}; choose from {', '.join(PARTS)}")
    harness.header("Rounds across processes: two clients that send back what they get")
    results, parts = harness.Results(), asked.parts or PARTS
    sizes = [1.0] if asked.quick else [1.0, 50.0, 500.0] if asked.large else [1.0, 50.0]
    rounds = 2 if asked.quick else 3
    alone(results, sizes, rounds)
    if harness.missing("flwr"):
        print("flwr is not installed: only the in-process engine was measured")
        results.finish(asked.json)
        return
    if "sizes" in parts and not asked.quick:
        with echoes.federation(CLIENTS, insecure=True) as engine:
            for size in sizes:
                measure(results, "plain/warm", engine("warm"), size, rounds)
    with echoes.federation(CLIENTS) as engine:
        for size in sizes if "sizes" in parts else []:
            measure(results, "tls/warm", engine("warm"), size, rounds)
        if "cold" in parts:
            measure(results, "tls/cold", engine("cold"), 1.0, rounds)
        if "messages" in parts:
            growth(results, engine("warm"))
    if "poll" in parts:
        with echoes.federation(CLIENTS, poll=OFTEN) as engine:
            measure(results, f"tls/warm/poll{OFTEN:g}", engine("warm"), 1.0, rounds)
            measure(results, f"tls/cold/poll{OFTEN:g}", engine("cold"), 1.0, rounds)
    results.finish(asked.json)


if __name__ == "__main__":
    main()
