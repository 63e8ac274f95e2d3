"""Label files: read, packed, of other people's model, and tasks that they say nothing of."""

from __future__ import annotations

import gzip
import json

import pytest
from support.realdata import data

from fedrl.analysis.partition import deal
from fedrl.core.types import UserError
from fedrl.envs.household.world import Household
from fedrl.envs.household.world import Settings as Home
from fedrl.envs.text import Task
from fedrl.partition import Settings, partition, read_labels, write_labels

TASKS = [Task(f"t{i:02d}", "ab"[i % 2]) for i in range(30)]
SOME = {task.id: i % 3 == 0 for i, task in enumerate(TASKS[:24])}
AUTHORS = "labels_qwen2.5-1.5b.json.gz"


def test_packed_labels_are_read_like_plain_ones(tmp_path):
    write_labels(tmp_path / "labels.json", SOME)
    packed = tmp_path / "labels.json.gz"
    packed.write_bytes(gzip.compress((tmp_path / "labels.json").read_bytes()))
    assert read_labels(packed) == read_labels(tmp_path / "labels.json") == SOME


CUT = gzip.compress(b"{}", mtime=0)[:-6]


@pytest.mark.parametrize("content", [b"{}", b"", CUT], ids=["plain", "empty", "cut"])
def test_what_is_not_packed_is_said(tmp_path, content):
    (tmp_path / "labels.json.gz").write_bytes(content)
    with pytest.raises(UserError, match=r"labels\.json\.gz: not a"):
        read_labels(tmp_path / "labels.json.gz")


def test_tasks_without_a_label_are_refused_or_left_out():
    asked = Settings(strategy="hardness", size=6, xi=4.0)
    with pytest.raises(UserError, match=r"nothing of 6 of 30 tasks.*leave_out"):
        partition(TASKS, 4, asked, 0, SOME)
    left = Settings(strategy="hardness", size=6, xi=4.0, unlabelled="leave_out")
    shares = partition(TASKS, 4, left, 0, SOME)
    assert {task for share in shares for task in share} <= set(SOME)
    assert shares == partition(TASKS[:24], 4, asked, 0, SOME)  # as if the others did not exist
    assert deal(TASKS, 4, left, 0, SOME).measures.tasks == 24


def test_labels_of_another_world_are_refused():
    left = Settings(strategy="hardness", size=6, unlabelled="leave_out")
    with pytest.raises(UserError, match="another world"):
        partition(TASKS, 4, left, 0, {"goal-00001": True})


@pytest.mark.slow
@pytest.mark.realdata
def test_the_authors_labels_deal_out_the_genuine_games():
    folder = data("alfworld")
    labels = read_labels(folder / AUTHORS)
    assert (len(labels), sum(labels.values())) == (3553, 2112)
    tasks = Household(Home(source=str(folder))).tasks("train")
    assert {task.id for task in tasks} == set(labels)
    spread = {
        xi: deal(tasks, 100, Settings(strategy="hardness", xi=xi), 0, labels).measures.success_std
        for xi in (1.0, 256.0)
    }
    assert spread[1.0] > 4 * spread[256.0]


@pytest.mark.slow
@pytest.mark.realdata
@pytest.mark.parametrize("faithful", [True, False])
def test_the_authors_labels_deal_out_the_genuine_goals(faithful):
    pytest.importorskip("rapidfuzz", reason="needs the extra gym")
    from fedrl.envs.webshop.shop import Settings as Shop
    from fedrl.envs.webshop.shop import WebShop

    folder = data("webshop")
    labels = read_labels(folder / AUTHORS)
    assert (len(labels), sum(labels.values())) == (6319, 1760)
    tasks = WebShop(Shop(source=str(folder), faithful=faithful)).tasks("train")
    known = [task.id for task in tasks if task.id in labels]
    assert 0.9 < len(known) / len(tasks) < 1  # some of theirs have no match
    asked = Settings(strategy="hardness", xi=1.0, unlabelled="leave_out")
    found = deal(tasks, 100, asked, 0, labels)
    assert found.measures.tasks == len(known)
    held = {task for share in found.shares for task in share}
    assert held <= set(known)
    assert all(len(share) == 100 for share in found.shares)


def test_json_of_a_wrong_form_is_said(tmp_path):
    (tmp_path / "labels.json.gz").write_bytes(gzip.compress(json.dumps(["t00"]).encode()))
    with pytest.raises(UserError, match="labels are a JSON object"):
        read_labels(tmp_path / "labels.json.gz")
