"""A colour and a dash per method, the same in reports, in the live view and on the result pages.

A line's name may say more than its method ("FedQHD, corrections (ours)", "PAvg, λ = 2ηK"): the
longest known name that it begins with counts. What is no method (a β, a size) takes the styles that
no method of the same figure has, in their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

METHODS = (
    # solid
    "FedQHD", "FedSVRPG-M", "FedHAPG-M", "PAvg", "FedAvg-DQN", "Distillation FedDQN",
    # dashed
    "Oracle QHD", "FedNova", "Truncate FedAvg-QHD", "FedProx", "Oracle DQN", "SCAFFOLD",
    # dotted
    "FedQHD, anchors of the box", "FedSVRPG-M, adaptive", "Independent QHD", "QAvg",
    "FedQHD, corrections", "FedPG-BR",
)  # fmt: skip
"""In the order of `plots.line_style`. FedAgent and FedRLHF stand beside none of these: theirs are
the first styles, with what they are compared with after them."""
ALONE = {
    "FedAgent": 0, "FedRLHF": 0, "Centralized": 1, "centralized": 1, "Local": 2,
    "every client alone": 2,
}  # fmt: skip


IN_RECIPES = {method.lower(): method for method in METHODS} | {
    "feddqn": "FedAvg-DQN", "distill-dqn": "Distillation FedDQN",
    "truncate-qhd": "Truncate FedAvg-QHD", "fedagent": "FedAgent", "fedrlhf": "FedRLHF",
}  # fmt: skip
"""By a method's name in recipes, the one above."""


def styles(names: Iterable[str]) -> dict[str, int]:
    """By a line's name, which style of `plots.line_style` it has."""
    lines = list(names)
    return _placed(lines, {name: at for name in lines if (at := known(name)) is not None})


def styles_of(methods: Mapping[str, str]) -> dict[str, int]:
    """The same, where it is known which method of recipes a line is of; "" is none."""
    found = {line: at for line, name in methods.items() if (at := method_style(name)) is not None}
    return _placed(list(methods), found)


def method_style(name: str) -> int | None:
    """Of a method by its name in recipes; None of one that has no colour of its own."""
    return known(IN_RECIPES[name]) if name in IN_RECIPES else None


def _placed(lines: Sequence[str], found: Mapping[str, int]) -> dict[str, int]:
    """Of two lines of one method the first keeps its style; the others take what is free."""
    first: dict[int, str] = {}
    for name, at in found.items():
        first.setdefault(at, name)
    own = {name: at for at, name in first.items()}
    free = (at for at in range(4 * len(METHODS)) if at not in first)
    return {name: own[name] if name in own else next(free) for name in lines}


def known(name: str) -> int | None:
    fits = [one for one in (*METHODS, *ALONE) if begins(name, one)]
    if not fits:
        return None
    best = max(fits, key=len)
    return ALONE[best] if best in ALONE else METHODS.index(best)


def begins(name: str, method: str) -> bool:
    """With the method's whole name: FedQHD-2 is another than FedQHD."""
    rest = name.removeprefix(method)
    return name.startswith(method) and not rest[:1].isalnum() and rest[:1] != "-"
