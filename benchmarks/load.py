"""100 members and a flood: what requests of outsiders cost an honest round, and the SuperLink.

python benchmarks/load.py [--members N] [--rounds N] [--rate R] [--seconds S] [--quick]

One SuperLink with TLS and node keys; members at the level of the protocol, without workers
(`members.py`), whose rounds of small updates a driver drives as in any run; and outsiders from
another address who send so many bad requests a second (`flood.py`). Seconds of a round and the
SuperLink's resident memory before, during and after; requests that were answered or cut off in a
second are what the flood reached: it shares the machine with those whom it attacks.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import echoes
import harness
import members

from fedrl.engines.flower import local_federation

local_federation.START_SECONDS = 300.0
HERE = Path(__file__).parent
UPDATE_MB = 0.01
ALONE_SECONDS = 10.0


class Watch:
    """Resident memory of a process, in MB, and seconds of its CPU: of the time since `begin`."""

    def __init__(self, process: int) -> None:
        self.process, self._over = process, threading.Event()
        self.begin()
        threading.Thread(target=self._look, daemon=True).start()

    def begin(self) -> None:
        self.most, self._cpu, self._since = self._now(), self._busy(), time.monotonic()

    def told(self) -> dict[str, float]:
        took = time.monotonic() - self._since
        return {"most": self.most, "now": self._now(), "cpu": (self._busy() - self._cpu) / took}

    def close(self) -> None:
        self._over.set()

    def _look(self) -> None:
        while not self._over.wait(0.2):
            self.most = max(self.most, self._now())

    def _now(self) -> float:
        try:
            status = Path(f"/proc/{self.process}/status").read_text()
        except OSError:  # it has ended
            return 0.0
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024

    def _busy(self) -> float:
        fields = Path(f"/proc/{self.process}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(results: harness.Results, count: int, rate: float, seconds: float, quiet: int) -> None:
    from fedrl.config.flower import Settings
    from fedrl.engines.flower.connection import FOLDER, find
    from fedrl.engines.flower.engine import FlowerEngine, Recipe

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        os.environ[FOLDER] = str(folder)
        federation = local_federation.LocalFederation(folder, 0, name="bench")
        link = stack.enter_context(federation).link
        assert link is not None
        members.register(folder, count)
        words = [str(HERE / "members.py"), federation.address, str(folder), str(count)]
        _started(stack, words).stdout.readline()
        echo: Any = echoes.Echo()
        recipe = Recipe("bench", "load", 2)
        engine = stack.enter_context(FlowerEngine(echo, recipe, find("bench"), Settings(), print))
        watch = Watch(link.pid)
        stack.callback(watch.close)
        sent, number = echoes.tensors(UPDATE_MB), 0

        def rounds(least: int, until: float) -> list[float]:
            nonlocal number
            taken: list[float] = []
            while len(taken) < least or time.monotonic() < until:
                taken += echoes.per_round(engine, sent, count, 1, first=number)
                number += 1
            return taken

        rounds(1, 0.0)  # everybody says its name
        ca = str(folder / "server" / "ca.pem")
        words = [str(HERE / "flood.py"), str(federation.port), ca, str(rate), str(seconds)]
        for when in ("before", "during", "after"):
            watch.begin()
            flood = _started(stack, words) if when == "during" else None
            until = 0.0 if flood is None else time.monotonic() + seconds
            taken = rounds(quiet if flood is None else 1, until)
            _tell(results, when, taken, watch.told())
            if flood is not None:
                _tell_flood(results, json.loads(flood.communicate()[0]))
        words[-1] = str(min(seconds, ALONE_SECONDS))
        watch.begin()
        found = json.loads(_started(stack, words).communicate()[0])
        cost = watch.told()["cpu"] * found["seconds"] / found["count"]
        print(f"without a round: {1000 * cost:.2f} ms of the SuperLink's CPU for a bad request "
              f"({found['count'] / found['seconds']:.0f} a second)")  # fmt: skip
        results.add("load/flood/cpu", 1000 * cost, "ms")


def _started(stack: ExitStack, words: list[str]) -> Any:
    """One that ends with this program."""
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = subprocess.Popen([sys.executable, *words], **pipes)
    stack.callback(process.kill)
    return process


def _tell(results: harness.Results, when: str, taken: list[float], link: dict[str, float]) -> None:
    print(f"{when}: {len(taken)} rounds, median {median(taken):.2f} s, {min(taken):.2f} to "
          f"{max(taken):.2f}; the SuperLink has {link['now']:.0f} MB, {link['most']:.0f} at most, "
          f"and {link['cpu']:.0%} of a core", flush=True)  # fmt: skip
    results.add(f"load/{when}/round", median(taken), "s")
    results.add(f"load/{when}/most", max(taken), "s")
    results.add(f"load/{when}/memory", link["most"], "MB")
    results.add(f"load/{when}/cpu", link["cpu"], "cores")


def _tell_flood(results: harness.Results, told: dict[str, Any]) -> None:
    reached = told["count"] / told["seconds"]
    became = ", ".join(f"{n} × {what}" for what, n in told["became"].items())
    print(f"flood: {told['count']} requests in {told['seconds']:.0f} s, {reached:.0f} a second: "
          f"{became}", flush=True)  # fmt: skip
    results.add("load/flood/rate", reached, "requests/s")


def main() -> None:
    parser = harness.options(__doc__ or "")
    parser.add_argument("--members", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5, help="before the flood, and after it")
    parser.add_argument("--rate", type=float, default=1000.0, help="bad requests a second")
    parser.add_argument("--seconds", type=float, default=60.0)
    asked = parser.parse_args()
    harness.header("Members and a flood of bad requests at one SuperLink")
    results = harness.Results()
    if asked.quick:
        asked.members, asked.seconds = min(asked.members, 8), min(asked.seconds, 5.0)
        asked.rounds = min(asked.rounds, 2)
    measure(results, asked.members, asked.rate, asked.seconds, asked.rounds)
    results.finish(asked.json)


if __name__ == "__main__":
    main()
