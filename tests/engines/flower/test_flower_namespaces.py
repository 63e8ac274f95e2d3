"""docs/deploy.md, word for word: a network namespace per organisation, and canaries in its data.

Every command of the page is run as it stands there. What crosses the wires is kept, and what the
hub reads once TLS is off; an organisation's prompts and tickets must be in none of it, nor in
anybody else's files.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra flower")
pytest.importorskip("torch", reason="needs the extra llm")

from support.flower_places import (
    CAPTURE,
    MEMBERS,
    PORT,
    Canary,
    Places,
    as_member,
    numbered_commands,
    write_tasks,
)
from support.flower_runs import train
from support.repository import DOCS

from fedrl.config.loading import find_recipe, read_recipe, resolve

ROOT = hasattr(os, "geteuid") and os.geteuid() == 0 and shutil.which("ip") is not None
pytestmark = [
    pytest.mark.machines,
    pytest.mark.skipif(not ROOT, reason="makes network namespaces: needs root and ip"),
]
PAGE = (DOCS / "deploy.md").read_text(encoding="utf-8")


commands = partial(numbered_commands, PAGE)


class Deployed(NamedTuple):
    places: Places
    canaries: dict[str, Canary]
    rounds: list[dict]


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    """Sections 1 to 6 of the page, and what people do between them."""
    folder = tmp_path_factory.mktemp("places")
    with ExitStack() as stack:
        places = Places(folder, stack)
        capture = places.start("hub", sys.executable, "-c", CAPTURE, stdout=subprocess.PIPE)
        assert capture.stdout is not None
        assert capture.stdout.readline() == b"ready\n"
        (folder / "hub" / "data").mkdir()
        canaries = write_tasks(folder)
        for command in commands(1):
            places.follow("hub", command)
        for number, name in enumerate(MEMBERS):
            shutil.copy(folder / "hub" / "hub" / "ca.pem", folder / name)
            shutil.copytree(folder / "hub" / "model", folder / name / "model")
            for command in commands(2):
                places.follow(name, as_member(command, number))
            registered = folder / "hub" / "hub" / "nodes" / f"client-{number}.pub"
            shutil.copy(folder / name / f"{name}.key.pub", registered)
            for command in commands(3):
                places.follow(name, as_member(command, number))
        wait_for_the_superlink(places)
        for command in commands(4):
            places.follow("hub", command)
        (metrics,) = (folder / "hub").glob("runs/*/*/metrics.jsonl")
        rounds = [json.loads(line) for line in metrics.read_text().splitlines()]
        for number, name in enumerate(MEMBERS):
            for command in commands(5):
                places.follow(name, as_member(command, number))
        export, verify = commands(6)
        places.follow("hub", export.replace("NAME", metrics.parent.name))
        shutil.copytree(folder / "hub" / "agent", folder / "west" / "agent")
        places.follow("west", verify)
        yield Deployed(places, canaries, rounds)


def wait_for_the_superlink(places: Places) -> None:
    until = time.monotonic() + 60
    while PORT not in places.listening("hub"):
        assert time.monotonic() < until, (places.folder / "hub" / "output.txt").read_text()
        time.sleep(0.5)


def test_the_page_ends_in_a_trained_agent(deployed: Deployed):
    assert [r["round"] for r in deployed.rounds] == list(range(13))
    assert all(r["cohort/size"] == 3 and r["cohort/failed"] == 0 for r in deployed.rounds[1:])
    first, last = deployed.rounds[0], deployed.rounds[-1]
    assert last["eval/success"] > first["eval/success"] + 0.05


def test_it_is_the_agent_that_these_data_make(deployed: Deployed, tmp_path: Path):
    """All four folders on one machine: the same numbers in every round."""
    folder = deployed.places.folder
    data = tmp_path / "data"
    data.mkdir()
    for name in MEMBERS:
        (data / name).symlink_to(folder / name / "data")
    (data / "public").symlink_to(folder / "hub" / "data" / "public")
    flags = ["--partition.folder", str(data)]
    flags += ["--algorithm.model", str(folder / "hub" / "model")]
    flags += ["--engine", "workers", "--workers", "1", "--out", str(tmp_path / "runs")]
    path = train(resolve(read_recipe(find_recipe("prompts/organisations")), flags))
    text = (path / "metrics.jsonl").read_text()
    assert [json.loads(line) for line in text.splitlines()] == deployed.rounds


def test_every_organisation_has_its_answer_and_nobody_else_has(deployed: Deployed):
    for name in MEMBERS:
        home = deployed.places.folder / name
        assert list(home.glob(f"{name}/alone/alone-*/*/metrics.jsonl"))
        assert not any("alone" in path.parts for path in deployed.places.files("hub"))


def test_who_gets_the_agent_sees_whose_it_is(deployed: Deployed):
    """`fedrl verify` ended well on the page; it does not where a file was touched."""
    home = deployed.places.folder / "west"
    shutil.copytree(home / "agent", home / "touched")
    card = home / "touched" / "README.md"
    card.write_text(card.read_text() + "\n")
    (verify,) = [command for command in commands(6) if command.startswith("fedrl verify")]
    touched = deployed.places.call("west", "bash", "-c", verify.replace("agent", "touched"))
    assert touched.returncode == 1
    assert "README.md was changed after it was signed" in touched.stdout + touched.stderr


def frames(data: bytes) -> Iterator[bytes]:
    begin = 0
    while begin < len(data):
        end = begin + 4 + int.from_bytes(data[begin : begin + 4], "big")
        yield data[begin + 4 : end]
        begin = end


def test_only_the_documented_port_is_used_and_only_it_is_open(deployed: Deployed):
    places = deployed.places
    assert f"| {PORT}/tcp | coordinator, inbound |" in PAGE
    assert places.listening("hub") == {PORT}
    assert not any(places.listening(name) for name in MEMBERS)
    opened, tcp = set(), 0
    for frame in frames((places.folder / "wire").read_bytes()):
        if frame[12:14] == b"\x08\x00" and frame[23] == 6:
            tcp += 1
            start = 14 + 4 * (frame[14] & 15)
            if frame[start + 13] & 0x12 == 0x02:  # SYN without ACK: somebody connects
                opened.add((frame[30:34][3], int.from_bytes(frame[start + 2 : start + 4], "big")))
    assert tcp > 100
    assert opened == {(1, PORT)}  # the hubs' ends are 10.77.x.1


# A visit to an address, in plain text or as a request under TLS that carries some text.
VISIT = """
import socket, sys
try:
    with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=3) as visit:
        visit.sendall(sys.argv[3].encode())
        print("connected")
