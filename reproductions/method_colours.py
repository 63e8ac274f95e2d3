"""A colour and a dash per method, the same in every figure of the result pages.

A line's name may say more than its method ("FedQHD, corrections (ours)", "PAvg, λ = 2ηK"): the
longest known name that it begins with counts. What is no method (a β, a size) takes the styles that
no method of the same figure has, in their order.
"""

from __future__ import annotations

from collections.abc import Iterable

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


def styles(names: Iterable[str]) -> dict[str, int]:
    """By a line's name, which style of `plots.line_style` it has."""
    lines = list(names)
    found = {name: at for name in lines if (at := known(name)) is not None}
    doubled = {at for at in found.values() if list(found.values()).count(at) > 1}
    if doubled:  # two lines of one method: the first keeps its style
        first: dict[int, str] = {}
        for name, at in found.items():
            first.setdefault(at, name)
        found = {name: at for name, at in found.items() if first[at] == name}
    free = (at for at in range(4 * len(METHODS)) if at not in found.values())
    return {name: found[name] if name in found else next(free) for name in lines}


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
