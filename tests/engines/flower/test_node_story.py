"""What a node says while it runs, and what `fedrl flower status` reads in its folder and in the
coordinator's."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from fedrl.cli import call
from fedrl.core.types import UserError

pytest.importorskip("flwr", reason="needs the extra flower")

from support.asked_nodes import AskedNode, broadcast, text

from fedrl.engines.flower import (
    approval,
    audit_log,
    keys,
    node_check,
    node_story,
    running_lock,
    status,
    supernode,
)
from fedrl.engines.flower.adapter import records
from fedrl.engines.flower.audit_log import AuditLog
from fedrl.engines.flower.messages import Answer, Job, to_json
from fedrl.engines.flower.node import NodeClient
from fedrl.engines.flower.node_audit import NodeAudit
from fedrl.engines.flower.node_story import Story
from fedrl.engines.flower.own_check import Finding, Joining
from fedrl.engines.flower.owner_log import say

pytestmark = pytest.mark.slow  # of waits for messages: seconds of the clock, few of a core


def test_a_story_says_what_changes_and_keeps_it(tmp_path: Path, capsys: Any):
    story = Story(Joining("hub:9092", None, Path("north.key")), 0, tmp_path)
    story.found(False, "nothing listens at hub:9092")
    story.found(False, "nothing listens at hub:9092")
    assert "not connected (client 0): nothing listens" in status.status(tmp_path)[0]
    story.found(True)
    story.found(True)
    job = Job(
        "0" * 32, client=0, seed=1, recipe="", digest="", run="a\nrun", round=3, attempt=0,
        state="", keep=1, deadline=9.0,
    )  # fmt: skip
    seen = []

    def work(content: Any) -> Any:
        story.begins(job)
        seen.append(status.status(tmp_path)[0])
        return records.content(to_json(Answer("0" * 32, 0)))

    story.told(work)(records.content(to_json(job)))
    lines = [line[9:] for line in capsys.readouterr().err.splitlines()]
    assert lines == [
        "nothing listens at hub:9092",
        "connected as north (client 0); waiting for work",
        "run a run: training, round 3",
        "answered after 0 s; waiting for work",
    ]
    assert "connected to hub:9092 as north (client 0): run a run: training, round 3" in seen
    assert "waiting for work" in status.status(tmp_path)[0]


def test_only_whom_the_superlink_answers_is_connected(tmp_path: Path, capsys: Any):
    unheard = [math.inf]
    story = Story(Joining("hub:9092", None, Path("north.key")), 0, tmp_path, unheard.pop)
    for seconds, first in (
        (math.inf, "not connected (client 0): connecting"),
        (1.0, "connected to hub:9092 as north (client 0): waiting for work"),
        (99.0, "not connected (client 0): connecting"),
        (1.0, "connected to hub:9092 as north (client 0): waiting for work"),
    ):
        unheard[:] = [seconds]
        story.looked("")
        assert status.status(tmp_path)[0] == first
    said = capsys.readouterr().err.splitlines()
    assert [line[9:] for line in said] == ["connected as north (client 0); waiting for work"] * 2


def test_a_node_calls_itself_as_the_register_does(tmp_path: Path):
    keys.make_node(tmp_path / "key", "node-0")
    assert Joining("hub:9092", None, tmp_path / "key").name == "node-0"
    (tmp_path / "key").rename(tmp_path / "north.key")  # on a machine without its public half
    assert Joining("hub:9092", None, tmp_path / "north.key").name == "north"


def test_a_keys_folder_is_the_one_in_which_it_was_let_in(tmp_path: Path):
    """A key that is refused may be another node's, whose folder stays what it was."""
    (tmp_path / "policy.toml").write_text("")
    key = tmp_path / "north.key"
    story = Story(Joining("hub:9092", None, key), 0, tmp_path)
    story.found(False, "your key is filed as that of client 1")
    assert not key.with_name("north.key.folder").exists()
    story.found(True)
    assert key.with_name("north.key.folder").read_text().strip() == str(tmp_path.resolve())


