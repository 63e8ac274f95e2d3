"""The commands around the text worlds, called as a user calls them."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.realdata import data, parity

from fedrl.core.types import UserError
from fedrl.envs.household.world import Household, Settings

pytestmark = pytest.mark.slow


def test_a_partition_is_measured_and_drawn(fedrl, tmp_path):
    done = fedrl(
        *"partition household --world.size tiny --world.train 300 --strategy preference".split(),
        *"--omega 0.9 --clients 12 --size 20 --plot out.png".split(),
    )
    assert "total variation" in done.stdout
    assert (tmp_path / "out.png").stat().st_size > 5000


@pytest.mark.parametrize(
    "words, told",
    [
        ("partition household --stratgy coverage", "did you mean 'strategy'"),
        ("partition household --strategy preferences", "did you mean 'preference'"),
        ("partition household --world.siz tiny", "did you mean 'world.size'"),
        ("partition household --omega much", "omega is 'much'; it must be a number"),
        ("partition household --strategy hardness", "--success-rate"),
        ("partition houshold", "did you mean 'household'"),
        ("partition household --world.train 50 --size 100", "size"),
        ("play household --split tset", "'tset'"),
        ("play household --task train/abc", "train/00042"),
        ("play household --world.size huge", "huge"),
        ("play household --world.generation 2.1.3", "2.1.2"),
        ("play household --world.seen 0", "no"),
        ("play household --world.games -1", "world.games is -1"),
        ("play household --world.max_steps 0", "world.max_steps is 0"),
        ("play household --task train/99999999", "train/00000 to train/03552"),
        ("play household --port 80", "--port is for the shop"),
        ("play webshop --world.catalogue_seed -1 --no-browser", "world.catalogue_seed is -1"),
        ("play household --world.source nowhere", 'choose "generated"'),
        ("partition household --seed -1", "seed is -1"),
        ("partition household --clien 5", "clien"),
        ("parity household nothing.jsonl.xz --data .", "nothing.jsonl.xz"),
        ("data mnist", "mnist"),
        ("run momentum/cartpole --world.name household", "choose from random_mdp, cartpole"),
    ],
)
def test_mistakes_are_one_line(fedrl, words, told):
    done = fedrl(*words.split(), check=False)
    assert done.returncode == 2
    assert told in done.stderr
    assert done.stderr.count("\n") <= 2


def test_a_damaged_transcript_is_one_line(fedrl, tmp_path):
    for name, content in (
        ("a.jsonl", '{"id": 1}\n'), ("b.jsonl", "{"), ("c.jsonl.xz", "no xz"), ("d.jsonl", "3\n"),
    ):  # fmt: skip
        (tmp_path / name).write_text(content)
        done = fedrl("parity", "household", name, "--data", ".", check=False)
        assert done.returncode == 2
        assert name in done.stderr


def test_an_unknown_task_is_named():
    with pytest.raises(UserError, match="no game 'train/x'"):
        Household(Settings(size="tiny")).start("train/x")


def test_a_damaged_catalogue_is_one_line(fedrl, tmp_path):
    (tmp_path / "items_ins_v2_1000.json").write_text("{}")
    for content in ("", "[{", '[{"asin": "A"}]', "3"):
        (tmp_path / "items_shuffle_1000.json").write_text(content)
        done = fedrl("partition", "webshop", "--world.source", ".", check=False)
        assert done.returncode == 2
        assert "items_shuffle_1000.json" in done.stderr


def test_a_full_disk_is_one_line(fedrl):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "fedrl", "list"], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 2
    assert "no space left" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.realdata
def test_parity_of_both_worlds(fedrl):
    data("alfworld")
    files = sorted(map(str, parity().glob("alfworld_2.1.*.jsonl.xz")))
    done = fedrl("parity", "household", *files)
    assert done.stdout.count(" 0 mismatches") == len(files)
    done = fedrl("parity", "webshop", str(parity()))
    assert "webshop_sessions" in done.stdout
