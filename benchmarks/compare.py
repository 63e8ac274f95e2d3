"""Results of two commits side by side: python benchmarks/compare.py BEFORE.json AFTER.json

Files that a benchmark wrote with --json. What only one of them measured has a dash.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    asked = parser.parse_args()
    before, after = (
        json.loads(path.read_text(encoding="utf-8"))["results"]
        for path in (asked.before, asked.after)
    )
    print("| | before | after | after / before | |\n| --- | --- | --- | --- | --- |")
    for name in dict.fromkeys([*before, *after]):
        values = [results.get(name, {}).get("value") for results in (before, after)]
        ratio = values[1] / values[0] if None not in values and values[0] else None
        told = ["–" if value is None else f"{value:.4g}" for value in (*values, ratio)]
        unit = (after.get(name) or before[name])["unit"]
        print(f"| {name} | {' | '.join(told)} | {unit} |")


if __name__ == "__main__":
    main()
