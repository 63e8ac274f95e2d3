"""Recordings of the original WebShop replay without a mismatch; tampered ones do not."""

from __future__ import annotations

import json
import lzma
import shutil
from pathlib import Path

import pytest
from support.realdata import data, parity

from fedrl.core.types import UserError
from fedrl.envs.webshop.parity import recorded_shop, replay, search_line
from fedrl.envs.webshop.reward import unwinnable

pytestmark = [pytest.mark.slow, pytest.mark.realdata]

COUNTS = {"goals": 144, "rewards": 1000, "search": 300, "sessions": 646}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    source = parity()
    for path in source.glob("webshop_*.jsonl.xz"):
        shutil.copy(path, tmp_path)
    tmp_path.chmod(0o755)
    return tmp_path


def rewrite(path: Path, change) -> None:
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    change(records)
    path.unlink()
    with lzma.open(path, "wt", encoding="utf-8") as out:
        out.writelines(json.dumps(record) + "\n" for record in records)


def test_the_original_and_ours_agree():
    lines = replay(parity(), data(""))
    for line in lines:
        assert line.passed, (str(line), line.examples)
    checked = {line.file.split("_")[1].split(".")[0]: line.checked for line in lines}
    assert checked == COUNTS


def test_a_change_in_any_recording_is_found(folder: Path):
    def goal(records):
        records[100]["goal"]["price_upper"] += 10.0

    def purchase(records):
        records[5]["info"]["title_score"] += 0.1

    def first_hit(records):
        records[7]["asins"] = records[7]["asins"][1:]

    def session(records):
        records[3]["steps"][2]["observation"] += "!"

    changes = {"goals": goal, "rewards": purchase, "search": first_hit, "sessions": session}
    for name, change in changes.items():
        rewrite(folder / f"webshop_{name}.jsonl.xz", change)
    for line in replay(folder, data("webshop")):
        assert line.mismatches == 1, str(line)
        assert not line.passed
        assert len(line.examples) == 1


def test_other_seeds_give_other_goals(folder: Path):
    def seed(records):
        records[0]["seed_before_loading"] += 1

    rewrite(folder / "webshop_goals.jsonl.xz", seed)
    goals, rewards, search, sessions = replay(folder, data("webshop"))
    assert goals.mismatches > 90
    assert sessions.mismatches > 0
    assert rewards.passed
    assert search.passed


def test_search_fails_by_its_shares_too(folder: Path):
    def shuffled(records):
        for record in records[: len(records) // 10]:
            record["asins"][1:3] = record["asins"][2:0:-1]

    rewrite(folder / "webshop_search.jsonl.xz", shuffled)
    line = search_line(recorded_shop(folder, data("webshop")), folder / "webshop_search.jsonl.xz")
    assert line.mismatches == 0
    assert not line.passed


def test_the_original_has_goals_that_cannot_be_won():
    shop = recorded_shop(parity(), data("webshop"))
    lost = unwinnable(shop.goals, shop.store.by_asin, shop.prices, shop.rules)
    assert len(lost) == 458


def test_a_folder_without_recordings_is_the_users_mistake(tmp_path: Path):
    with pytest.raises(UserError, match="webshop_goals"):
        replay(tmp_path, data("webshop"))
