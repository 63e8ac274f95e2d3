"""FedAgent's claims: what would decide those that are open, what was gained, and whose settings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.repository import DOCS

pytest.importorskip("scipy", reason="verdicts need the extra report")

from reproductions import index
from reproductions.fedagent.claims import (
    NOTHING_LEARNED,
    SUCCESS,
    Pair,
    against,
    better,
    compared,
    judged,
    no_worse,
    settings_matter,
    the_same,
)
from reproductions.fedagent.environment import breaking, worlds_differ
from reproductions.fedagent.figures import PLAYED, TRAINED, client_marks, marks
from reproductions.fedagent.models import read_cells
from reproductions.fedagent.run_settings import differences, settings_of
from reproductions.fedagent.statements import statements
from reproductions.fedagent.tables import gained
from reproductions.grid import changed
from reproductions.pages import NOT_MEASURED
from reproductions.study import prepare
from reproductions.verdicts import FAILS, HOLDS, OPEN, quantile

START = dict.fromkeys(range(10), 0.3)


def of(
    values: Mapping[int, float], seconds: float = 600.0, planned: int = 10, **labels: str
) -> Any:
    """A cell with these ends by seed, whose runs took so long."""
    return SimpleNamespace(
        cell=SimpleNamespace(seeds=tuple(range(planned)), labels=labels),
        runs={seed: SimpleNamespace(seconds=seconds) for seed in values},
        value=lambda metric, rounds=None: dict(values),
        first=lambda metric: dict.fromkeys(values, 0.3),
    )


def both(ours: Mapping[int, float], base: Mapping[int, float], **more: Any) -> Pair:
    return Pair(ours, base, [of(ours, **more), of(base, **more)])


@pytest.mark.parametrize("rule", [better, no_worse, the_same, breaking])
@pytest.mark.parametrize("mean", [-9.0, -5.4, -2.6, -2.4, 0.4, 3.0, 5.5])
def test_there_is_a_verdict_exactly_when_the_interval_is_narrower_than_said(rule, mean):
    far = rule.far(mean)
    assert rule.judge((mean, far * 0.999)) != OPEN
    assert rule.judge((mean, far * 1.001)) == OPEN


def test_an_open_claim_names_seeds_and_hours():
    """Six of ten seeds, 2 points apart: what brings the interval below 2 is said, and is true."""
    spread = [0.0, 0.08, -0.04, 0.06, -0.05, 0.07]
    ours = {seed: 0.5 + 0.02 + one for seed, one in enumerate(spread)}
    base = dict.fromkeys(range(6), 0.5)
    _, _, word, said, *_ = judged(
        "Table 1", "a is better than b", "here", better, START, both(ours, base)
    )
    assert word == f"**{OPEN}**"
    assert said == "+4.0 ± 6.0; 6 of 10 seeds; 11 would decide, 1 h 40 min more"
    deviation = float(np.std(list(ours.values()), ddof=1)) * 100
    halves = [quantile(n) * deviation / n**0.5 for n in (10, 11)]
    assert halves[1] < 4.0 <= halves[0]


def test_a_decided_claim_asks_for_nothing_more():
    ours, base = {s: 0.6 + 0.001 * s for s in range(10)}, dict.fromkeys(range(10), 0.4)
    _, _, word, said, *_ = judged("", "a", "here", better, START, both(ours, base))
    assert (word, "decide" in said, "of 10" in said) == (f"**{HOLDS}**", False, False)


def test_one_seed_tells_what_another_costs():
    _, _, word, said, *_ = judged("", "a", "here", better, START, both({0: 0.6}, {0: 0.4}))
    assert word == f"**{OPEN}**"
    assert said == "+20.0 (one seed); each further seed takes 20 min 00 s"


def test_of_two_differences_each_that_is_open_is_told():
    wide = {s: 0.5 + 0.1 * (-1) ** s + 0.01 for s in range(6)}
    firm, base = {s: 0.7 + 0.001 * s for s in range(6)}, dict.fromkeys(range(6), 0.5)
    _, _, word, said, *_ = judged(
        "Table 1", "a", "b", better, START, both(firm, base), both(wide, base)
    )
    first, second = said.split("; ", 1)[0], said
    assert word == f"**{OPEN}**"
    assert "decide" not in first
    assert second.count("would decide") == 1


def shops(hard: float, ppo: float | None, none: float = 0.6) -> dict[str, Any]:
    def level(mean: float, name: str, estimator: str) -> Any:
        ends = {s: mean + 0.002 * s for s in range(6)}
        return of(ends, planned=6, shops=name, estimator=estimator)

    runs = {"none-grpo": level(none, "none", "grpo"), "none-ppo": level(none, "none", "ppo")}
    runs["hard-grpo"] = level(hard, "hard", "grpo")
    if ppo is not None:
        runs["hard-ppo"] = level(ppo, "hard", "ppo")
    return {"environment": runs}


def test_worlds_that_differ_are_claims_like_all_others():
    broken = list(worlds_differ(shops(0.4, 0.55)))
    assert [(claim, word) for claim, _, word, *_ in broken] == [
        ("GRPO breaks where shops differ: hard", f"**{HOLDS}**"),
        ("PPO mends a part of it: hard", f"**{HOLDS}**"),
    ]
    assert broken[0][3].startswith("-20.0")
    assert broken[1][3].startswith("+15.0")
    (whole,) = worlds_differ(shops(0.6, 0.4))  # nobody asks whether it is mended
    assert whole[2] == f"**{FAILS}**"
    (nothing,) = worlds_differ(shops(0.29, 0.3, none=0.295))
    assert nothing[2] == NOTHING_LEARNED
    assert not list(worlds_differ({}))


def test_what_refutes_a_claim_does_so_where_nothing_was_learned():
    """FedAgent falls from its start of 30 to 21, Local stands at 80."""
    fallen, alone = ({s: end + 0.001 * s for s in range(6)} for end in (0.21, 0.8))
    for rule in (better, no_worse):
        _, _, word, said, *_ = judged("", "a", "b", rule, START, both(fallen, alone))
        assert (word, said.split(" ±")[0]) == (f"**{FAILS}**", "-59.0")
    assert against(fallen, alone, START) == "worse (-59.0 ± 0.0)"
    # Both fell: less deep is no achievement, and not as deep as is allowed confirms nothing.
    deeper = {s: end - 0.1 for s, end in fallen.items()}
    assert judged("", "a", "b", better, START, both(fallen, deeper))[2] == NOTHING_LEARNED
    assert judged("", "a", "b", no_worse, START, both(fallen, fallen))[2] == NOTHING_LEARNED
    assert against(fallen, deeper, START).startswith(NOTHING_LEARNED)


def test_a_claim_is_not_judged_without_the_start_it_is_judged_by():
    learned, alone = ({s: end + 0.001 * s for s in range(6)} for end in (0.8, 0.5))
    assert judged("", "a", "b", better, {}, both(learned, alone))[2] is None


def test_side_parts_take_the_start_of_their_own_runs():
    """Those of the main comparison may have no record, and one of the cells neither."""
    ends = {s: 0.7 + 0.002 * s for s in range(6)}
    found = {
        f"{'tasks' if axis == 'size' else axis}-{value}": of(
            {s: end + rise for s, end in ends.items()} if rise is not None else {}, **{axis: value}
        )
        for axis, value, rise in (
            ("clients", "1", None), ("clients", "4", 0.0), ("epochs", "1", 0.0),
            ("epochs", "5", 0.1), ("size", "10", 0.0), ("size", "40", 0.001),
        )
    }  # fmt: skip
    main = of({})
    main.cell.clients_per_round = 2
    for one in found.values():
        one.cell.rounds = 8
    rows = settings_matter({"decentralized": found, "main": {"fedagent": main}})
    assert [row.word for row in rows] == [f"**{HOLDS}**", None, f"**{HOLDS}**"]


def test_the_share_of_failures_is_of_each_seeds_own_start():
    start, end = {0: 0.5, 1: 0.8, 2: 0.2}, {0: 0.75, 1: 0.9}
    assert gained(start, end) == ["65.0 ± 190.6", "82.5 ± 95.3", "17.5 ± 95.3", "50.0 ± 0.0"]
    assert gained({0: 1.0}, {0: 1.0})[-1] is None  # there was nothing to remove
    assert gained(start, {}) == [None] * 4


def test_settings_are_those_of_the_runs_themselves(tmp_path):
    cells = read_cells("small", tmp_path, "").cells
    shop = cells["webshop"][0]
    paid = [settings_of([type(shop)(**{**shop.__dict__, "recipe": changed(shop.recipe, change)})])
            for change in ({"algorithm.reward": "score"}, {"algorithm.reward": "success"},
                           {"algorithm.reward": "auto"})]  # fmt: skip
    assert ["paid by the score" in said for said in paid] == [True, False, False]
    assert all("paid by success" in said for said in paid[1:])
    said = settings_of(cells["decentralized"])
    assert "M = 1 or 4 or 2 clients per round" in said
    assert "τ = 3 or 1 or 5 local epochs" in said


def test_what_others_differ_in_is_named_unless_it_is_varied_here(tmp_path):
    base = read_cells("small", tmp_path, "").cells["main"][0]

    def other(**change: Any) -> Any:
        return type(base)(**{**base.__dict__, "recipe": changed(base.recipe, change)})

    slow = other(**{"algorithm.lr": 0.125})
    assert differences({"Local": slow, "same": base}, base) == "Local: `algorithm.lr = 0.125`"
    assert not differences({"Local": slow}, base, [base, other(**{"algorithm.lr": 0.25})])
    assert not differences({"later": other(rounds=99)}, base)


@pytest.mark.slow
def test_the_index_has_fedagents_statements_of_records_alone(tmp_path):
    study = prepare("fedagent", "small", tmp_path / "small", tmp_path / "records")
    nothing = statements(study)
    assert {one.where for one in nothing} == {"Table 1", "Figure 3", "Figure 4"}
    assert {one.verdict for one in nothing} == {NOT_MEASURED}
    ours, *others = study.grid.cells["main"]
    for cell, end in ((ours, 0.7), *((one, 0.5) for one in others)):
        for seed in range(3):
            rise = [[0, cell.rounds // 2, cell.rounds], [0.3, end, end + 0.001 * seed]]
            record = {
                "seeds": [seed], "rounds": cell.rounds, "metrics": {SUCCESS: rise},
                "seconds": 60.0, "commit": "abc", "hardware": {},
            }  # fmt: skip
            name = f"{cell.name}-seed{seed}"
            study.place.store.write(cell.part, name, cell.digest(seed), record)
    found = [one for one in statements(study) if one.verdict != NOT_MEASURED]
    assert {(one.where, one.verdict, one.seeds) for one in found} == {("Table 1", HOLDS, 3)}
    better_than_local = next(one for one in found if "Local" in one.claim)
    assert len(better_than_local.records) == 3 * 4  # FedAgent and three clients alone
    assert all(record["commit"] == "abc" for one in found for record in one.records)
    assert "FedAgent" in index.table(index.read("fedagent", DOCS / "results"), defaultdict(str))


def test_the_clients_figure_shows_trained_models_only_where_all_of_it_has_them():
    def run(*metrics: str) -> Any:
        told = {metric: {"1": [[7], [0.5]], "9": [[8], [0.6]]} for metric in metrics}
        return SimpleNamespace(runs={0: SimpleNamespace(meta={"clients": told})})

    both, old = run(PLAYED, TRAINED), run(PLAYED)
    assert marks({"fedagent": both, "centralized": both}) == TRAINED
    assert marks({"fedagent": both, "centralized": old}) == PLAYED
    nothing = SimpleNamespace(runs={})
    assert marks({"fedagent": both, "centralized": nothing}) == TRAINED
    assert marks({"fedagent": nothing, "centralized": nothing}) == PLAYED
    assert list(client_marks(both.runs[0], 5, TRAINED)) == [(7, 1, 0.5)]
    assert not list(client_marks(old.runs[0], 5, TRAINED))


def test_tables_say_what_would_decide_as_claims_do():
    wide, base = {s: 0.5 + 0.1 * (-1) ** s + 0.03 for s in range(6)}, dict.fromkeys(range(6), 0.5)
    cells = [of(wide), of(base)]
    found = judged("", "a", "b", better, START, Pair(wide, base, cells))
    assert compared(wide, base, cells) == f"undecided ({found.said})"
    assert "would decide" not in str(compared(wide, base))
    firm = {s: 0.7 + 0.001 * s for s in range(6)}
    assert compared(firm, base, cells) == compared(firm, base) == "better (+20.2 ± 0.2)"
