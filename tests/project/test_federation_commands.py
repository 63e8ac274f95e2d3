"""Every command of the pages that needs a federation is run on one, on loopback: with a coordinator
and four members as docs/technician.md and docs/deploy.md set them up, and on `fedrl flower up`. As
they stand there, but for the port, a round or two instead of many, and few tasks."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.page_commands import SHOWN

pytest.importorskip("flwr", reason="needs the extra flower")
pytest.importorskip("jax", reason="needs the extra classic")
pytest.importorskip("torch", reason="needs the extra llm")
from support.flower_places import as_member, write_tasks

from fedrl.engines.flower.child_processes import free_port

pytestmark = [pytest.mark.slow, pytest.mark.machines, pytest.mark.xdist_group("flower machines")]
NEEDS_ONE = re.compile(r"^fedrl flower (up --|link --folder|node --client)|^fedrl run \w+/.*flower")
FEDERATED = [one.line for one in SHOWN if NEEDS_ONE.search(one.line) and one.whole]
SHORTER = {
    "prompts/organisations": "--rounds 2 --eval_every 1 --algorithm.local_epochs 1 "
    "--algorithm.tasks 2 --algorithm.eval_tasks 4",
    "momentum/": "--rounds 1",
}
WARM_START = (
    "warmstart prompts --out model --tasks 60 --steps 3 --world.source data/public/tasks "
    "--world.public 0.25 --world.answer answer --world.reward exact_match"
)
PATIENCE = 600
"""Seconds, to end what hangs."""


class Followed:
    """Commands of the pages, followed in the folders of those whom the pages speak to."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self.stack, self.port = folder, stack, free_port()
        self.done: set[str] = set()
        self.environment = os.environ | {"FEDRL_CONNECTIONS": str(folder / "connections")}

    def words(self, line: str, place: str, more: str = "") -> list[str]:
        here = str(self.folder / place)
        places = {"hub.example.org:9092": f"localhost:{self.port}", "/srv/our-data": "data"}
        said = [places.get(word, word).replace("$PWD", here) for word in shlex.split(line)]
        cut = said.index("--") if "--" in said else len(said)
        said[cut:cut] = shlex.split(more)
        return [sys.executable, "-m", "fedrl", *said[1:]]

    def start(self, line: str, place: str, more: str = "", shown: str = "") -> Path:
        """Leave it running; the file of what it says."""
        self.done.add(shown or line)
        home = self.folder / place
        log = home / f"{line.split()[2]}.log"
        with log.open("ab") as out:
            process = subprocess.Popen(
                self.words(line, place, more), cwd=home, env=self.environment, stdout=out,
                stderr=subprocess.STDOUT,
            )  # fmt: skip
        self.stack.callback(process.wait, 60)
        self.stack.callback(process.terminate)
        return log

    def call(self, line: str, place: str, more: str = "") -> str:
        self.done.add(line)
        done = subprocess.run(
            self.words(line, place, more), cwd=self.folder / place, env=self.environment,
            capture_output=True, text=True, check=False, timeout=PATIENCE,
        )  # fmt: skip
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def train(self, line: str, place: str) -> None:
        more = next(flags for words, flags in SHORTER.items() if words in line)
        self.call(line, place, more)
        newest = max(self.folder.glob(f"{place}/runs/*/*/clients.jsonl"), key=os.path.getmtime)
        assert '"failed"' not in newest.read_text(), newest.read_text()


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Followed]:
    folder = tmp_path_factory.mktemp("followed")
    (folder / "hub" / "data").mkdir(parents=True)
    write_tasks(folder)
    with ExitStack() as stack:
        found = Followed(folder, stack)
        found.call(f"fedrl {WARM_START}", "hub")
        yield found


def said(log: Path, words: str) -> None:
    until = time.monotonic() + PATIENCE
    while words not in log.read_text(errors="replace"):
        assert time.monotonic() < until, log.read_text(errors="replace")[-3000:]
        time.sleep(0.5)


def shown(*words: str) -> list[str]:
    return [line for line in FEDERATED if all(word in line for word in words)]


def test_a_coordinator_and_members_by_their_pages(followed: Followed):
    follow, folder = followed, followed.folder
    follow.call("fedrl flower keys server hub --host hub.example.org", "hub")
    (link,) = shown("flower link")
    log = follow.start(link, "hub", f"--host 127.0.0.1 --port {follow.port}")
    said(log, "the SuperLink listens")
    with_data, bare = shown("flower node", "--data"), shown("flower node")
    bare = [line for line in bare if line not in with_data]
    assert len(with_data) == 2  # technician.md's and deploy.md's; policy.md's is without data
    for number, (name, line) in enumerate(
        zip(("north", "south", "west", "east"), [*with_data, with_data[0], *bare], strict=True)
    ):
        own = (lambda text, n=number: as_member(text, n)) if number < 3 else _as_east
        home = folder / name
        home.mkdir(exist_ok=True)
        shutil.copy(folder / "hub" / "hub" / "ca.pem", home)
        follow.call(own("fedrl flower keys node north.key --folder north --ca ca.pem"), name)
        shutil.copytree(folder / "hub" / "model", home / name / "model")
        shutil.copy(home / f"{name}.key.pub", folder / "hub")
        follow.call(f"fedrl flower register hub {name}.key.pub --client {number}", "hub")
        said(follow.start(own(line), name, "--poll 0.3 --regroup", line), f"connected as {name}")
    for line in shown("--connection hub", "momentum/") + shown("--connection hub", "prompts/"):
        follow.train(line, "hub")
    assert "connected to localhost" in follow.call("fedrl flower status north", "north")
    assert "whole: " in follow.call("fedrl flower audit north", "north")
    assert "4 runs" in follow.call("fedrl flower status hub", "hub")
    kept = max((folder / "hub").glob("runs/*/*"), key=os.path.getmtime)  # of several runs, the last
    follow.call("fedrl joining north --data data", "north", f"--run {kept.name}")


def _as_east(text: str) -> str:
    return text.replace("north", "east").replace("--client 0", "--client 3")


def test_members_who_know_each_other_on_one_machine(followed: Followed):
    """Their keys; then all that leaves them is sums."""
    (followed.folder / "peers").mkdir()
    (line,) = shown("flower up --peers")
    run = "fedrl run momentum/random_mdp --engine flower --connection local --federation.clients 3"
    with ExitStack() as stack:
        followed.stack, outer = stack, followed.stack
        said(followed.start(line, "peers"), "stop it:")
        followed.train(f"{run} --privacy.clip 1 --privacy.secure true", "peers")
        followed.stack = outer


@pytest.mark.parametrize("owned", [False, True], ids=["up", "up --data"])
def test_a_federation_on_one_machine(owned: bool, followed: Followed):
    follow, folder = followed, followed.folder
    place = "owned" if owned else "plain"
    (folder / place).mkdir()
    if owned:
        for name in ("north", "south", "west"):
            shutil.copytree(folder / name / "data", folder / place / "data" / name)
        shutil.copytree(folder / "hub" / "data" / "public", folder / place / "data" / "public")
        shutil.copytree(folder / "hub" / "model", folder / place / "model")
    (line,) = [line for line in shown("flower up --clients") if ("--data" in line) == owned]
    with ExitStack() as stack:
        follow.stack, outer = stack, follow.stack
        said(follow.start(line, place), "stop it:")
        for run in shown("--connection local", "prompts/" if owned else "momentum/"):
            follow.train(run, place)
        follow.stack = outer


def test_no_command_was_left_out(followed: Followed):
    """The last test of this file: all that the pages show has been followed by then."""
    assert [line for line in FEDERATED if line not in followed.done] == []
