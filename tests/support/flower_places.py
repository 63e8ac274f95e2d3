"""Organisations on one machine: data with canaries, a network namespace and a folder for each.

Wires lead from each organisation to the hub and nowhere else, and let only the documented port
through. All that crosses them is kept (`wire`), and what the hub's SuperLink reads once TLS is off
(`heard`).
"""

from __future__ import annotations

import json
import os
import re
import runpy
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from support.environments import EXAMPLES

MEMBERS = ["north", "south", "west"]
PORT = 9092

# Data -------------------------------------------------------------------------------------------


class Canary(NamedTuple):
    """What only one organisation knows."""

    text: bytes  # in some prompts
    numbers: np.ndarray  # of tickets, in every line

    def found_in(self, blob: bytes) -> bool:
        if self.text in blob:
            return True
        digits = {int(word) for word in re.findall(rb"\d{9,12}", blob)}
        if digits & set(self.numbers.tolist()):
            return True
        least, most = self.numbers.min(), self.numbers.max()
        for start in range(8):
            whole = blob[start : start + (len(blob) - start) // 8 * 8]
            for kind in (np.int64, np.float64):
                read = np.frombuffer(whole, kind)
                read = read[(read >= least) & (read <= most)]
                if np.isin(read, self.numbers.astype(kind)).any():
                    return True
        return False


def write_tasks(folder: Path) -> dict[str, Canary]:
    """What the example writes for organisations, with a ticket's number in every line, and tasks
    that only one of them has."""
    run_path = EXAMPLES / "sort_digits" / "src" / "fedrl_sort_digits" / "__init__.py"
    source = folder / "source"
    runpy.run_path(str(run_path))["write_organisations"](source)
    canaries = {}
    for member, name in enumerate(MEMBERS):
        text = f"canary {secrets.token_hex(8)}"
        place, tickets = folder / name / "data" / "tasks", []
        place.mkdir(parents=True)
        for split in ("train", "test"):
            lines = (source / name / "tasks" / f"{split}.jsonl").read_text().splitlines()
            rows = [json.loads(line) for line in lines]
            rows += [row | {"prompt": f"{text} {row['prompt']}"} for row in rows[:3]]
            for row in rows:
                row["ticket"] = 4_130_000_000 + 1_000_000 * member + 37 * len(tickets)
                tickets.append(row["ticket"])
            written = "".join(json.dumps(row) + "\n" for row in rows)
            (place / f"{split}.jsonl").write_text(written)
        canaries[name] = Canary(text.encode(), np.array(tickets))
    shutil.move(source / "public", folder / "hub" / "data" / "public")
    shutil.rmtree(source)
    return canaries


# Places -----------------------------------------------------------------------------------------

# In the hub's place: what its SuperLink reads, after decryption, and what anybody asks of it.
LISTENING = """
import sys
from fedrl import cli
from fedrl.engines.flower import superlink

kept = open("../heard", "ab", buffering=0)
guard = superlink.Guard.__call__

async def listening(self, scope, receive, send):
    kept.write(repr((scope.get("path"), scope.get("headers"))).encode())

    async def heard():
        event = await receive()
        kept.write(event.get("body", b""))
        return event

    await guard(self, scope, heard, send)

superlink.Guard.__call__ = listening
sys.exit(cli.call(sys.argv[1:]))
"""
# Every frame on the hub's wires, behind its length.
CAPTURE = """
import socket
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.ntohs(3))
wire.setsockopt(socket.SOL_SOCKET, 33, 2**28)  # SO_RCVBUFFORCE
with open("../wire", "ab", buffering=0) as kept:
    print("ready", flush=True)
    while True:
        frame, (name, *_) = wire.recvfrom(2**17)
        if name != "lo":
            kept.write(len(frame).to_bytes(4, "big") + frame)
"""


def numbered_commands(page: str, section: int) -> list[str]:
    """Those of a numbered section of a page; one that begins with … is an example."""
    text = re.search(rf"^## {section}\..*?(?=^## )", page, re.M | re.S)
    assert text is not None
    blocks = re.findall(r"(?:^    .*\n)+", text[0], re.M)
    lines = "".join(blocks).replace("\\\n", "").splitlines()
    return [line.strip() for line in lines if not line.strip().startswith("…")]


def as_member(command: str, number: int) -> str:
    """A page speaks of North; `South is --client 1`, and so on."""
    return command.replace("north", MEMBERS[number]).replace("--client 0", f"--client {number}")


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Places:
    """A namespace and a folder for the hub and each member, and what runs in them."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.stack = stack
        self.mark = secrets.token_hex(3)
        for name in ["hub", *MEMBERS]:
            (folder / name).mkdir()
            self._write_program(folder / name)
            self._make_namespace(name)
        for number, name in enumerate(MEMBERS):
            hub, member = self.space("hub"), self.space(name)
            ip("link", "add", f"wire{number}", "netns", hub, "type", "veth",
               "peer", "name", "wire", "netns", member)  # fmt: skip
            for space, end, last in ((hub, f"wire{number}", 1), (member, "wire", 2)):
                ip("-n", space, "addr", "add", f"10.77.{number}.{last}/24", "dev", end)
                ip("-n", space, "link", "set", end, "up")
            self._name_the_hub(name, f"10.77.{number}.1")
            # The firewall: a member sends to the hub's port, the hub answers from it.
            for space, side in ((member, "dport"), (hub, "sport")):
                ip("-n", space, "rule", "add", "pref", f"{10 + number}", "ipproto", "tcp",
                   side, str(PORT), "lookup", "main")  # fmt: skip
        for name in ["hub", *MEMBERS]:
            ip("-n", self.space(name), "rule", "del", "pref", "32766")  # any other packet's route

    def _write_program(self, home: Path) -> None:
        """The command `fedrl`."""
        words = "-m fedrl"
        if home.name == "hub":
            (self.folder / "listening.py").write_text(LISTENING)
            words = str(self.folder / "listening.py")
        (home / "fedrl").write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        (home / "fedrl").chmod(0o755)

    def space(self, name: str) -> str:
        return f"fedrl-{self.mark}-{name}"

    def _make_namespace(self, name: str) -> None:
        made = subprocess.run(["ip", "netns", "add", self.space(name)], capture_output=True)
        if made.returncode:
            pytest.skip("cannot make a network namespace here")
        self.stack.callback(ip, "netns", "del", self.space(name))
        ip("-n", self.space(name), "link", "set", "lo", "up")

    def _name_the_hub(self, name: str, address: str) -> None:
        """`ip netns exec` puts the files of this folder over those of /etc."""
        etc = Path("/etc/netns") / self.space(name)
        etc.mkdir(parents=True)
        self.stack.callback(shutil.rmtree, etc)
        (etc / "hosts").write_text(f"127.0.0.1 localhost\n{address} hub.example.org\n")

    def _options(self, place: str) -> dict:
        home = self.folder / place
        (home / "tmp").mkdir(exist_ok=True)
        gone = ("FEDRL_DATA", "FEDRL_CONNECTIONS", "XDG_CACHE_HOME")
        environment = {k: v for k, v in os.environ.items() if k not in gone}
        environment |= {"HOME": str(home), "TMPDIR": str(home / "tmp")}
        environment["PATH"] = f"{home}:{os.environ['PATH']}"
        return {"cwd": home, "env": environment}

    def words(self, place: str, *words: str) -> list[str]:
        return ["ip", "netns", "exec", self.space(place), *words]

    def call(self, place: str, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.words(place, *words),
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
            **self._options(place),
        )

    def start(self, place: str, *words: str, **options: object) -> subprocess.Popen[bytes]:
        log = self.stack.enter_context((self.folder / place / "output.txt").open("ab"))
        options = {"stdout": log, "stderr": log} | self._options(place) | options
        process = subprocess.Popen(self.words(place, *words), **options)
        self.stack.callback(process.wait, 30)
        self.stack.callback(process.terminate)
        return process

    def follow(self, place: str, command: str) -> None:
        """A command of the page; what it says to leave running is left running."""
        if "# leave it running" in command or " flower node " in command:
            self.start(place, "bash", "-c", f"exec {command}")
            return
        done = self.call(place, "bash", "-c", command)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"

    def files(self, place: str) -> Iterator[Path]:
        return (path for path in (self.folder / place).rglob("*") if path.is_file())

    def listening(self, place: str) -> set[int]:
        """Ports that are open in a namespace, loopback left out."""
        found = set()
        for line in self.call(place, "cat", "/proc/net/tcp", "/proc/net/tcp6").stdout.splitlines():
            words = line.split()
            if len(words) > 3 and words[3] == "0A":
                address, port = words[1].split(":")
                if not address.endswith("0100007F"):
                    found.add(int(port, 16))
        return found
