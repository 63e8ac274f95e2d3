"""What secure aggregation costs: the sum itself, and a round of it across processes.

python benchmarks/secure.py [sum] [flower] [--quick] [--json FILE]

Bytes are exact. `sum` plays the protocol in this process: least and median seconds of some tries.
`flower` sends updates of 1 MB from clients that compute nothing, over TLS, with and without it.
"""

from __future__ import annotations

from operator import attrgetter
from statistics import median
from typing import TYPE_CHECKING

import echoes
import harness

from fedrl.privacy.secure_aggregation.cost import cost

if TYPE_CHECKING:
    from fedrl.engines.flower.engine import FlowerEngine

PARTS = ("sum", "flower")
NUMBERS = 100_000
TRIES = 15


def sums(results: harness.Results, quick: bool) -> None:
    """One sum of 100,000 numbers; then with a quarter of the clients lost after the keys."""
    print(f"one sum of {NUMBERS:,} numbers, {4 * NUMBERS:,} bytes; least and median of {TRIES}")
    for clients in (3, 5) if quick else (3, 5, 10, 20, 50):
        whole = [cost(clients, NUMBERS) for _ in range(TRIES)]
        lost = [cost(clients, NUMBERS, clients // 4) for _ in range(TRIES)]
        name, one = f"sum/{clients}", whole[0]
        results.add(f"{name}/up", one.up, "bytes per client")
        results.add(f"{name}/down", one.down, "bytes per client")
        print(f"{clients} clients: up {one.up:,}, down {one.down:,} bytes", end="")
        for who, tries, of in (
            ("client", whole, attrgetter("client_seconds")),
            ("server", whole, attrgetter("server_seconds")),
            ("server_with_losses", lost, attrgetter("server_seconds")),
        ):
            seconds = [1e3 * of(one) for one in tries]
            results.add(f"{name}/{who}", min(seconds), "ms")
            results.add(f"{name}/{who}/median", median(seconds), "ms")
            print(f"; {who} {min(seconds):.1f} ({median(seconds):.1f}) ms", end="")
        print(flush=True)


def rounds(results: harness.Results, quick: bool) -> None:
    """Rounds of 1 MB with everybody, after the first one."""
    for clients, poll in ((3, 0.5),) if quick else ((3, 3.0), (4, 3.0), (3, 0.5), (4, 0.5)):
        for kind, told in (("warm", "plain"), ("secure", "secure")):
            with (
                echoes.federation(clients, poll=poll, peers=kind == "secure") as engine,
                engine(kind) as one,
            ):
                measure(results, f"{clients}/{told}/poll{poll:g}", one, clients, quick)


def measure(
    results: harness.Results, name: str, engine: FlowerEngine, clients: int, quick: bool
) -> None:
    count = 2 if quick else 5
    first, *later = echoes.per_round(engine, echoes.tensors(1.0), clients, count + 1)
    each = clients * (count + 1) * 1e6
    down, up = engine.calls.bytes_sent / each, engine.calls.bytes_received / each
    results.add(f"flower/{name}/round", median(later), "s")
    results.add(f"flower/{name}/up", up, "MB per client")
    results.add(f"flower/{name}/down", down, "MB per client")
    print(
        f"{name}: first round {first:.1f} s, later {median(later):.1f} s, "
        f"up {up:.4f} MB, down {down:.4f} MB",
        flush=True,
    )


def main() -> None:
    parser = harness.options(__doc__ or "")
    parser.add_argument("parts", nargs="*", help=f"{', '.join(PARTS)}; all by default")
    asked = parser.parse_args()
    if unknown := set(asked.parts) - set(PARTS):
        parser.error(f"no part {', '.join(unknown)}; choose from {', '.join(PARTS)}")
    harness.header("Secure sums")
    results = harness.Results()
    parts = asked.parts or PARTS
    if "sum" in parts:
        sums(results, asked.quick)
    if "flower" in parts and harness.missing("flwr"):
        print("flwr is not installed: rounds across processes were not measured")
    elif "flower" in parts:
        rounds(results, asked.quick)
    results.finish(asked.json)


if __name__ == "__main__":
    main()
