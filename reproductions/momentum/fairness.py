"""Where nothing is judged, because one side's step sizes were not tuned for the comparison."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from reproductions.momentum.parts import Part, shown
from reproductions.momentum.tuning import Try, Tuning
from reproductions.statements import NOT_JUDGED
from reproductions.verdicts import FAILS, HOLDS, OPEN

EARLIER = "by an earlier, smaller tuning"


def unjudged(text: str | None, why: str) -> str | None:
    """Its numbers without a verdict; as it is where there is no reason, or another one already."""
    if text is None or not why or text.startswith(NOT_JUDGED):
        return text
    return f"{NOT_JUDGED} {unmarked(text)}, {why}"


def unmarked(text: str) -> str:
    """Without its verdicts."""
    return re.sub(rf"(?:\*\*(?:{HOLDS}|{FAILS}|{OPEN})\*\*|{NOT_JUDGED}) ?", "", text).strip()


def sampled(parts: Mapping[str, Part], task: str, cells: Iterable[str]) -> Part:
    """The best measurement that has these rows: tuned, and with the power that was planned."""
    tuned = parts["best_cartpole" if task == "cartpole" else f"long_{task}"]
    return tuned if all(map(tuned.get, cells)) else parts[f"figure1_{task}"]


def fair(tuning: Tuning, part: Part, cells: Iterable[str], text: str | None) -> str | None:
    return unjudged(text, unfair(tuning, part, cells))


def unfair(tuning: Tuning, part: Part, cells: Iterable[str]) -> str:
    """Why these rows do not have the best steps of their own; nothing if they do."""
    named = [name for name in cells if name in part.cells]
    _, _, task = part.name.partition("_")
    found = tuning.after.get(part.name, f"lambda_{task}")
    fixed = part.name not in tuning.after
    if fixed and not (found in tuning.after and as_tuned(tuning, part, found, named)):
        return EARLIER
    told = [
        f"{' and '.join(ends)} of {shown(learner)}"
        for learner in (part.cells[name].labels["learner"] for name in named)
        if (ends := tuning.ends(found, learner))
    ]
    return f"best at an end of what was tried: {', '.join(told)}" if told else ""


def different_steps(part: Part, pairs: Iterable[tuple[str, str]]) -> str:
    """Why a deviation is not compared, which a step changes, too; nothing if pairs share it."""
    known = [pair for pair in pairs if set(pair) <= set(part.cells)]
    steps = [[Try(part.cells[name], 0.0).steps for name in pair] for pair in known]
    same = all(one == other for one, other in steps)
    return "" if same else "the two have different steps, so that it is not the method alone"


def as_tuned(tuning: Tuning, part: Part, found: str, cells: Iterable[str]) -> bool:
    """Whether fixed step sizes are the ones that the tuning part `found` ended with."""
    for name in cells:
        cell = part.cells[name]
        winner = tuning.choice(found, cell.labels["learner"])
        if winner is None or winner.steps != Try(cell, 0.0).steps:
            return False
    return True


def tuned_as(tuning: Tuning, part: Part) -> str:
    """Where fixed step sizes of a part come from."""
    why = unfair(tuning, part, part.cells)
    return f"η {EARLIER}" if why == EARLIER else "η as its tuning found it (see *Tuning*)"
