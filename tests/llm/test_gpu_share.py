"""Processes that share a GPU by what they say they need: who waits, who is refused, who is dead."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time

import pytest

pytest.importorskip("torch", reason="language models need torch (fedrl[llm])")

from fedrl.llm import gpu_file, gpu_share
from fedrl.llm.gpu_share import Busy, Gpu, Needed, TooLarge, reserve
from fedrl.llm.memory import CALIBRATION

pytestmark = pytest.mark.slow
GB = 10**9
CHILD = """
import os, pathlib, sys, time
from fedrl.llm import gpu_file, gpu_share
gpu_file.PARENT = pathlib.Path(os.environ["GPU_FILES"])
gpu_share.POLL_SECONDS = 0.05
needed, free = int(sys.argv[1]), int(sys.argv[2])
look = lambda index: gpu_share.Gpu("fake", 100 * 10**9, free * 10**9)
say = lambda words: print("said", words, flush=True)
wanted = gpu_share.Needed(needed * 10**9, needed * 10**9)
kept = gpu_share.reserve({0: wanted}, say, None, look)
print("has it", flush=True)
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("GPU_FILES", str(tmp_path))
    monkeypatch.setattr(gpu_file, "PARENT", tmp_path)
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


def of(least: int, most: int = 0):
    return {0: Needed(least * GB, (most or least) * GB)}


def silent(words: str) -> None:
    pass


def leaves_when_told(holder):
    """What is said, and how: the first word ends the process that holds the GPU."""
    holder.stdout.readline()
    said = []

    def say(words):
        said.append(words)
        holder.kill()
        holder.wait()

    return said, say


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
    with pytest.raises(Busy, match=r"beside 40\.0 GB that 1 other process has reserved, of 60"):
        reserve(of(30), silent, 0.1, fake(free=60))
    reserve(of(30), silent, 0.1, fake(free=90)).release()  # they have gone
    with pytest.raises(Busy):  # more is used than was reserved: others have come
        reserve(of(30), silent, 0.1, fake(free=10))


def test_what_could_never_fit_is_refused_at_once(begin):
    with pytest.raises(TooLarge) as found:
        reserve(of(70), silent, None, fake(free=60))
    assert (found.value.needed, found.value.available) == (70 * GB, 60 * GB)
    begin(60).stdout.readline()
    with pytest.raises(TooLarge):
        reserve(of(101), silent, None, fake(free=100))


def test_a_process_that_has_a_place_does_not_wait_for_others(begin):
    """Who has one here and wants one there, while another has that and wants this, would wait for
    ever."""
    holder = begin(60)
    holder.stdout.readline()
    gpus = {0: Gpu("fake", 100 * GB, 100 * GB), 1: Gpu("other", 100 * GB, 100 * GB)}
    first = reserve({1: Needed(20 * GB, 20 * GB)}, silent, None, gpus.__getitem__)
    second = reserve(of(60), silent, 0.1, gpus.__getitem__)
    first.release()
    holder.kill()
    holder.wait()
    second.release()
    reserve(of(100), silent, None, fake(100)).release()


def test_a_process_is_refused_what_does_not_fit_beside_its_own():
    """A notebook that still has a model: a second one would fit into the whole card alone."""
    first = reserve(of(10), silent, None, fake(80, total=80))
    with pytest.raises(TooLarge) as found:
        reserve(of(75), silent, None, fake(80, total=80))
    assert found.value.available == 70 * GB
    first.release()
    reserve(of(75), silent, None, fake(80, total=80)).release()


def test_what_is_only_taken_where_there_is_room_refuses_and_delays_nothing(begin):
    """72 of which 12 are not needed, on 80 of which strangers hold 10."""

    def taken(free):
        kept = reserve(of(60, 72), silent, 0.1, fake(free, total=80))
        with gpu_file.opened("fake") as state:
            (size,) = [entry.bytes for entry in state.entries if entry.pid == os.getpid()]
        kept.release()
        return size / GB

    assert taken(free=80) == 72
    assert taken(free=70) == 60
    begin(30, free=100).stdout.readline()
    reserve(of(60, 72), silent, 0.1, fake(100)).release()  # beside 30 of 100, with less


def test_the_gpu_is_looked_at_while_nobody_can_come_or_go(monkeypatch):
    """A look from before the lock would count what a process held that has ended since."""
    inside, seen, real = [], [], gpu_file.opened

    @contextlib.contextmanager
    def noted(name):
        with real(name) as state:
            inside.append(name)
            yield state
            inside.pop()

    def look(index):
        seen.append(bool(inside))
        return Gpu("fake", 100 * GB, 100 * GB)

    monkeypatch.setattr(gpu_share, "opened", noted)
    reserve(of(50), silent, None, look).release()
    assert seen[-1]


def test_what_a_process_held_is_still_used_for_a_moment_after_its_end():
    """80 GB, of which 60 are somebody's whose entry is gone."""
    left = [20, 20, 80]
    reserve(of(50), silent, None, lambda _: Gpu("fake", 80 * GB, left.pop(0) * GB)).release()


