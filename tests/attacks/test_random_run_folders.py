"""A random search over run folders: damaged in any way, a run goes on to the same bytes or refuses.

Each case takes a small finished or half-finished run and damages it once to three times. Then the
commands are called as a user calls them. Never a traceback; readers change nothing; a resumed run
ends with the bytes of the undamaged one, or refuses in one line and leaves every file as it was;
it never goes back further than its newest readable checkpoint. More seeds by hand:

    FEDRL_CASES=3000 pytest -n0 tests/attacks/test_random_run_folders.py
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save
from support.small_runs import ROUNDS, make_runs

from fedrl.cli import call
from fedrl.report import plots
from fedrl.runs.run_dir import RunDir

pytestmark = pytest.mark.slow

CASES = int(os.environ.get("FEDRL_CASES", "60"))
DRAWN = 20
"""One case in so many has its report drawn."""
FILES = (
    "config.toml", "meta.json", "metrics.jsonl", "clients.jsonl", "timings.jsonl", "log.txt",
    "summary.json", ".lock",
)  # fmt: skip
ODD = (b"", b"\n", b"null\n", b"[]\n", b"{}\n", b'"x"\n', b'{"round": true}\n', b"\xff\xfe\n",
       b"[" * 100_000, b'{"round": 1e999, "status": 3}\n', b'{"seconds": "x", "status": []}\n',
       b'{"round": 2, "eval/return": ' + b"9" * 400 + b"}\n")  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, Path]:
    return make_runs(tmp_path_factory.mktemp("runs"))


# Damage


def flip(path: Path, draw: random.Random, other: Path) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(draw.choice((1, 1, 1, 2, 9)) if data else 0):
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    path.write_bytes(data)


def cut(path: Path, draw: random.Random, other: Path) -> None:
    path.write_bytes(path.read_bytes()[: draw.randrange(path.stat().st_size + 1)])


def cut_lines(path: Path, draw: random.Random, other: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    kept = [line for line in lines if draw.random() < 0.7]
    path.write_bytes(b"".join(kept))


def lengthen(path: Path, draw: random.Random, other: Path) -> None:
    more = draw.choice((draw.randbytes(20), *ODD, path.read_bytes()[: draw.randrange(200)]))
    path.write_bytes(path.read_bytes() + more)


def overwrite(path: Path, draw: random.Random, other: Path) -> None:
    path.write_bytes(draw.choice((*ODD, draw.randbytes(draw.randrange(300)))))


def remove(path: Path, draw: random.Random, other: Path) -> None:
    path.unlink()


def make_folder(path: Path, draw: random.Random, other: Path) -> None:
    path.unlink()
    path.mkdir()
    if draw.random() < 0.5:
        (path / "inside").write_text("x")


def make_link(path: Path, draw: random.Random, other: Path) -> None:
    path.unlink()
    path.symlink_to(draw.choice(("nowhere", path.name, "../..", "/dev/null")))


def take_the_others(path: Path, draw: random.Random, other: Path) -> None:
    theirs = sorted((other / "checkpoints").iterdir())
    source = other / path.name if path.parent.name != "checkpoints" else draw.choice(theirs)
    shutil.copy(source, path)


def swap(path: Path, draw: random.Random, other: Path) -> None:
    second = draw.choice([p for p in sorted(path.parent.iterdir()) if p.is_file()])
    a, b = path.read_bytes(), second.read_bytes()
    path.write_bytes(b)
    second.write_bytes(a)


DAMAGE: tuple[Callable[[Path, random.Random, Path], None], ...] = (
    flip, flip, cut, cut_lines, lengthen, overwrite, remove, make_folder, make_link,
    take_the_others, swap,
)  # fmt: skip


def pretend(run: Path, draw: random.Random, other: Path) -> None:
    """A checkpoint that is none, though its hash fits its name, or one of another run."""
    number = draw.choice((-1, 0, 2, 3, 5, 6, 7, 40))
    header = draw.choice((
        "", "{", "[]", "null", json.dumps({"round": number}),
        json.dumps({"round": number, "states": 1, "totals": [], "scalars": {}, "stacked": []}),
        json.dumps({"round": "x", "states": 1, "totals": {}, "scalars": {}, "stacked": []}),
        json.dumps({"round": number, "states": 1, "totals": {}, "scalars": {}, "stacked": []}),
        json.dumps({"round": number, "states": 1, "totals": {}, "scalars": {"state": 1},
                    "stacked": ["a"], "lengths": {"metrics.jsonl": "x"}}),
    ))  # fmt: skip
    data = draw.choice(
        (b"", b"x" * 40, save({}), save({"state/0:a": np.ones(3)}, {"fedrl": header}))
    )
    label = f"round-{number:06d}" if number >= 0 else "start"
    name = f"{label}.{hashlib.sha256(data).hexdigest()[:16]}.safetensors"
    (run / "checkpoints" / name).write_bytes(data)


def bring(run: Path, draw: random.Random, other: Path) -> None:
    """Another run's checkpoint under its own name."""
    shutil.copy(draw.choice(sorted((other / "checkpoints").iterdir())), run / "checkpoints")


