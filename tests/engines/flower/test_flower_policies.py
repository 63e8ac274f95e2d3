"""docs/policy.md, word for word: three organisations in network namespaces, with three policies.

One allows the recipe, one asks a person, one refuses it. The run goes on with those who allow, and
the audit logs of all four tell the same story.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")
pytest.importorskip("jax", reason="needs the extra classic")

from support.flower_places import MEMBERS, PORT, Places, as_member, numbered_commands
from support.repository import DOCS

from fedrl.engines.flower import audit_log, audit_story

ROOT = hasattr(os, "geteuid") and os.geteuid() == 0 and shutil.which("ip") is not None
pytestmark = [
    pytest.mark.machines,
    pytest.mark.skipif(not ROOT, reason="makes network namespaces: needs root and ip"),
]
PAGE = (DOCS / "policy.md").read_text(encoding="utf-8")
NORTH, SOUTH, WEST = range(3)


class Followed:
    """The page, followed to its end; `runs` are the coordinator's two."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self.places = folder, Places(folder, stack)
        said = re.findall(r"```toml\n(.*?)```", PAGE, re.S)
        self.policies = ["", *said]
        self.follow("hub", 1)
        for number, name in enumerate(MEMBERS):
            shutil.copy(folder / "hub" / "hub" / "ca.pem", folder / name)
            self.follow(name, 2, number)
            with (folder / name / name / "policy.toml").open("a") as file:
                file.write(self.policies[number])
            public = folder / name / f"{name}.key.pub"
            shutil.copy(public, folder / "hub" / "hub" / "nodes" / f"client-{number}.pub")
            self.follow(name, 3, number)
        self._wait(lambda: PORT in self.places.listening("hub"))
        self.follow("hub", 4)
        self.follow("south", 5, SOUTH)
        self.follow("hub", 4)
        for number, name in enumerate(MEMBERS):
            self.follow(name, 6, number)
        paths = (folder / "hub").glob("runs/*/*/clients.jsonl")
        self.runs = sorted(paths, key=lambda path: path.stat().st_mtime)

    def follow(self, place: str, section: int, number: int = 0) -> None:
        for command in numbered_commands(PAGE, section):
            self.places.follow(place, as_member(command, number))

    def _wait(self, there) -> None:
        until = time.monotonic() + 60
        while not there():
            assert time.monotonic() < until, (self.folder / "hub" / "output.txt").read_text()
            time.sleep(0.5)

    def log(self, place: str) -> list[dict]:
        entries, damage, _ = audit_log.read(self.folder / place / place)
        assert damage == []
        return entries

    def outcomes(self, run: Path) -> dict[int, set[str]]:
        """By client: "" for an update, else why there was none."""
        found: dict[int, set[str]] = {}
        for line in run.read_text().splitlines():
            record = json.loads(line)
            found.setdefault(record["client"], set()).add(record.get("reason", ""))
        return found


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Followed]:
    with ExitStack() as stack:
        yield Followed(tmp_path_factory.mktemp("places"), stack)


def test_the_run_goes_on_with_those_who_allow_it(followed: Followed):
    first, second = map(followed.outcomes, followed.runs)
    assert first[NORTH] == second[NORTH] == second[SOUTH] == {""}
    (waits,) = first[SOUTH]
    assert re.fullmatch(
        r"recipe \w{16} waits for a person of this organisation \(approval\)", waits
    )
    refused = {
        "privacy.secure: this node sends updates only into secure sums: run it with "
        "--privacy.clip 1 --privacy.secure true (secure)"
    }
    assert first[WEST] == second[WEST] == refused
    for run in followed.runs:
        rounds = [json.loads(x)["round"] for x in (run.parent / "metrics.jsonl").open()]
        assert rounds == [0, 1, 2]


def test_every_log_tells_its_part(followed: Followed):
    north, south, west = ([e["event"] for e in followed.log(name)] for name in MEMBERS)
    assert north.count("update") == 6  # rounds 0 to 2, twice
    assert set(north) == {"begin", "start", "policy", "update"}
    assert (south.count("refused"), south.count("approved"), south.count("update")) == (3, 1, 3)
    assert south.index("approved") > south.index("refused")
    assert (west.count("refused"), west.count("update")) == (6, 0)
    hub = followed.log("hub")
    assert [e["event"] for e in hub].count("registered") == 3
    assert {e["client"] for e in hub if e["event"] == "joined"} == {0, 1, 2}
    assert [e["completed"] for e in hub if e["event"] == "ended"] == [True, True]
    (digest,) = {e["recipe"] for e in hub if e["event"] == "run"}
    for name in MEMBERS:
        assert {e["recipe"] for e in followed.log(name) if "recipe" in e} == {digest}


def test_the_logs_of_all_sides_tell_the_same_story(followed: Followed):
    hub = followed.log("hub")
    for number, name in enumerate(MEMBERS):
        assert audit_story.differences(hub, followed.log(name), number) == []
        copied = followed.folder / name / "hub"
        shutil.copytree(followed.folder / "hub" / "hub", copied, dirs_exist_ok=True)
        told = followed.places.call(name, "fedrl", "flower", "audit", name, "--coordinator", "hub")
        assert told.returncode == 0, told.stdout
        assert "both logs tell the same story\nwhole: " in told.stdout
        shutil.rmtree(copied)


def test_a_changed_line_is_found_on_any_side(followed: Followed):
    for place in ("hub", *MEMBERS):
        path = followed.folder / place / place / "audit.jsonl"
        whole = path.read_bytes()
        lines = whole.splitlines(keepends=True)
        try:
            lines[2] = lines[2].replace(b'"time": "2', b'"time": "3')
            path.write_bytes(b"".join(lines))
            told = followed.places.call(place, "fedrl", "flower", "audit", place)
            assert told.returncode == 1
            assert "DAMAGED: line 3 does not follow from those before it" in told.stdout
        finally:
            path.write_bytes(whole)


def test_a_coordinator_that_leaves_a_round_out_is_found(followed: Followed):
    hub = [e for e in followed.log("hub") if not (e["event"] == "round" and e["round"] == 1)]
    assert len(audit_story.differences(hub, followed.log("north"), NORTH)) == 2


def test_logs_are_their_owners_alone(followed: Followed):
    for place in ("hub", *MEMBERS):
        for name in ("audit.jsonl", "audit.head"):
            path = followed.folder / place / place / name
            assert path.stat().st_mode & 0o077 == 0
