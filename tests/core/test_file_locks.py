"""One process at a time in a file, by flock and by what Windows has."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from fedrl.core import file_locks


def test_a_second_one_waits_or_is_told(tmp_path):
    with (tmp_path / "lock").open("a") as first, (tmp_path / "lock").open("a") as second:
        file_locks.lock(first)
        with pytest.raises(BlockingIOError):
            file_locks.lock(second, wait=False)
        first.close()
        file_locks.lock(second, wait=False)


def test_windows_locks_a_byte_behind_the_end_and_leaves_the_place_where_it_was(
    tmp_path, monkeypatch
):
    calls, taken = [], [True, True, False]

    def locking(descriptor: int, mode: int, count: int) -> None:
        calls.append((mode, count))
        if taken.pop(0):
            raise OSError(13, "taken")

    monkeypatch.setitem(sys.modules, "msvcrt", SimpleNamespace(locking=locking, LK_NBLCK=2))
    monkeypatch.setattr(file_locks, "WINDOWS", True)
    with (tmp_path / "lock").open("a+") as file:
        with pytest.raises(BlockingIOError):
            file_locks.lock(file, wait=False)
        file_locks.lock(file)
        assert file.tell() == 0
    assert calls == [(2, 1)] * 3
    assert (tmp_path / "lock").stat().st_size == 0


def test_no_other_file_needs_what_windows_lacks():
    """`fedrl list` died there of an import."""
    from support.repository import ROOT

    for path in (ROOT / "src").rglob("*.py"):
        if path.name != "file_locks.py":
            assert "import fcntl" not in path.read_text(encoding="utf-8"), path
