"""Worlds that differ: the rules by which averaging breaks, and by which a critic mends it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytest.importorskip("scipy", reason="verdicts need the extra report")

from reproductions.fedagent.environment import (
    KEPT,
    OWN,
    PARTS,
    breaks,
    mending_rows,
    mends,
    variant_rows,
    worlds_differ,
)
from reproductions.grid import read_grid
from reproductions.study import FOLDER
from reproductions.verdicts import FAILS, HOLDS, OPEN

GRID = read_grid(FOLDER / "fedagent" / "grid.toml", "small")

SUCCESS = "eval/success"
LEARNED = (20.0, 3.0)


@pytest.mark.parametrize(
    ("drop", "rise", "said"),
    [
        ((-8.0, 3.0), LEARNED, HOLDS),  # all of it below 0
        ((-1.0, 3.0), LEARNED, FAILS),  # all of it above −5
        ((1.0, 2.0), LEARNED, FAILS),
        ((-4.0, 4.5), LEARNED, OPEN),
        ((-8.0, float("nan")), LEARNED, OPEN),  # one seed decides nothing
        ((-8.0, 3.0), (1.0, 3.0), "nothing was learned"),
        (None, LEARNED, None),
    ],
)
def test_breaking_is_judged_by_the_interval(drop, rise, said):
    assert breaks(drop, rise) == said


def test_what_is_not_broken_is_not_mended():
    assert mends(FAILS, (9.0, 1.0)) == "–"
    assert mends(HOLDS, (9.0, 1.0)) == HOLDS
    assert mends(HOLDS, (1.0, 9.0)) == OPEN
    assert mends(HOLDS, None) is None


def test_nothing_is_mended_by_whoever_has_learned_nothing():
    """From 30%, GRPO falls from 60 to 40 where shops differ, and PPO from 30 to 29: it had less to
    lose."""
    runs = {
        "none-grpo": cell("none", 0.6, 0.61, 0.59),
        "none-ppo": cell("none", 0.3, 0.31, 0.29),
        "hard-grpo": cell("hard", 0.4, 0.41, 0.39),
        "hard-ppo": cell("hard", 0.29, 0.3, 0.28),
    }
    ((*_, mended),) = variant_rows("shops", runs)
    assert mended == "nothing was learned"
    breaking, mending = worlds_differ({"environment": runs})
    assert (breaking.word, mending.word) == (f"**{HOLDS}**", "nothing was learned")


def test_every_run_measures_what_its_columns_show():
    """In clients' own worlds, in nobody's, and with the adapters that a client keeps."""
    for part in ("environment", "environment_scenes"):
        for one in GRID.cells[part]:
            settings, own = one.resolved(), one.resolved().algorithm
            assert own.eval_trained > 0
            if part == "environment":
                assert own.eval_splits == ("unseen",)
                assert settings.world.unseen_products > 0
            else:
                assert own.eval_split == "unseen"
            assert own.eval_own > 0 or one.labels.get(PARTS[part]) == "none"


def cell(shops: str, *success: float) -> SimpleNamespace:
    seeds = range(len(success))
    by = {SUCCESS: dict(enumerate(success)), OWN: dict.fromkeys(seeds, 0.5)}
    by["eval/withheld_success"] = dict.fromkeys(seeds, 0.25)
    late = {seed: 0.8 if shops.endswith("mended") else 0.6 for seed in seeds}
    return SimpleNamespace(
        cell=SimpleNamespace(
            labels={"shops": shops.removesuffix(" mended")}, rounds=20, seeds=tuple(seeds)
        ),
        runs={seed: SimpleNamespace(seconds=0.0) for seed in seeds},
        value=lambda metric: by.get(metric, {}),
        late=lambda metric, rounds: late if (metric, rounds) == (KEPT, 4) else {},
        first=lambda metric: dict.fromkeys(range(len(success)), 0.3),
    )


def test_a_row_compares_seed_by_seed():
    """Seeds that differ much, and a loss that is the same in each: 10 points, with PPO 2."""
    runs = {
        "none-grpo": cell("none", 0.5, 0.6, 0.7),
        "none-ppo": cell("none", 0.5, 0.6, 0.7),
        "hard-grpo": cell("hard", 0.4, 0.501, 0.6),
        "hard-ppo": cell("hard", 0.48, 0.581, 0.68),
    }
    ((title, grpo, own, nobodys, drop, broken, ppo, kept, mended),) = variant_rows("shops", runs)
    assert title == "shops: hard"
    assert grpo.startswith("50.0")
    assert own.startswith("50.0")
    assert nobodys.startswith("25.0")
    assert drop.startswith("-10.0")
    assert (broken, mended) == (HOLDS, HOLDS)
    assert ppo.startswith("58.0")
    assert kept.startswith("-2.0")


def test_adapters_of_a_clients_own_are_judged_with_them_in_its_own_world():
    runs = {
        "none-grpo": cell("none", 0.5, 0.6),
        "hard-grpo": cell("hard", 0.4, 0.5),
        "hard-personal": cell("hard mended", 0.4, 0.5),
    }
    ((title, what, success, gain, own, more),) = mending_rows("shops", runs)
    assert (title, what) == ("shops: hard", "adapters of its own")
    assert success.startswith("45.0")
    assert gain.startswith("+0.0")
    assert own.startswith("80.0")
    assert more.startswith("+20.0")
