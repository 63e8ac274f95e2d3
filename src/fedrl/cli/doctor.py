"""`fedrl doctor`: what is installed, which devices, data and space there are."""

import dataclasses
import json
import shutil
import sys
import textwrap
from pathlib import Path

from fedrl.cli.parser import Parser

DOCTOR = "Say what is installed here, which devices, data and free space there are, and what helps."
MARKS = {"good": "✓", "note": "·", "trouble": "✗"}


def _beside(name: str, text: str) -> str:
    """`text` in a column of its own, as wide as the terminal leaves it; whole lines for a pipe."""
    if not sys.stdout.isatty():
        return name + text
    room = max(shutil.get_terminal_size().columns - len(name), 30)
    lines = textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False)
    return name + f"\n{'':{len(name)}}".join(lines)


def doctor(argv: list[str]) -> int:
    """Look at this machine; 1 if something is in the way of a run."""
    parser = Parser("fedrl doctor", description=DOCTOR)
    parser.add_argument(
        "--out", type=Path, default=Path("runs"), help="where runs are to be kept (runs)"
    )
    parser.add_argument("--json", action="store_true", help="print it for programs")
    asked = parser.parse_args(argv)
    from fedrl import api

    found = api.doctor(asked.out)
    if asked.json:
        print(json.dumps([dataclasses.asdict(one) for one in found], indent=1, ensure_ascii=False))
    else:
        wide = max(len(one.about) for one in found)
        for one in found:
            print(_beside(f"{MARKS[one.state]} {one.about:{wide}}  ", one.text))
            if one.remedy:
                print(_beside(f"  {'':{wide}}  → ", one.remedy))
    return int(any(one.state == "trouble" for one in found))
