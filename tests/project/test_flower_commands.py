"""Every `fedrl flower` command of the pages that needs no federation is run: keys, members, checks,
status, approvals, audits; and `fedrl verify`. Each in a copy of one folder, in which a coordinator
and its members have got as far as the page has by then. The others need a SuperLink:
test_federation_commands.py."""

from __future__ import annotations

import io
import re
import shlex
import shutil
from pathlib import Path

import pytest
from support.page_commands import SHOWN

from fedrl.cli import call

pytest.importorskip("flwr", reason="needs the extra flower")
pytest.importorskip("jax", reason="needs the extra classic")
from support.asked_nodes import AskedNode, text
from support.check_server import listening

from fedrl.engines.flower import approval
from fedrl.engines.flower.audit_log import AuditLog
from fedrl.engines.flower.keys import coordinator_digest

pytestmark = pytest.mark.slow
NEEDS_A_SUPERLINK = re.compile(r"flower (up|link|node)\b")
NAMES_A_COMMAND = re.compile(r"^fedrl (flower [a-z]+( server)?|flower …|verify)( --key ca.pem)?$")
"""In a sentence, without what it is called with."""
ALONE = [
    one.line
    for one in SHOWN
    if re.match("fedrl (flower|verify) ", one.line)
    and not NEEDS_A_SUPERLINK.search(one.line)
    and not NAMES_A_COMMAND.match(one.line)
]
MEMBERS = {"north": 0, "south": 1}
FIRST = {
    r"keys (server|node)": "fresh",
    r"keys signer hub": "unsigned",
    r"keys use|renewal": "fedrl flower keys renew north.key",
    r"revoke hub 2": "fedrl flower register hub west.key.pub --client 2",
    r"register hub north.key.pub": "fedrl flower revoke hub 0",
    r"--old": "fedrl flower keys renew north.key; fedrl flower register hub north.key.renewal",
}
"""What must have been done before, or not: `fresh`, nothing but ca.pem; `unsigned`, a hub from
before there were signatures."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Up to the moment at which two nodes are members, and a recipe waits at each."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        run("fedrl flower keys server hub --host hub.example.org --host localhost")
        shutil.copy("hub/ca.pem", ".")
        (folder / "data").mkdir()
        for name in ("west", *MEMBERS):
            run(f"fedrl flower keys node {name}.key --folder {name} --ca ca.pem")
        for name, number in MEMBERS.items():
            run(f"fedrl flower register hub {name}.key.pub --client {number}")
            policy = folder / name / "policy.toml"
            policy.write_text(policy.read_text().replace("#approval = ", "approval = ", 1))
            policy.write_text(re.sub(r'approval = ".*"', 'approval = "person"', policy.read_text()))
            digest = coordinator_digest(folder / "ca.pem")
            node = AskedNode(folder / name, number=number, coordinator=digest)
            assert "waits for a person" in node.ready(text())
        shutil.copytree("north", "north-second")
        AuditLog(folder / "hub").add("link", host="0.0.0.0", port=9092, version="1")
        run("fedrl run momentum/random_mdp --rounds 1 --out runs")
        (config,) = (folder / "runs").rglob("config.toml")
        run(f"fedrl export {config.parent} --out agent --sign hub/signing.key")
    return folder


def run(line: str) -> None:
    assert call(shlex.split(line)[1:]) == 0, line


def prepared(line: str, made: Path, here: Path) -> None:
    """A copy of what was made, and what the page does before this command."""
    before = next((value for words, value in FIRST.items() if re.search(words, line)), "")
    if before == "fresh" and "--renew" not in line:
        shutil.copy(made / "ca.pem", here)
        return
    shutil.copytree(made, here, dirs_exist_ok=True)
    if before == "unsigned":
        for file in here.glob("hub/signing*"):
            file.unlink()
    elif before != "fresh":
        for command in filter(None, before.split("; ")):
            run(command)


def test_commands_were_found():
    kinds = {line.split()[2] for line in ALONE if " flower " in line}
    assert kinds == {"approve", "audit", "check", "keys", "register", "revoke", "status"}
    assert any(line.startswith("fedrl verify ") for line in ALONE)
    assert all(any(re.search(words, line) for line in ALONE) for words in FIRST)


@pytest.mark.parametrize("line", ALONE)
def test_a_command_that_needs_no_federation(line: str, made: Path, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    prepared(line, made, tmp_path)
    with listening(made / "hub") as address:
        places = {
            "FOLDER": "data" if "--data" in line else "north", "FILE": "mine.key", "PATH": "agent",
            "D": "data", "/srv/our-data": "data", "hub.example.org:9092": address,
            "/var/lib/fedrl/coordinator-first": "first", "/var/lib/fedrl/node-north": "north",
            "/etc/fedrl/north-ca.pem": "ca.pem", "/etc/fedrl/north.key": "north.key",
        }  # fmt: skip
        digest = approval.digest(text())
        places |= {"DIGEST": digest, "3f2a90": digest[:6]}
        words = [places.get(word, word) for word in shlex.split(line)[1:]]
        monkeypatch.setattr("sys.stdin", io.StringIO("yes\n"))  # of whom `approve` asks
        code = call(words)
    told = capfd.readouterr()
    assert code == 0, told.out + told.err
    assert told.out
