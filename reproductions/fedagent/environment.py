"""Environment-level heterogeneity: clients whose shops or scenes differ, what the records say.

The authors' later claim: averaging is robust to clients with other tasks, because the task stands
in the prompt, and may break where worlds differ, because their dynamics do not; where GRPO breaks,
PPO mends a part. By seed, D(e) is the success with estimator e where worlds differ less that where
they do not, both in the plain world.

    "breaks"       D(GRPO) lies below 0        refuted if all of its interval lies above −margin
    "PPO mends"    D(PPO) − D(GRPO) lies above 0, asked only where GRPO breaks

Nothing is said of an estimator that has learned nothing in the plain world: what never rose cannot
fall.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reproductions.fedagent.claims import (
    MARGIN,
    NOTHING_LEARNED,
    SUCCESS,
    Claim,
    Pair,
    Parts,
    Rule,
    better,
    may_have_learned,
    points,
    shown,
    told,
)
from reproductions.fedagent.run_settings import settings_of
from reproductions.pages import Page, Row
from reproductions.results import Runs
from reproductions.verdicts import FAILS, HOLDS, OPEN, BySeed, Difference, above, signed

OWN = "eval/own_success"
NOBODYS = ("eval/withheld_success", "eval/unseen_success")
"""With products that no client has."""
KEPT = "trained/own_success"
"""In a client's own world, with the model that it has trained and the adapters that it keeps."""
PARTS = {"environment": "shops", "environment_scenes": "scenes"}
"""What differs from client to client."""
SOURCE = "Environment level"
"""The authors' later work."""
WHERE = {"environment": "Generated WebShop", "environment_scenes": "Generated household"}
MENDING = {"prox": "FedProx", "server": "server momentum", "personal": "adapters of its own"}
UNTOLD = "–"


def environment(parts: Parts, page: Page) -> dict[str, Any] | None:
    """Nothing where there are no records."""
    found = {part: parts[part] for part in PARTS if part in parts}
    if not any(one.runs for runs in found.values() for one in runs.values()):
        return None
    rows = [row for part, runs in found.items() for row in variant_rows(PARTS[part], runs)]
    more = [row for part, runs in found.items() for row in mending_rows(PARTS[part], runs)]
    head = ("clients differ in", "GRPO", "in their own", "in nobody's", "D(GRPO)", "breaks",
            "PPO", "D(PPO)", "PPO mends")  # fmt: skip
    remedies = ("clients differ in", "", "success", "gain", "a client's own", "gain")
    return {
        "settings": list(settings_told(found)),
        "rows": page.table("environment", head, rows),
        "mending": page.table("mending", remedies, more),
    }


def settings_told(found: Parts) -> Iterator[str]:
    """Of each part that has begun, with its seeds."""
    for part, runs in found.items():
        if any(one.runs for one in runs.values()):
            cells = [one.cell for one in runs.values()]
            seeds = max(len(one.runs) for one in runs.values())
            yield (
                f"{PARTS[part].capitalize()}: {cells[0].rounds} rounds, {seeds} of "
                f"{len(cells[0].seeds)} planned seeds. {settings_of(cells)}"
            )


def worlds_differ(parts: Parts) -> Iterator[Claim]:
    """The claims, beside all others: of parts that have begun. Of what is not broken nobody asks
    whether it is mended."""
    for part, where in WHERE.items():
        runs = parts.get(part, {})
        if not any(one.runs for one in runs.values()) or "none-grpo" not in runs:
            continue
        plain = ends(runs, "none", "grpo")
        for name in variants(PARTS[part], runs):
            if f"{name}-grpo" not in runs:
                continue
            hard = ends(runs, name, "grpo")
            both = Pair(hard, plain, [runs[f"{name}-grpo"], runs["none-grpo"]])
            word = breaks(points(hard, plain), risen(runs, "grpo"))
            claim = f"GRPO breaks where {PARTS[part]} differ: {name}"
            yield spoken(claim, where, word, breaking, both)
            if word == HOLDS and f"{name}-ppo" in runs:
                yield mended(runs, name, where)


def mended(runs: Runs, name: str, where: str) -> Claim:
    keys = [f"{name}-ppo", "none-ppo", f"{name}-grpo", "none-grpo"]
    loss = [lost(ends(runs, name, e), ends(runs, "none", e)) for e in ("ppo", "grpo")]
    both = Pair(loss[0], loss[1], [runs[key] for key in keys if key in runs])
    word = mends(HOLDS, points(*loss), risen(runs, "ppo"))
    return spoken(f"PPO mends a part of it: {name}", where, word, better, both)


