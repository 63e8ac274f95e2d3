"""docs/deploy.md on one machine: a network namespace per organisation, wires only to the hub."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")

ROOT = hasattr(os, "geteuid") and os.geteuid() == 0 and shutil.which("ip") is not None
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not ROOT, reason="makes network namespaces: needs root and ip"),
]
MEMBERS = ["north", "south", "west"]
PORT = 9092


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Places:
    """Namespaces fedrl-hub, fedrl-north, …, and what runs in them."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.stack = stack
        for name in ["hub", *MEMBERS]:
            if subprocess.run(["ip", "netns", "add", f"fedrl-{name}"], check=False).returncode:
                pytest.skip("cannot make a network namespace here")
            stack.callback(ip, "netns", "del", f"fedrl-{name}")
            ip("-n", f"fedrl-{name}", "link", "set", "lo", "up")
        for number, name in enumerate(MEMBERS):
            ends = f"fh{number}", f"fm{number}"
            ip("link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
            for place, end, last in (("hub", ends[0], 1), (name, ends[1], 2)):
                space = f"fedrl-{place}"
                ip("link", "set", end, "netns", space)
                ip("-n", space, "addr", "add", f"10.77.{number}.{last}/24", "dev", end)
                ip("-n", space, "link", "set", end, "up")

    def words(self, place: str, *words: str) -> list[str]:
        return ["ip", "netns", "exec", f"fedrl-{place}", sys.executable, *words]

    def environment(self, place: str) -> dict[str, str]:
        home = self.folder / place
        home.mkdir(exist_ok=True)
        return os.environ | {"HOME": str(home), "FEDRL_CONNECTIONS": str(home / "connections")}

    def call(self, place: str, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.words(place, *words),
            cwd=self.folder / place,
            env=self.environment(place),
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    def start(self, place: str, *words: str) -> None:
        environment = self.environment(place)
        log = self.stack.enter_context((self.folder / f"{place}.log").open("wb"))
        process = subprocess.Popen(
            self.words(place, *words),
            cwd=self.folder / place,
            env=environment,
            stdout=log,
            stderr=log,
        )
        self.stack.callback(process.wait, 30)
        self.stack.callback(process.terminate)

    def listening(self, place: str) -> set[tuple[str, int]]:
        """Addresses and ports that are open in a namespace, loopback left out."""
        code = "print(open('/proc/net/tcp').read(), open('/proc/net/tcp6').read())"
        found = set()
        for line in self.call(place, "-c", code).stdout.splitlines():
            words = line.split()
            if len(words) > 3 and words[3] == "0A":
                address, port = words[1].split(":")
                if not address.endswith("0100007F"):
                    found.add((address, int(port, 16)))
        return found


@pytest.fixture
def places(tmp_path: Path) -> Iterator[Places]:
    with ExitStack() as stack:
        yield Places(tmp_path, stack)


ASK = """
import httpx, ssl, sys
context = ssl.create_default_context(cafile="ca.pem")
try:
    print(httpx.post(sys.argv[1], content=b"", verify=context, timeout=5).status_code)
except httpx.TransportError as error:
    print(type(error).__name__)
"""


def test_three_organisations_train_an_agent(places: Places, tmp_path: Path):
    flower = ("-m", "fedrl", "flower")
    for place in ["hub", *MEMBERS]:
        (tmp_path / place).mkdir()
    hosts = [word for number in range(3) for word in ("--host", f"10.77.{number}.1")]
    assert places.call("hub", *flower, "keys", "server", "hub", *hosts).returncode == 0
    places.start("hub", *flower, "link", "--folder", "hub", "--name", "hub")
    for number, name in enumerate(MEMBERS):
        shutil.copy(tmp_path / "hub" / "hub" / "ca.pem", tmp_path / name)
        assert places.call(name, *flower, "keys", "node", f"{name}.key").returncode == 0
        shutil.copy(tmp_path / name / f"{name}.key.pub", tmp_path / "hub" / "hub" / "nodes")
        places.start(
            name, *flower, "node", "--client", str(number),
            "--superlink", f"10.77.{number}.1:{PORT}", "--ca", "ca.pem",
            "--key", f"{name}.key", "--folder", name,
        )  # fmt: skip
    words = ["momentum/random_mdp", "--federation.clients", "3", "--algorithm.local-steps", "4"]
    flags = [
        "--engine",
        "flower",
        "--connection",
        "hub",
        "--rounds",
        "2",
        "--flower.patience",
        "60",
    ]
    time.sleep(1.0)
    done = places.call("hub", "-m", "fedrl", "run", *words, *flags)
    assert done.returncode == 0, done.stderr
    (metrics,) = (tmp_path / "hub").glob("runs/*/*/metrics.jsonl")
    rounds = [json.loads(line) for line in metrics.read_text().splitlines()]
    assert [r["round"] for r in rounds] == [0, 1, 2]
    assert all(r["cohort/failed"] == 0 for r in rounds)

    # One port is open at the hub, none at a member; and at that port a member is a node only.
    assert {port for _, port in places.listening("hub")} == {PORT}
    assert not any(places.listening(name) for name in MEMBERS)
    hub = f"https://10.77.0.1:{PORT}/v1"
    assert places.call("north", "-c", ASK, f"{hub}/control/start-run").stdout.strip() == "403"
    assert places.call("north", "-c", ASK, f"{hub}/runtime/acquire-task").stdout.strip() == "403"
    assert places.call("north", "-c", ASK, f"{hub}/fleet/pull-messages").stdout.strip() not in (
        "403",
        "200",
    )
    south = places.call("north", "-c", ASK, f"https://10.77.1.2:{PORT}/").stdout.strip()
    assert south == "ConnectError"