def test_what_its_policy_refuses_is_not_called_training(tmp_path: Path, capsys: Any):
    node = AskedNode(tmp_path, least_clients=9)
    story = Story(Joining("hub:9092", None, Path("north.key")), 0, tmp_path)
    node.client.log, node.client.begins = say, story.begins
    node.client.answer = story.told(node.client.answer)
    node.ready(text())
    node.reason(text(), round=1, sent=broadcast())
    connected, *refused = [line[9:] for line in capsys.readouterr().err.splitlines()]
    assert connected == "connected as north (client 0); waiting for work"
    assert [line.partition(": the updates of 5 clients")[0] for line in refused] == [
        "run run: refused: federation.clients",
        "run run: refused, round 1: federation.clients",
    ]
    assert "waiting for work" in status.status(tmp_path)[0]


def test_what_a_node_takes_on_is_told_before_and_after(tmp_path: Path, capsys: Any):
    node = AskedNode(tmp_path)
    story = Story(Joining("hub:9092", None, Path("north.key")), 0, tmp_path)
    node.client.begins = story.begins
    node.client.answer = story.told(node.client.answer)
    assert not node.ready(text())
    assert not node.reason(text(), round=1, sent=broadcast())
    told = re.sub(r"after \d+ s", "after", capsys.readouterr().err)
    assert [line[9:] for line in told.splitlines()[1:]] == [
        "run run: getting ready",
        "answered after; waiting for work",
        "run run: training, round 1",
        "answered after; waiting for work",
    ]


def test_an_answer_without_an_update_does_not_read_as_one(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
):
    def broken(*_: object) -> None:
        raise RuntimeError("its disk is gone")

    node = AskedNode(tmp_path)
    story = Story(Joining("hub:9092", None, Path("north.key")), 0, tmp_path)
    node.client.log, node.client.begins = say, story.begins
    node.client.answer = story.told(node.client.answer)
    monkeypatch.setattr(node.client, "_start", broken)
    monkeypatch.setattr(node.client, "_compute", broken)
    assert node.ready(text())
    assert node.reason(text(), round=1, sent=broadcast())
    told = [line[9:] for line in capsys.readouterr().err.splitlines()]
    ends = [re.sub(r"after \d+ s", "after", line) for line in told if "answered" in line]
    assert ends == [
        "answered that it is not ready, after; waiting for work",
        "answered that there is no update, after; waiting for work",
    ]


