"""`fedrl list`: methods, worlds, rules, attacks, rewards and recipes, and where they come from."""

import sys
from importlib.metadata import version

from fedrl.cli.help_text import fitted
from fedrl.core.registry import Entry

NARROW = 14
"""Columns of names at least, so that tables stand alike."""


def origin(entry: Entry) -> str:
    """ "  [classic]": the extra that it needs, or the package that it comes from."""
    if not entry.outside:
        return f"  [{entry.extra}]" if entry.extra else ""
    return f"  [{entry.package} {version(entry.package)}]" if entry.package else ""


def list_(argv: list[str]) -> int:
    """What is installed: methods, worlds, rules, attacks, rewards, recipes."""
    from fedrl import api

    if argv:
        print("usage: fedrl list\n\nShows what is installed, and where it comes from.")
        return 0 if argv[0] in ("-h", "--help") else 2
    found = api.catalogue()
    rows: list[str] = []
    for title in ("methods", "worlds", "rules", "attacks", "rewards"):
        rows.append(f"{title}:")
        entries = getattr(found, title)
        wide = max(NARROW, *map(len, entries))
        rows += [f"  {name:<{wide}}  {one.summary}{origin(one)}" for name, one in entries.items()]
    for title, lines in (("recipes", found.recipes), ("sweeps", found.sweeps)):
        rows.append(f"{title}:")
        rows += [f"  {name:<26}  {line}" for name, line in lines.items()]
    text = "\n".join(rows)
    # A line for each to programs, what fits to people.
    print(fitted(text) if sys.stdout is not None and sys.stdout.isatty() else text)
    return 0
