"""What the benchmark scripts share: the options, the header, the RESULT lines.

Import before anything that starts threads: it pins every library to one.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
from pathlib import Path

from fedrl.core import threads

threads.pin()

from fedrl.runs import provenance  # noqa: E402


def options(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="less of everything: under a minute")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results here")
    return parser


def header(title: str) -> None:
    """The machine and how busy it is, without which the numbers mean nothing."""
    machine = provenance.hardware()
    settings = ", ".join(f"{name}={os.environ[name]}" for name in threads.SINGLE)
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"{title}\n{machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']} GB")
    print(f"commit {provenance.commit()}; load {load}; {settings}", flush=True)
    if os.getloadavg()[0] > 0.5:
        print("the machine is busy with other work: ratios are rough, absolute numbers too low")
    print()


def missing(*packages: str) -> list[str]:
    return [name for name in packages if importlib.util.find_spec(name) is None]


class Results:
    """Numbers by name; printed last, so that two commits can be compared line by line."""

    def __init__(self) -> None:
        self.values: dict[str, dict[str, float | str]] = {}

    def add(self, name: str, value: float, unit: str) -> None:
        self.values[name] = {"value": float(value), "unit": unit}

    def finish(self, path: Path | None) -> None:
        print()
        for name, entry in self.values.items():
            print(f"RESULT {name} {entry['value']:.6g} {entry['unit']}")
        if path is not None:
            facts = {"hardware": provenance.hardware(), "versions": provenance.versions()}
            text = json.dumps({"results": self.values, **facts}, indent=1)
            path.write_text(text + "\n", encoding="utf-8")