def spoken(claim: str, where: str, word: str | None, rule: Rule, both: Pair) -> Claim:
    difference = points(both.ours, both.base)
    if word is None or difference is None:
        return Claim(claim, where, None, None, SOURCE)
    if word == NOTHING_LEARNED:
        return Claim(claim, where, word, signed(difference), SOURCE, both.cells, both.seeds)
    numbers = told(word, rule, difference, both)
    return Claim(claim, where, f"**{word}**", numbers, SOURCE, both.cells, both.seeds)


def variants(axis: str, runs: Runs) -> list[str]:
    """In the grid's order; `none` is what they are compared with."""
    names = dict.fromkeys(one.cell.labels[axis] for one in runs.values())
    return [name for name in names if name != "none"]


def variant_rows(axis: str, runs: Runs) -> Iterator[Row]:
    plain = {e: ends(runs, "none", e) for e in ("grpo", "ppo")}
    for name in variants(axis, runs):
        by = {e: ends(runs, name, e) for e in plain}
        loss = {e: lost(by[e], plain[e]) for e in plain}
        drop = {e: points(by[e], plain[e]) for e in plain}
        broken = breaks(drop["grpo"], risen(runs, "grpo"))
        own = runs[f"{name}-grpo"].value(OWN) if f"{name}-grpo" in runs else {}
        yield [
            f"{axis}: {name}", shown(by["grpo"]), shown(own) or UNTOLD,
            shown(in_nobodys(axis, runs, f"{name}-grpo")) or UNTOLD, said(drop["grpo"]), broken,
            shown(by["ppo"]), said(drop["ppo"]),
            mends(broken, points(loss["ppo"], loss["grpo"]), risen(runs, "ppo")),
        ]  # fmt: skip


def mending_rows(axis: str, runs: Runs) -> Iterator[Row]:
    """Each remedy beside the plain average in the same worlds."""
    for name in variants(axis, runs):
        for key, title in MENDING.items():
            if f"{name}-{key}" in runs:
                with_it = ends(runs, name, key)
                gain = points(with_it, ends(runs, name, "grpo"))
                own = kept(runs, f"{name}-{key}")
                more = points(own, kept(runs, f"{name}-grpo"))
                yield [f"{axis}: {name}", title, shown(with_it), said(gain), shown(own) or UNTOLD,
                       said(more) or UNTOLD]  # fmt: skip


def kept(runs: Runs, key: str) -> BySeed:
    """A single round has a cohort's clients only: by seed, the mean of the last fifth."""
    if key not in runs:
        return {}
    one = runs[key]
    return one.late(KEPT, max(1, one.cell.rounds // 5))


def in_nobodys(axis: str, runs: Runs, key: str) -> BySeed:
    """Of rooms it is success itself: nobody trains in those of the evaluation."""
    metrics = (SUCCESS,) if axis == PARTS["environment_scenes"] else NOBODYS
    found = [runs[key].value(metric) for metric in metrics] if key in runs else []
    return next((by_seed for by_seed in found if by_seed), {})


def ends(runs: Runs, variant: str, learner: str) -> BySeed:
    key = f"{variant}-{learner}"
    return runs[key].value(SUCCESS) if key in runs else {}


def lost(ours: BySeed, plain: BySeed) -> dict[int, float]:
    """D by seed."""
    return {seed: ours[seed] - plain[seed] for seed in ours if seed in plain}


def breaks(drop: Difference | None, rise: Difference | None) -> str | None:
    """Whether worlds that differ cost something, judged by D; nothing where nobody learned."""
    if drop is None:
        return None
    if rise is not None and not may_have_learned(rise):
        return NOTHING_LEARNED
    return judge(drop)


def decisive(mean: float) -> float:
    """Half of an interval of D that says either that it breaks or that it does not."""
    return max(-mean, mean + MARGIN)


def judge(drop: Difference) -> str:
    gap, half = drop
    if gap + half < 0:
        return HOLDS
    return FAILS if gap - half > -MARGIN else OPEN


breaking = Rule(judge, decisive)


def mends(
    broken: str | None, gain: Difference | None, rise: Difference | None = None
) -> str | None:
    if broken is None or gain is None:
        return None
    if rise is not None and not may_have_learned(rise):
        return NOTHING_LEARNED
    return above(gain) if broken == HOLDS else UNTOLD


def risen(runs: Runs, estimator: str) -> Difference | None:
    """What it has gained in the plain world."""
    key = f"none-{estimator}"
    return points(runs[key].value(SUCCESS), runs[key].first(SUCCESS)) if key in runs else None


def said(gap: Difference | None) -> str | None:
    return None if gap is None else signed(gap)
