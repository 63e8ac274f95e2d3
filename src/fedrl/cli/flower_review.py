"""`fedrl flower approve` and `fedrl flower audit`: what a person of an organisation decides, and
what the parts of a federation have written down of themselves."""

import json
import sys
from pathlib import Path

from fedrl.cli.flower import own_settings
from fedrl.cli.parser import Parser

APPROVE = """\
Recipes that wait for a person, where policy.toml says approval = "person". With a recipe's digest,
or the beginning of it: what it does and what will leave the node, in words; then yes or no. A
node's own settings go after --, as for `fedrl flower node`."""
AUDIT = """\
Read an audit log in words and verify that nothing was changed, removed or moved in it. The last
line is its head: kept elsewhere and given as --head, it shows later that nothing before it was
rewritten."""


def approve(argv: list[str]) -> int:
    argv, own = own_settings(argv)
    parser = Parser("fedrl flower approve", description=APPROVE)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="of the node")
    parser.add_argument("recipe", nargs="?", default="", metavar="DIGEST", help="which one")
    parser.add_argument("--policy", type=Path, metavar="FILE", help="as of fedrl flower node")
    parser.add_argument("--allow", action="append", default=[], metavar="KEY", help="the same")
    parser.add_argument(
        "--allow-package", action="append", default=[], metavar="NAME", help="the same"
    )
    parser.add_argument(
        "--data", nargs="?", const="", metavar="FOLDER", help="build its method, on this data of "
        "the node's if it needs any, to name the tensors and metrics that would leave"
    )  # fmt: skip
    said = parser.add_mutually_exclusive_group()
    said.add_argument("--yes", action="store_true", help="approve it without being asked")
    said.add_argument("--no", action="store_true", help="reject it")
    asked = parser.parse_args(argv)
    from fedrl.api import flower as parts

    if not asked.recipe:
        names = parts.waiting(asked.folder)
        for name in names:
            print(name)
        print(
            f"see one:  fedrl flower approve {asked.folder} {names[0][:8]}" if names
            else "no recipe waits"
        )  # fmt: skip
        return 0
    words = parts.describe(
        asked.folder,
        asked.recipe,
        policy=asked.policy,
        allow=asked.allow,
        packages=asked.allow_package,
        own=own,
        data=asked.data,
    )
    print("\n".join(words), end="\n\n")
    yes = asked.yes or (not asked.no and _said_yes())
    if not (yes or asked.no):
        print("it goes on waiting")
        return 1
    name = parts.approve(asked.folder, asked.recipe, yes)
    print(f"{'approved' if yes else 'rejected'} {name}: from the next job on")
    return 0


def _said_yes() -> bool:
    print("May it run on this node's data? yes / no: ", end="", flush=True)
    return sys.stdin.readline().strip().lower() == "yes"


def audit(argv: list[str]) -> int:
    parser = Parser(
        "fedrl flower audit",
        description=AUDIT,
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="of a node or a coordinator")
    parser.add_argument("--last", type=int, default=0, metavar="N", help="only the last N entries")
    parser.add_argument("--json", action="store_true", help="entries as they are, a line each")
    parser.add_argument("--head", default="", metavar="N:HASH", help="of this log, from earlier")
    parser.add_argument(
        "--coordinator", type=Path, metavar="FOLDER", help="compare a node's log with that of its "
        "coordinator, round by round"
    )  # fmt: skip
    asked = parser.parse_args(argv)
    from fedrl.api import flower as parts

    found = parts.audit(asked.folder, head=asked.head, coordinator=asked.coordinator)
    lines = [json.dumps(entry) for entry in found.entries] if asked.json else found.lines
    for line in lines[-asked.last :]:
        print(line if asked.json else _printable(line))
    out = sys.stderr if asked.json else sys.stdout
    for line in found.damage:
        print(f"DAMAGED: {_printable(line)}", file=out)
    for line in found.differences:
        print(f"DIFFERS: {_printable(line)}", file=out)
    if asked.coordinator is not None and not found.differences:
        print("both logs tell the same story", file=out)
    if not found.damage:
        print(f"whole: {found.head}", file=out)
    return 1 if found.damage or found.differences else 0


def _printable(line: str) -> str:
    """Reasons and names of runs came over the network."""
    return "".join(c if c.isprintable() else " " for c in line)
