"""What it saves that nodes' questions for messages wait at the SuperLink, and what it costs.

python benchmarks/waiting.py [plain] [secure] [idle] [--quick] [--json FILE]

`plain` and `secure` are rounds of 1 MB of clients that compute nothing, over TLS, at two SuperLinks
that run side by side: one at which questions wait, and one at which nodes ask every 3 s, as Flower
has it. Rounds of the two take turns, so that both see the same machine. `idle` has 100 nodes with
keys that ask as a SuperNode does, without a run: seconds of the SuperLink's CPU, and requests.
"""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import echoes
import harness
import members

from fedrl.engines.flower import local_federation

local_federation.START_SECONDS = 300.0  # on a machine that is busy
PARTS = ("plain", "secure", "idle")
LINKS = {"waits": echoes.LINK, "polled": echoes.POLLED_LINK}
CLIENTS = {"plain": 2, "secure": 3}
IDLE_NODES, IDLE_SECONDS = 100, 60.0


def rounds(results: harness.Results, kind: str, count: int) -> None:
    clients = CLIENTS[kind]
    seconds: dict[str, list[float]] = {name: [] for name in LINKS}
    with ExitStack() as stack:
        turns = {}
        for name, link in LINKS.items():
            made = stack.enter_context(
                echoes.federation(clients, peers=kind == "secure", link=link)
            )
            engine = stack.enter_context(made("secure" if kind == "secure" else "warm"))
            # Starts workers; what comes later is measured.
            echoes.per_round(engine, echoes.tensors(1.0), clients, 1)
            turns[name] = engine, _identity()
        for number in range(1, count + 1):
            for name, (engine, identity) in turns.items():
                _identify(identity)
                sent = {"x": echoes.tensors(1.0)["x"] * number}
                seconds[name] += echoes.per_round(engine, sent, clients, 1, first=number)
    for name, found in seconds.items():
        print(f"{kind}, {clients} clients, {name}: median {median(found):.2f} s of {count} rounds, "
              f"{min(found):.2f} to {max(found):.2f}", flush=True)  # fmt: skip
        results.add(f"waiting/{kind}/{name}/round", median(found), "s")
        results.add(f"waiting/{kind}/{name}/least", min(found), "s")
        results.add(f"waiting/{kind}/{name}/most", max(found), "s")


def _identity() -> tuple[int | None, ...]:
    """Flower has one run per process: that of the SuperLink whose turn it is."""
    from flwr.supercore.task_identity import TaskIdentity

    return TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id


def _identify(known: tuple[int | None, ...]) -> None:
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = known


def idle(results: harness.Results, nodes: int, seconds: float) -> None:
    from fedrl.engines.flower.local_federation import LocalFederation

    for name, link in LINKS.items():
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            os.environ["FEDRL_CONNECTIONS"] = place
            with LocalFederation(folder, 0, name="bench", link=link) as federation:
                members.register(folder, nodes)
                asked = members.Members(federation.address, folder, nodes, answers=False)
                asked.settle()
                assert federation.link is not None
                before, count, start = _cpu(federation.link.pid), asked.count, time.monotonic()
                time.sleep(seconds)
                took = (time.monotonic() - start) / 60
                busy = (_cpu(federation.link.pid) - before) / took
                requests = (asked.count - count) / took
                asked.over.set()
        print(f"{nodes} nodes without a run, {name}: {busy:.2f} s of CPU and {requests:.0f} "
              "questions in a minute", flush=True)  # fmt: skip
        results.add(f"waiting/idle/{name}/cpu", busy, "s per minute")
        results.add(f"waiting/idle/{name}/questions", requests, "per minute")


def _cpu(process: int) -> float:
    """Seconds of CPU that a process has had."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = harness.options(__doc__ or "")
    parser.add_argument("parts", nargs="*", help=f"{', '.join(PARTS)}; all by default")
    asked = parser.parse_args()
    if unknown := set(asked.parts) - set(PARTS):
        parser.error(f"no part {', '.join(unknown)}; choose from {', '.join(PARTS)}")
    harness.header("Questions that wait at the SuperLink, and nodes that ask every 3 s")
    results, parts = harness.Results(), asked.parts or PARTS
    for kind in ("plain", "secure"):
        if kind in parts:
            rounds(results, kind, 3 if asked.quick else 10)
    if "idle" in parts:
        idle(results, 10 if asked.quick else IDLE_NODES, 15.0 if asked.quick else IDLE_SECONDS)
    results.finish(asked.json)


if __name__ == "__main__":
    main()