def lose_checkpoints(run: Path, draw: random.Random, other: Path) -> None:
    folder = run / "checkpoints"
    for path in sorted(folder.iterdir()):
        if draw.random() < 0.7:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    if draw.random() < 0.3:
        shutil.rmtree(folder)
        if draw.random() < 0.5:
            folder.write_text("x")


def leave_halves(run: Path, draw: random.Random, other: Path) -> None:
    for folder in (run, run / "checkpoints"):
        half = folder / ".metrics.jsonl.part"
        if folder.is_dir() and not half.exists():
            half.mkdir() if draw.random() < 0.3 else half.write_bytes(b"half")


def damage(run: Path, draw: random.Random, other: Path) -> None:
    for _ in range(draw.choice((1, 1, 2, 3))):
        if draw.random() < 0.25 and (run / "checkpoints").is_dir():
            draw.choice((pretend, bring, lose_checkpoints, leave_halves))(run, draw, other)
            continue
        saved = sorted((run / "checkpoints").glob("*")) if (run / "checkpoints").is_dir() else []
        inside = [p for p in saved if p.is_file()]
        targets = [run / name for name in FILES] + inside * 2
        path = draw.choice([p for p in targets if p.is_file() and not p.is_symlink()] or [None])
        if path is not None:
            draw.choice(DAMAGE)(path, draw, other)


# What a case is held to


def everything(run: Path) -> dict[str, str]:
    """Every file, folder and link of a run's folder; what a report adds is left out."""
    found = {}
    for path in sorted(run.rglob("*")):
        name = str(path.relative_to(run))
        if name.startswith(("plots", "report.html")):
            continue
        if path.is_symlink():
            found[name] = f"link to {os.readlink(path)}"
        else:
            found[name] = "folder" if path.is_dir() else digest(path)
    return found


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def newest_whole(run: Path, healthy: Path) -> int:
    """By the bytes that the undamaged run has under the same name; −2 if there is none."""
    rounds = [-2]
    for path in (healthy / "checkpoints").iterdir():
        mine = run / "checkpoints" / path.name
        if mine.is_file() and mine.read_bytes() == path.read_bytes():
            label = path.name.split(".")[0]
            rounds.append(-1 if label == "start" else int(label.removeprefix("round-")))
    return max(rounds)


def said(capfd) -> list[str]:
    """The errors of a call, which never are a traceback."""
    stderr = capfd.readouterr().err
    assert "Traceback" not in stderr
    return [line for line in stderr.splitlines() if line.startswith("error:")]


def undrawn(*_, **__) -> str:
    return ""


def rounds_of(text: bytes) -> list[int]:
    return [json.loads(line)["round"] for line in text.splitlines()]


