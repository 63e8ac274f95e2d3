"""A panel's numbers for the page's script: the curves that `plots` draws, as JSON.

The script makes a chart of them that answers the pointer; where no script runs, and on paper, the
picture of the same panel is seen.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

import numpy as np

from fedrl.core.types import Json
from fedrl.report.plots import Panel, band, room_around

DIGITS = 5
"""Significant ones: more than a chart of some hundred pixels can show."""


def chart_data(panel: Panel, legend: bool = False) -> str:
    """JSON that may stand inside a page's `<script>`; `legend`: the page has no other for it."""
    possible = (0.0, 1.0) if panel.share else panel.possible
    lines = []
    for index, (name, samples) in enumerate(panel.lines.items()):
        if not np.size(samples):
            continue
        mean, low, high = band(samples, panel.log, panel.halves.get(name), possible)
        line: Json = {"name": name, "style": panel.styles.get(name, index)}
        line |= {"x": plain(panel.x[name]), "y": plain(mean)}
        if np.isfinite(low).any():
            line |= {"low": plain(low), "high": plain(high)}
        lines.append(line)
    values = np.concatenate([np.empty(0), *(np.ravel(one) for one in panel.lines.values())])
    data: Json = {
        "title": panel.title,
        "x": panel.x_label,
        "bytes": panel.x_unit == "B",
        "log": panel.log,
        "share": panel.share,
        "points": panel.points,
        "legend": legend,
        "room": None if panel.log else room_around(values[np.isfinite(values)]),
        "start": panel.start,
        "lines": lines,
    }
    # `</script>` and `<!--` inside a name would end the element
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def plain(values: Iterable[float]) -> list[float | None]:
    """What is not finite is a gap."""
    return [float(f"{one:.{DIGITS}g}") if np.isfinite(one) else None for one in values]