def test_the_owner_reads_both_values_and_the_coordinator_one(tmp_path: Path, capsys: Any):
    (tmp_path / "policy.toml").write_text('methods = ["fedqhd", "q-avg"]')
    node = AskedNode(tmp_path)
    told = node.reason(text(), round=1, sent=broadcast())
    assert told == (
        "algorithm.name: this node runs only methods that its owner names: "
        "ask its owner to add this one (methods)"
    )
    both = f'{told} [recipe: pavg; policy: methods = ["fedqhd", "q-avg"]]'
    assert node.said == [f"run run: refused, round 1: {both}"]
    assert any(line.endswith(both) for line in status.status(tmp_path))
    assert call(["flower", "audit", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert both in said
    assert re.search(r'policy \w{16}: methods = \["fedqhd", "q-avg"\]$', said, re.M)  # as TOML


def test_a_node_that_is_gone_was_last_alive(tmp_path: Path):
    story = Story(Joining("hub:9092", None, Path("north.key")), 0, tmp_path)
    story.found(True)
    now = json.loads((tmp_path / node_story.NOW).read_text())
    (tmp_path / node_story.NOW).write_text(json.dumps(now | {"time": time.time() - 7200}))
    assert "was last alive 2 hours ago" in status.status(tmp_path)[0]
    with node_story.telling(story):
        pass
    assert not (tmp_path / node_story.NOW).exists()


def test_what_keeps_a_node_out_is_not_buried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Its SuperNode ends again and again, and that it does is no news."""
    lines: list[str] = []
    monkeypatch.setattr(node_story, "say", lines.append)
    story = Story(Joining("hub:9092", None, Path("north.key")), 0, tmp_path)
    story.aside("the SuperNode ended")
    story.found(False, "your key is not registered yet")
    story.aside("the SuperNode ended")
    story.found(True)
    story.aside("the SuperNode ended")
    assert lines == [
        "the SuperNode ended",
        "your key is not registered yet",
        "connected as north (client 0); waiting for work",
        "the SuperNode ended",
    ]


def test_a_killed_node_waits_until_its_old_connection_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Its key is registered, and it is not in all the same: that is not called connected."""
    lines: list[str] = []
    monkeypatch.setattr(node_story, "say", lines.append)
    story = Story(Joining("hub:9092", None, Path("north.key")), 0, tmp_path)
    (tmp_path / supernode.LOG).write_bytes(b"[code: 2004] Failed to activate SuperNode.\nended\n")
    assert supernode._turned_away(NodeClient(0, tmp_path, lambda _: pytest.fail("asked")))
    story.turned_away()
    story.looked("")
    assert lines == [node_story.STILL_COUNTED]
    assert not story.connected
    assert not story.patient  # it tries on: a minute later it is in
    monkeypatch.setattr(node_story, "TURNED_AWAY_SECONDS", 0.0)
    story.looked("")
    assert lines[1:] == ["connected as north (client 0); waiting for work"]


def test_a_node_that_is_kept_out_goes_on_as_soon_as_it_may(tmp_path: Path):
    story = Story(Joining("hub:9092", None, Path("north.key")), 0, tmp_path)
    story.found(False, "your key is not registered yet")
    slept = threading.Thread(target=supernode._wait, args=(600.0, story))
    slept.start()
    story.found(True)
    slept.join(60)
    assert not slept.is_alive()


def test_a_killed_node_is_known_by_its_lock(tmp_path: Path):
    """Its last words say that it is connected, and are seconds old."""
    story = Story(Joining("hub:9092", None, Path("north.key")), 0, tmp_path)
    story.found(True)
    with running_lock.alone(tmp_path, "taken"):
        assert status.status(tmp_path)[0].startswith("connected to hub:9092")
    told = status.status(tmp_path)[0]
    assert told.startswith("this node is not running; it ended within")
    assert (tmp_path / running_lock.LOCK).stat().st_mode & 0o077 == 0


def test_a_full_disk_is_told_by_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    audit = NodeAudit(tmp_path, 0)
    monkeypatch.setattr(audit.log, "add", full)
    client = NodeClient(0, tmp_path, lambda recipe: pytest.fail(recipe), audit=audit)
    with pytest.raises(UserError, match=f"--folder {tmp_path}: No space left on device"):
        supernode._begin(client)
    said: list[str] = []
    client.log = said.append
    client.answer(records.content("no message"))
    assert (
        said[-1] == f"nothing was answered, for {tmp_path} is not written: No space left on device"
    )


def test_two_nodes_do_not_share_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(running_lock, "PATIENCE_SECONDS", 0.1)
    monkeypatch.setattr(node_story, "_follow", lambda story, over: None)
    one, other = (Story(Joining(f"hub:{port}"), 0, tmp_path) for port in (1, 2))
    with node_story.telling(one), pytest.raises(UserError, match="another node runs in it"):
        node_story.telling(other).__enter__()
    with node_story.telling(other):
        pass


# Status -------------------------------------------------------------------------------------------


def test_a_node_tells_its_rounds_and_refusals(tmp_path: Path, capsys: Any):
    log = AuditLog(tmp_path)
    log.add("start", client=2, version="1", coordinator="c" * 64)
    for number in (1, 2):
        log.add("update", run="r", recipe="d", round=number, attempt=0, sent=10, epsilon=number / 2)
    log.add("refused", run="r", reason="its policy does not allow it")
    assert call(["flower", "status", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "is not running" in told
    assert "as client 2" in told
    assert "2 rounds answered" in told
    assert "own ε so far: 1" in told
    assert "1 refusal, the last:" in told
    assert "its policy does not allow it" in told


def test_attempts_are_no_rounds(tmp_path: Path):
    """Of a resumed run neither; clients on clocks of their own have an entry each, of one round."""
    node, hub = AuditLog(tmp_path / "node"), AuditLog(tmp_path / "hub")
    for number, attempt in ((1, 0), (1, 1), (2, 0), (2, 0), (3, 0)):
        node.add("update", run="r", recipe="d", round=number, attempt=attempt, sent=10, epsilon=0.1)
        for answered, failed in (([0], {}), ([], {"1": "away"})):
            hub.add(
                "round", run="r", recipe="d", round=number, attempt=attempt, answered=answered,
                failed=failed,
            )  # fmt: skip
    node.add("update", run="other", recipe="d", round=1, attempt=0, sent=10, epsilon=0.1)
    assert "4 rounds answered and 2 repeated, the last one" in "\n".join(
        status.status(tmp_path / "node")
    )
    (tmp_path / "hub" / "nodes").mkdir()
    keys.make_node(tmp_path / "0.key")
    public = (tmp_path / "0.key.pub").read_bytes()
    (tmp_path / "hub" / "nodes" / "client-0.pub").write_bytes(public)
    told = "\n".join(status.status(tmp_path / "hub"))
    assert "client 0 0, key" in told
    assert ", 3 rounds answered and 2 repeated, not registered" in told
    assert "\n3 rounds and 4 repeated, the last one" in told  # of both clients


def test_both_sides_tell_their_own_digests_in_full(tmp_path: Path):
    """As `keys node`, `keys server` and `register` print them: people compare them by telephone."""
    keys.make_server(tmp_path / "hub", ["localhost"])
    (said,) = [one for one in status.status(tmp_path / "hub") if one.startswith("coordinator ")]
    assert said == f"coordinator {keys.coordinator_digest(tmp_path / 'hub' / 'ca.pem')}"
    node = tmp_path / "north"
    node.mkdir()
    for name in ("first", "second"):
        keys.make_node(tmp_path / name)
    first, second = (keys.public_digest(tmp_path / name) for name in ("first", "second"))
    audit = NodeAudit(node, 0)
    audit.started("1", None, first)
    audit.keyed(first)
    assert f"its key {first}" in status.status(node)
    audit.keyed(second)
    assert f"its key {second}" in status.status(node)
    entries, _, _ = audit_log.read(node)
    assert [entry["event"] for entry in entries] == ["begin", "start", "key"]
    audit.started("1", None)  # without keys: --insecure
    assert not any(line.startswith("its key") for line in status.status(node))


def test_a_coordinator_tells_its_members(tmp_path: Path):
    hub = tmp_path / "hub"
    (hub / "nodes").mkdir(parents=True)
    digests = []
    for number in (0, 1):
        keys.make_node(tmp_path / f"{number}.key")
        public = (tmp_path / f"{number}.key.pub").read_bytes()
        (hub / "nodes" / f"client-{number}.pub").write_bytes(public)
        digests.append(status._members(hub)[number][2][0])
    log = AuditLog(hub)
    log.add("link", host="0.0.0.0", port=9092, version="1")
    log.add("registered", file="client-0.pub", key=digests[0])
    log.add("activated", key=digests[0], address="10.0.0.1")
    log.add("run", run="r", recipe="d", clients=2)
    log.add("round", run="r", recipe="d", round=1, attempt=0, answered=[0], failed={"1": "away"})
    log.add("unknown", asked="/v1/fleet/activate-node from 10.0.0.9", status=412)
    told = re.sub(r"\d+ seconds? ago", "just now", "\n".join(status.status(hub)))
    assert f"client 0 0, key {digests[0][:16]}: last seen just now, 1 round answered\n" in told
    assert f"client 1 1, key {digests[1][:16]}: never seen, 0 rounds answered, not regist" in told
    assert "the SuperLink was last started at 0.0.0.0:9092" in told
    with running_lock.alone(hub, "taken"):
        assert status.status(hub)[0].startswith("the SuperLink runs at 0.0.0.0:9092, since")
    assert status.status(hub)[0].startswith("the SuperLink is not running: it was last started at")
    assert "1 round, the last one just now: number 1, 1 answered, 1 did not" in told
    assert "  did not answer (round 1, just now): away\n" in told
    assert "1 request turned away at the door, the last:" in told
    assert "just now: a key that is not registered: /v1/fleet/activate-node" in told
    asked = f"{node_check.PATH} from 10.0.0.1"
    log.add("unknown", asked=asked, status=401, key=digests[0])  # before it was registered
    assert "1 request turned away at the door, the last:" in "\n".join(status.status(hub))
    log.add("unknown", asked=asked, status=401, key="0" * 64)
    assert "2 requests turned away at the door, the last:" in "\n".join(status.status(hub))


def test_who_has_answered_since_is_not_told_as_missing(tmp_path: Path):
    log = AuditLog(tmp_path)
    log.add("ready", run="r", recipe="d", answered=[0], failed={"1": "its tokenizer is another"})
    entries, _, _ = audit_log.read(tmp_path)
    (line,) = status._missing(1, entries)
    assert line.startswith("  did not answer (getting ready, ")
    assert line.endswith(": its tokenizer is another")
    log.add("round", run="r", recipe="d", round=1, attempt=0, answered=[0, 1], failed={})
    log.add("round", run="r", recipe="d", round=2, attempt=0, answered=[0], failed={})  # not asked
    entries, _, _ = audit_log.read(tmp_path)
    assert status._missing(1, entries) == []


def test_what_a_restart_leaves_is_told_as_such():
    found = status._why({"asked": "/v1/fleet/push-messages from 10.0.0.7", "status": 403})
    assert found.startswith("a node with work of before, as after a restart of the SuperLink")
    assert "restart" not in status._why({"asked": "/v1/control/x from 10.0.0.7", "status": 403})


@pytest.mark.parametrize(
    "said, told",
    [
        ({"status": 401}, "no signature that holds, as of a node whose clock is off: "),
        ({"status": 401, "key": "ab" * 32}, f"a key that is not registered, {'ab' * 8}: "),
        ({"status": 412, "key": "ab" * 32}, f"a key that is not registered, {'ab' * 8}: "),
        (
            {"status": 412, "key": "ab" * 32, "client": "1"},
            f"client 1's key, {'ab' * 8}, which is connected already (a second node has it, or its "
            "own was killed just before): ",
        ),
    ],
)
def test_a_clock_a_stranger_and_a_second_node_are_told_apart(said: dict[str, Any], told: str):
    asked = "/v1/fleet/activate-node from 10.0.0.7"
    assert status._why({"asked": asked} | said) == f"{told}{asked} ({said['status']})"


def test_a_mistake_in_its_policy_is_in_a_nodes_status(tmp_path: Path):
    AuditLog(tmp_path).add("start", client=0, version="1", coordinator="")
    assert not any("answers nothing" in line for line in status.status(tmp_path))
    (tmp_path / "policy.toml").write_text("secur = true")
    assert "it answers nothing: " in status.status(tmp_path)[1]
    assert "unknown key secur" in status.status(tmp_path)[1]


def test_a_node_that_was_never_started_is_told_as_such(tmp_path: Path):
    """`fedrl flower keys node --folder` has made its policy, and no more."""
    (tmp_path / "policy.toml").touch()
    told = status.status(tmp_path)
    assert told[:2] == ["this node is not running", "it was never started: fedrl flower node"]


def test_recipes_that_wait_for_a_person_are_in_a_nodes_status(tmp_path: Path, capsys: Any):
    (tmp_path / "policy.toml").write_text('approval = "person"\n')
    node = AskedNode(tmp_path)
    node.ready(text())
    node.ready(text())
    (line,) = [one for one in status.status(tmp_path) if "yes" in one]
    assert line == f"1 recipe waits for a person's yes: fedrl flower approve {tmp_path}"
    said = [one for one in capsys.readouterr().err.splitlines() if "yes" in one]
    assert len(said) == 1  # once, whatever is asked again
    digest = approval.names(tmp_path)[0]
    assert said[0][9:] == (
        f"a recipe waits for your yes: fedrl flower approve {tmp_path} {digest[:8]}"
    )


def test_a_folder_of_neither_side_is_told(tmp_path: Path, capsys: Any):
    assert call(["flower", "status", str(tmp_path)]) == 2
    assert "has no audit log and no nodes/" in capsys.readouterr().err


def test_a_node_that_has_ended_leaves_no_word_of_what_it_does(tmp_path: Path):
    """A look that was under way at its end may still find something."""
    story = Story(Joining("hub:1", None, tmp_path / "north.key"), 0, tmp_path)
    story.write()
    assert (tmp_path / node_story.NOW).exists()
    story.end()
    story.found(True)
    assert not (tmp_path / node_story.NOW).exists()


def test_a_node_that_ended_while_it_looked_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    over, lines = threading.Event(), []

    def slow(_: Joining) -> list[Finding]:
        over.set()
        return [Finding(False, "this machine knows no hub")]

    monkeypatch.setattr(node_story, "reach", slow)
    monkeypatch.setattr(node_story, "say", lines.append)
    node_story._follow(Story(Joining("hub:9092"), 0, tmp_path), over)
    assert not lines
    assert not (tmp_path / node_story.NOW).exists()


def test_a_second_node_writes_nothing_before_it_has_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
):
    monkeypatch.setattr(running_lock, "PATIENCE_SECONDS", 0.3)
    client = NodeClient(0, tmp_path, lambda recipe: None, audit=NodeAudit(tmp_path, 0))
    with running_lock.alone(tmp_path, "taken"), pytest.raises(UserError, match="another node runs"):
        supernode.serve(supernode.SuperNode("hub:1", None, None), client)
    assert audit_log.read(tmp_path)[0] == []
    assert f"{tmp_path} is in use: waiting up to 0.3 s" in capsys.readouterr().err