except OSError as error:
    print(type(error).__name__)
"""
ASK = """
import httpx, ssl, sys
context = ssl.create_default_context(cafile="ca.pem")
kind = {"content-type": "application/protobuf"}
asked = httpx.post(sys.argv[1], content=sys.argv[2].encode(), headers=kind, verify=context)
print(asked.status_code)
"""


def test_the_firewall_lets_nothing_else_through(deployed: Deployed):
    places = deployed.places
    serving = places.start("hub", sys.executable, "-m", "http.server", "9093")
    until = time.monotonic() + 30
    while 9093 not in places.listening("hub"):
        assert time.monotonic() < until
        time.sleep(0.2)
    try:
        for host, port in (("10.77.0.1", 9093), ("10.77.1.2", PORT), ("10.77.0.2", 9093)):
            visit = places.call("north", sys.executable, "-c", VISIT, host, str(port), "x")
            assert visit.stdout.strip() != "connected", (host, port)
        inside = places.call("hub", sys.executable, "-c", VISIT, "127.0.0.1", "9093", "x")
        assert inside.stdout.strip() == "connected"
    finally:
        serving.terminate()
        serving.wait(30)


def test_a_member_is_a_node_and_nothing_else(deployed: Deployed):
    hub = f"https://hub.example.org:{PORT}/v1"
    for path, wanted in (
        ("control/start-run", "403"),
        ("control/register-node", "403"),
        ("runtime/acquire-task", "403"),
    ):
        asked = deployed.places.call("north", sys.executable, "-c", ASK, f"{hub}/{path}", "")
        assert asked.stdout.strip() == wanted, asked.stderr
    as_a_node = deployed.places.call(
        "north", sys.executable, "-c", ASK, f"{hub}/fleet/pull-messages", ""
    )
    assert as_a_node.stdout.strip() not in ("403", "200", "")


@pytest.mark.parametrize("owner", MEMBERS)
def test_nobody_else_has_an_organisations_data(owner: str, deployed: Deployed):
    places, canary = deployed.places, deployed.canaries[owner]
    own = [path for path in places.files(owner) if canary.found_in(path.read_bytes())]
    assert {path.name for path in own} >= {"train.jsonl", "test.jsonl"}
    for place in {"hub", *MEMBERS} - {owner}:
        for path in places.files(place):
            assert not canary.found_in(path.read_bytes()), path
    for kept in ("wire", "heard"):
        assert not canary.found_in((places.folder / kept).read_bytes()), kept
    heard = (places.folder / "heard").read_bytes()
    assert heard.count(b'"kind": "answer"') >= 3 * 12  # updates did come past it


def test_it_would_have_been_noticed(deployed: Deployed):
    """The same search finds a canary that is sent, with TLS and without."""
    places, canary = deployed.places, deployed.canaries["north"]
    before = {kept: (places.folder / kept).stat().st_size for kept in ("wire", "heard")}
    text, number = canary.text.decode(), canary.numbers[-1]
    hub = f"https://hub.example.org:{PORT}/v1/fleet/pull-messages"
    places.call("north", sys.executable, "-c", VISIT, "10.77.0.1", str(PORT), text)
    places.call("north", sys.executable, "-c", ASK, hub, f"a time: {number}")
    time.sleep(1.0)
    for kept, start in before.items():
        path = places.folder / kept
        assert canary.found_in(path.read_bytes()[start:]), kept
        os.truncate(path, start)
    assert canary.found_in(b"x" + np.array([1, number]).tobytes())
    assert canary.found_in(np.array([0.5, number]).tobytes())