def test_who_has_waited_is_not_refused_when_the_one_before_ends(begin):
    """Its memory is returned later than its entry is dropped, be it minutes."""
    holder, said, free = begin(60), [], []
    holder.stdout.readline()

    def say(words):
        said.append(words)
        holder.kill()
        holder.wait()

    def look(index):
        free.append(20 if len(free) < 4 * gpu_share.LOOKS else 80)
        return Gpu("fake", 80 * GB, free[-1] * GB)

    reserve(of(50), say, 60.0, look).release()
    assert len(free) > 3 * gpu_share.LOOKS
    assert "waiting" in said[0]


def test_who_has_waited_is_refused_once_it_is_sure_that_it_never_fits(begin, monkeypatch):
    """80 GB, of which strangers hold 60: what the one before held has been returned."""
    monkeypatch.setattr(gpu_share, "RETURN_SECONDS", 0.5)
    said, say = leaves_when_told(begin(60))
    started = time.monotonic()
    with pytest.raises(TooLarge) as found:
        reserve(of(50), say, 30.0, fake(20, total=80))
    assert said
    assert time.monotonic() - started > 0.5
    assert (found.value.needed, found.value.available) == (50 * GB, 20 * GB)


def test_a_reservation_knows_whether_it_is_of_all(begin):
    all_of_it = reserve(of(60, 72), silent, 0.1, fake(80, total=80))
    assert all_of_it.whole
    all_of_it.release()
    begin(30, free=100).stdout.readline()
    least = reserve(of(60, 72), silent, 0.1, fake(100))
    assert not least.whole
    least.release()


CONTEXT = CALIBRATION.context


def entries() -> dict[str, int]:
    with gpu_file.opened("fake") as state:
        return {entry.key: entry.bytes for entry in state.entries}


def test_cudas_context_counts_for_as_long_as_its_process_lasts(monkeypatch):
    """A process of a pool that does one run after the other: the first counts its context."""
    first = reserve(of(10), silent, None, fake(100))
    assert list(entries().values()) == [10 * GB]
    monkeypatch.setattr(gpu_share, "has_context", lambda index: True)
    first.release()
    assert entries() == {gpu_file.CONTEXT: CONTEXT}
    for _ in range(2):
        again = reserve(of(20), silent, None, fake(100))
        assert sorted(entries().values()) == [CONTEXT, 20 * GB]
        again.release()
        assert entries() == {gpu_file.CONTEXT: CONTEXT}


def test_who_comes_while_another_is_there_counts_the_context_that_it_has(begin, monkeypatch):
    """It made one before it asked for room: what the other reserved hides it."""
    begin(50).stdout.readline()
    monkeypatch.setattr(gpu_share, "has_context", lambda index: True)
    with pytest.raises(Busy):
        reserve(of(50), silent, 0.1, fake(99))
    reserve(of(49), silent, 0.1, fake(99)).release()


def test_a_context_alone_is_nobody_to_wait_for():
    """Another process's, which has nothing reserved; strangers hold 10 GB."""
    parent = os.getppid()
    with gpu_file.opened("fake") as state:
        entry = gpu_file.Entry(gpu_file.CONTEXT, parent, gpu_file.born(parent), CONTEXT)
        state.entries.append(entry)
        state.others = 10 * GB

    def look(index):
        return Gpu("fake", 100 * GB, 90 * GB - CONTEXT)

    with pytest.raises(TooLarge) as found:
        reserve(of(90), silent, 1.0, look)
    assert found.value.available == 90 * GB - CONTEXT
    reserve({0: Needed(90 * GB - CONTEXT, 90 * GB - CONTEXT)}, silent, 1.0, look).release()
    rest = 100 * GB - CONTEXT  # once the strangers have gone
    gpu = Gpu("fake", 100 * GB, rest)
    reserve({0: Needed(rest, rest)}, silent, 1.0, lambda index: gpu).release()


def test_who_waits_for_what_nobody_reserved_says_so(begin, monkeypatch):
    monkeypatch.setattr(gpu_share, "SAY_SECONDS", 0.0)
    said, say = leaves_when_told(begin(60))
    with pytest.raises(Busy):
        reserve(of(50), say, 1.0, fake(20, total=80))
    assert said[-1].startswith(
        "GPU 0 has no room for 50.0 GB beside what is held there: 20.0 GB can be had: waiting"
    )


def test_a_place_that_is_collected_while_the_file_is_open_locks_nobody_out():
    """In a process of its own, which would hang: a finalizer that took the lock of a file that its
    own thread has open would wait for itself."""
    code = CHILD.replace("time.sleep(600)", LOCKS_ITSELF)
    child = subprocess.run(
        [sys.executable, "-c", code, "60", "100"], env=dict(os.environ), timeout=60, check=True,
        capture_output=True, text=True,
    )  # fmt: skip
    assert child.stdout.splitlines() == ["has it", "1 inside", "0 later"]