@pytest.mark.timeout(max(300, 10 * CASES))
def test_a_damaged_run_goes_on_to_the_same_bytes_or_refuses(runs, tmp_path, monkeypatch, capfd):
    began: list[int] = []
    load = RunDir.load

    def watched(self):
        snapshot = load(self)
        began.append(-2 if snapshot is None else snapshot.round)
        return snapshot

    monkeypatch.setattr(RunDir, "load", watched)
    draw_all = {name: getattr(plots, name) for name in ("curves", "save", "as_data_uri")}
    ends = {"went on": 0, "refused": 0}
    for case in range(int(os.environ.get("FEDRL_FIRST", "0")), CASES):
        draw = random.Random(case)
        healthy = runs[draw.choice(("whole", "half"))]
        run = tmp_path / f"{case}" / "run"
        shutil.copytree(healthy, run)
        damage(run, draw, runs["other"])
        began.clear()
        for name, real in draw_all.items():  # drawing takes nearly all of the time
            monkeypatch.setattr(plots, name, real if case % DRAWN == 0 else undrawn)
        try:
            ends[check(run, healthy, runs["whole"], draw, began, capfd)] += 1
        except BaseException:
            print(f"case {case}, in {run}")
            raise
        shutil.rmtree(run.parent)
    print(ends)
    assert min(ends.values()) > sum(ends.values()) // 10  # the search sees both


def saved(run: Path) -> list[str]:
    return [path.name for path in (run / "checkpoints").glob("*")]


def go_on_without(run: Path, whole: Path, began: list[int], least: int, capfd) -> None:
    """Told to, a run goes on from its own checkpoint: rounds that come now have the same lines."""
    began.clear()
    code = call(["run", "--resume", str(run), "--without-lost-lines"])
    errors = said(capfd)
    if code == 2:  # something else is wrong, too
        assert len(errors) == 1
        return
    assert code == 0
    assert began[0] >= least
    lines = (whole / "metrics.jsonl").read_bytes().splitlines()
    wanted = {json.loads(line)["round"]: line for line in lines}
    got = (run / "metrics.jsonl").read_bytes().splitlines()
    now = [line for line in got if began[0] < json.loads(line)["round"] <= ROUNDS]
    assert now == [wanted[json.loads(line)["round"]] for line in now]
    assert len(now) >= min(ROUNDS, json.loads(got[-1])["round"] if got else -1) - began[0]


def check(
    run: Path, healthy: Path, whole: Path, draw: random.Random, began: list[int], capfd
) -> str:
    before = everything(run)
    for words in (("eval", str(run), "--episodes", "1"), ("report", str(run))):
        code = call(list(words))
        assert (code, len(said(capfd))) in ((0, 0), (2, 1)), words
        assert everything(run) == before, "a reader changed a file"
    least, metrics = newest_whole(run, healthy), run / "metrics.jsonl"
    code = call(["run", "--resume", str(run)])
    errors = said(capfd)
    if code == 2:
        assert len(errors) == 1
        assert everything(run) == before, "a run that was refused changed a file"
        assert call(["run", "--resume", str(run)]) == 2, "refused once, it began the second time"
        assert said(capfd) == errors
        if "--without-lost-lines" in errors[0] and set(saved(run)) <= set(saved(healthy)):
            go_on_without(run, whole, began, least, capfd)
        return "refused"
    assert code == 0
    assert not errors
    assert began[0] >= least, "it went back further than it had to"
    wanted = (whole / "metrics.jsonl").read_bytes()
    rounds = tomllib.loads((run / "config.toml").read_text())["rounds"]
    got = metrics.read_bytes()
    same = min(len(got), len(wanted)) if rounds != ROUNDS else len(wanted)
    assert got[:same] == wanted[:same]
    assert rounds != ROUNDS or got == wanted
    if before.get("clients.jsonl") == digest(healthy / "clients.jsonl") and rounds == ROUNDS:
        assert digest(run / "clients.jsonl") == digest(whole / "clients.jsonl")
    if before.get("timings.jsonl") == digest(healthy / "timings.jsonl"):
        assert rounds_of((run / "timings.jsonl").read_bytes()) == rounds_of(got)
    assert call(["run", "--resume", str(run)]) == 0
    assert not said(capfd)
    assert metrics.read_bytes() == got
    assert call(["report", str(run)]) == 0, said(capfd)
    assert not said(capfd)
    return "went on"
