"""Lines with a hash chain: what is done to them is seen, and a kill does no harm."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fedrl.core.chained_lines import ChainedLines, Read, Tail


def written(folder: Path, count: int = 5, name: str = "x") -> ChainedLines:
    lines, tail = ChainedLines(folder, name), Tail()
    for number in range(count):
        lines.append({"number": number, "text": f"ä {number}"}, tail)
    assert lines.read().tail == tail
    return lines


def test_what_was_written_is_read(tmp_path: Path):
    read = written(tmp_path).read()
    assert [entry["number"] for entry in read.entries] == list(range(5))
    assert (read.damage, read.unfinished) == ([], 0)
    assert read.has(3, read.chains[2])
    assert not read.has(3, read.chains[1])
    assert not read.has(6, read.chains[4])
    assert not read.has(0, "")
    assert ChainedLines(tmp_path, "other").read() == Read()
    assert all(path.stat().st_mode & 0o077 == 0 for path in tmp_path.iterdir())


def test_no_edit_goes_unseen(tmp_path: Path):
    """Bytes are flipped, cut out, put in, doubled or swapped in one of the two files."""
    draw, lines = random.Random(1), written(tmp_path)
    for _ in range(400):
        path = draw.choice([lines.lines, lines.head])
        whole = path.read_bytes()
        edited(lines, path, draw)
        path.write_bytes(whole)


def edited(lines: ChainedLines, path: Path, draw: random.Random) -> None:
    whole = path.read_bytes()
    start = draw.randrange(len(whole))
    end = draw.randrange(start, len(whole)) + 1
    kept = draw.choice([b"", whole[start:end] * 2, whole[start:end][::-1], b"\n", b"0"])
    changed = whole[:start] + kept + whole[end:]
    path.write_bytes(changed)
    read = lines.read()
    if changed.split() == whole.split() and path == lines.head:
        return  # white space around the head
    whole_lines = changed[: changed.rfind(b"\n") + 1]
    if path == lines.lines and whole_lines == whole:
        assert read.unfinished or changed == whole  # a kill could have left that
    else:
        assert read.damage or changed == whole


def test_lines_written_anew_from_the_start_are_told_by_a_head_kept_elsewhere(tmp_path: Path):
    lines = written(tmp_path)
    before = lines.read()
    lines.lines.unlink()
    lines.head.unlink()
    tail = Tail()
    for number in range(9):
        lines.append({"number": number + 1}, tail)
    now = lines.read()
    assert now.damage == []
    assert not now.has(before.tail.count, before.tail.last)


@pytest.mark.parametrize("cut", range(0, 90, 7))
def test_a_kill_in_the_middle_of_a_line_is_no_damage(cut: int, tmp_path: Path):
    lines = written(tmp_path, 3)
    whole = lines.lines.read_bytes()
    head = lines.head.read_bytes()
    lines.append({"number": 3, "text": "x" * 100}, lines.read().tail)
    lines.lines.write_bytes(lines.lines.read_bytes()[: len(whole) + cut])
    lines.head.write_bytes(head)
    read = lines.read()
    assert (read.damage, len(read.entries), read.unfinished) == ([], 3, cut)
    lines.append({"number": 4}, read.tail)
    assert [entry["number"] for entry in lines.read().entries] == [0, 1, 2, 4]
    assert lines.read().damage == []


APPENDS = """
import sys
from pathlib import Path
from fedrl.core.chained_lines import ChainedLines
lines = ChainedLines(Path(sys.argv[1]), "x")
read = lines.read()
assert not read.damage, read.damage
tail = read.tail
while True:
    lines.append({"number": tail.count, "text": "y" * 500}, tail)
    print(tail.count, flush=True)
"""


@pytest.mark.slow
def test_a_killed_process_has_written_all_that_it_said(tmp_path: Path):
    draw = random.Random(3)
    for _ in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", APPENDS, str(tmp_path)], stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        for _ in range(draw.randint(1, 30)):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        said = [line for line in process.stdout.read().splitlines(keepends=True) if b"\n" in line]
        process.wait()
        read = ChainedLines(tmp_path, "x").read()
        assert read.damage == []
        assert not said or len(read.entries) >= int(said[-1])
        assert [entry["number"] for entry in read.entries] == list(range(len(read.entries)))


def test_an_entry_that_is_no_object_is_seen(tmp_path: Path):
    lines = written(tmp_path, 2)
    for odd in (b"[]", b"null", b"{}", b'{"chain": 3}', b"[" * 10_000, b"\xff"):
        lines.lines.write_bytes(odd + b"\n")
        assert lines.read().damage, odd
    lines.lines.write_text(json.dumps({"number": 1, "chain": "x"}) + "\n")
    assert lines.read().damage


@pytest.mark.parametrize("again", [1, 2, 5])
@pytest.mark.parametrize("restarted", [False, True])
def test_heads_that_cannot_be_written_again_and_again_are_no_damage(
    again: int, restarted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """As on a disk with room for a line and not for a new file, or killed each time in between."""
    lines = written(tmp_path, 3)
    tail = lines.read().tail

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("fedrl.core.chained_lines.write_private", full)
        for number in range(again):
            with pytest.raises(OSError, match="No space"):
                lines.append({"number": 10 + number}, tail)
            assert lines.read().damage == []
            tail = lines.read().tail if restarted else tail
    lines.append({"number": 3}, tail)
    read = lines.read()
    assert read.damage == []
    assert [entry["number"] for entry in read.entries][:3] == [0, 1, 2]
    assert read.entries[-1]["number"] == 3
    assert len(read.entries) == (5 if restarted else 4)  # a line that was there, once