LOCKS_ITSELF = """
gpu_share.SETTLE_SECONDS = 0.0
from fedrl.algorithms.fedagent.agent_model import Place
place = Place(kept)
with gpu_file.opened("fake") as state:
    del place
    print(len(state.entries), "inside")
path = gpu_file.folder_of_user() / "fake.json"
while '"held": []' not in path.read_text():  # nobody here opens it again
    time.sleep(0.01)
print(0, "later")
"""


def test_a_place_counts_until_its_process_is_dead():
    """At its end a process returns its memory after its finalizers have run."""
    code = CHILD.replace("time.sleep(600)", "")
    code += "from fedrl.algorithms.fedagent.agent_model import Place; place = Place(kept)"
    subprocess.run([sys.executable, "-c", code, "60", "100"], env=dict(os.environ), check=True)
    assert '"held": []' not in (gpu_file.folder_of_user() / "fake.json").read_text()
    reserve(of(60), silent, 0.0, fake(100)).release()  # and no longer


def test_what_is_freed_is_returned_before_others_hear_of_it(monkeypatch):
    """But not beside another model of the process, which may be capturing a graph."""
    told = []
    monkeypatch.setattr(gpu_share, "SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(gpu_share.gc, "collect", lambda: told.append("collected"))
    monkeypatch.setattr(gpu_share.torch.cuda, "empty_cache", lambda: told.append("emptied"))
    real = gpu_share.Reservation.release
    monkeypatch.setattr(
        gpu_share.Reservation, "release", lambda self: (told.append("released"), real(self))
    )

    def given_back(reservation):
        reservation.give_back()
        while reservation.names:
            time.sleep(0.01)

    one, other = (reserve(of(10), silent, None, fake(100)) for _ in range(2))
    given_back(one)
    given_back(other)
    assert told == ["released", "collected", "emptied", "released"]


def test_the_folder_is_the_same_whatever_tmpdir_says(tmp_path):
    code = "from fedrl.llm import gpu_file; print(gpu_file.PARENT)"
    said = {
        subprocess.check_output([sys.executable, "-c", code], env=os.environ | {"TMPDIR": where})
        for where in ("/tmp", str(tmp_path))
    }
    assert len(said) == 1


def test_a_refusal_leaves_nothing_reserved_elsewhere():
    gpus = {0: Gpu("a", 100 * GB, 100 * GB), 1: Gpu("b", 10 * GB, 10 * GB)}
    with pytest.raises(TooLarge):
        reserve(of(50) | {1: of(50)[0]}, silent, None, gpus.__getitem__)
    with gpu_file.opened("a") as state:
        assert state.entries == []


def test_a_damaged_file_is_an_empty_one():
    reserve(of(1), silent, None, fake(100)).release()
    (gpu_file.folder_of_user() / "fake.json").write_text("[1,")
    reserve(of(100), silent, None, fake(100)).release()


def test_a_number_that_another_process_has_by_now_is_nobodys_entry():
    entry = gpu_file.Entry("key", os.getpid(), "earlier", GB)
    assert not gpu_file.lives(entry)
    assert gpu_file.lives(entry._replace(born=gpu_file.born(os.getpid())))


def test_a_folder_of_somebody_elses_is_not_used(tmp_path):
    (tmp_path / f"fedrl-gpus-{os.getuid()}").symlink_to(tmp_path)
    with pytest.raises(Exception, match="is not this user's folder"):
        reserve(of(1), silent, None, fake(100))


def test_cudas_context_is_that_of_this_process_on_this_gpu(monkeypatch):
    """And none, as far as can be told, where PyTorch was built without CUDA."""
    cuda = gpu_share.torch._C
    monkeypatch.setattr(cuda, "_cuda_hasPrimaryContext", lambda index: index == 1, raising=False)
    monkeypatch.setattr("torch.cuda.is_initialized", lambda: True)
    assert [gpu_share.has_context(index) for index in range(2)] == [False, True]
    monkeypatch.delattr(cuda, "_cuda_hasPrimaryContext")
    assert not gpu_share.has_context(1)


BUSY_END = """
import torch
torch.set_num_threads(1)
wide = torch.ones(1500, 1500)
def emptied():
    print("emptying", flush=True)
    for _ in range(40):
        torch.mm(wide, wide)
gpu_share.torch.cuda.empty_cache, gpu_share.SETTLE_SECONDS = emptied, 0.0
kept.give_back()
time.sleep(0.3)
"""


def test_a_process_that_ends_while_memory_is_returned_ends_well():
    """A thread that Python kills within PyTorch aborts the process."""
    code = CHILD.replace("time.sleep(600)", BUSY_END)
    for _ in range(3):
        words = [sys.executable, "-c", code, "10", "100"]
        ended = subprocess.run(words, capture_output=True, text=True, env=dict(os.environ))
        assert "emptying" in ended.stdout
        assert ended.returncode == 0, ended.stderr
