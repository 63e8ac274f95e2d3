"""Processes that share a GPU by what they say they need: who waits, who is refused, who is dead."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

pytest.importorskip("torch", reason="language models need torch (fedrl[llm])")

from fedrl.llm import gpu_share
from fedrl.llm.gpu_share import Busy, Gpu, TooLarge, reserve

pytestmark = pytest.mark.slow
GB = 10**9
CHILD = """
import sys, time
from fedrl.llm import gpu_share
gpu_share.POLL_SECONDS = 0.05
needed, free = int(sys.argv[1]), int(sys.argv[2])
look = lambda index: gpu_share.Gpu("fake", 100 * 10**9, free * 10**9)
say = lambda words: print("said", words, flush=True)
kept = gpu_share.reserve({0: needed * 10**9}, say, None, look)
print("has it", flush=True)
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(gpu_share, "POLL_SECONDS", 0.02)


@pytest.fixture
def begin():
    """Processes that reserve and hold; ended with the test."""
    begun = []

    def start(needed: int, free: int = 100) -> subprocess.Popen[str]:
        words = [sys.executable, "-c", CHILD, str(needed), str(free)]
        child = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=dict(os.environ))
        begun.append(child)
        return child

    yield start
    for child in begun:
        child.kill()
        child.wait()


def fake(free: int, total: int = 100):
    return lambda index: Gpu("fake", total * GB, free * GB)


def silent(words: str) -> None:
    pass


def test_of_two_that_begin_together_one_waits_until_the_other_is_dead(begin):
    children = [begin(60), begin(60)]
    said = [child.stdout.readline() for child in children]
    order = sorted(range(2), key=lambda i: said[i] != "has it\n")
    first, second = (children[i] for i in order)
    assert said[order[0]] == "has it\n"
    assert said[order[1]] == (
        "said GPU 0 has no room for 60.0 GB beside 60.0 GB that 1 other process has reserved, of "
        "100.0 GB: waiting (FEDRL_GPU_SHARE=off does not)\n"
    )
    time.sleep(0.3)
    assert second.poll() is None
    first.send_signal(signal.SIGKILL)  # its entry stays in the file
    assert second.stdout.readline() == "has it\n"


def test_as_many_as_fit_have_room_at_the_same_time(begin):
    assert [begin(30).stdout.readline() for _ in range(3)] == ["has it\n"] * 3
    assert begin(30).stdout.readline().startswith("said GPU 0 has no room for 30.0 GB beside 90.0")


def test_what_others_hold_counts_as_long_as_they_hold_it(begin):
    """40 GB are somebody's who did not reserve; the first has loaded nothing yet."""
    assert begin(40, free=60).stdout.readline() == "has it\n"
    with pytest.raises(Busy, match="beside 40.0 GB that 1 other process has reserved, of 60.0 GB"):
        reserve({0: 30 * GB}, silent, 0.1, fake(free=60))
    reserve({0: 30 * GB}, silent, 0.1, fake(free=90)).release()  # they have gone
    with pytest.raises(Busy):  # more is used than was reserved: others have come
        reserve({0: 30 * GB}, silent, 0.1, fake(free=10))


def test_what_could_never_fit_is_refused_at_once(begin):
    with pytest.raises(TooLarge) as found:
        reserve({0: 70 * GB}, silent, None, fake(free=60))
    assert (found.value.needed, found.value.available) == (70 * GB, 60 * GB)
    begin(60).stdout.readline()
    with pytest.raises(TooLarge):
        reserve({0: 101 * GB}, silent, None, fake(free=100))


def test_a_process_that_has_a_place_does_not_wait_for_itself():
    first = reserve({0: 60 * GB}, silent, None, fake(100))
    second = reserve({0: 60 * GB}, silent, None, fake(100))
    first.release()
    second.release()
    reserve({0: 100 * GB}, silent, None, fake(100)).release()


def test_a_refusal_leaves_nothing_reserved_elsewhere():
    gpus = {0: Gpu("a", 100 * GB, 100 * GB), 1: Gpu("b", 10 * GB, 10 * GB)}
    with pytest.raises(TooLarge):
        reserve({0: 50 * GB, 1: 50 * GB}, silent, None, gpus.__getitem__)
    with gpu_share._opened("a") as state:
        assert state.entries == []


def test_a_damaged_file_is_an_empty_one():
    reserve({0: GB}, silent, None, fake(100)).release()
    (gpu_share._folder() / "fake.json").write_text("[1,")
    reserve({0: 100 * GB}, silent, None, fake(100)).release()


def test_a_number_that_another_process_has_by_now_is_nobodys_entry():
    entry = gpu_share.Entry("key", os.getpid(), "earlier", GB)
    assert not gpu_share._lives(entry)
    assert gpu_share._lives(entry._replace(born=gpu_share._born(os.getpid())))


def test_a_folder_of_somebody_elses_is_not_used(tmp_path):
    (tmp_path / f"fedrl-gpus-{os.getuid()}").symlink_to(tmp_path)
    with pytest.raises(Exception, match="is not this user's folder"):
        reserve({0: GB}, silent, None, fake(100))
