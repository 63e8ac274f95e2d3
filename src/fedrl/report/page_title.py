"""What a page is called where nobody says it."""

from __future__ import annotations

from collections.abc import Sequence

from fedrl.core import registry
from fedrl.report.run_groups import Group
from fedrl.report.run_labels import method_label
from fedrl.report.worlds import by_world, level_keys, one_world

MOST_METHODS = 4
"""That a title names."""
COUNTED = {2: "two", 3: "three", 4: "four", 5: "five"}


def page_title(groups: Sequence[Group]) -> str:
    """The runs' name, or the variants' of one method; of several methods in several recipes or
    variants, what is played, by whom, and at how many levels."""
    called = dict.fromkeys(str(group.config.get("name", "run")) for group in groups)
    names = list(dict.fromkeys(method_label(group.config) for group in groups))
    levels, keys = by_world(groups), level_keys(groups)
    if len(called) == 1 or (len(called) <= MOST_METHODS and len(names) == len(levels) == 1):
        return " and ".join(called)
    worlds = dict.fromkeys(registry.label(str(g.config.get("world.name", ""))) for g in groups)
    where = f"{', '.join(filter(None, worlds))}: " if any(worlds) else ""
    who = ", ".join(names) if len(names) <= MOST_METHODS else f"{len(names)} methods"
    if not one_world(groups) or len(levels) < 2 or len(keys) > 1:
        return f"{where}{who}"
    count = COUNTED.get(len(levels), str(len(levels)))
    return f"{where}{who} at {count} levels of {keys[0].rpartition('.')[2]}"
