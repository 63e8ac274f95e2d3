"""What a node tells its owner while it runs: whether it is connected, and what it is doing.

    08:01:10 nothing listens at hub:9092: is the coordinator's `fedrl flower link` running, …
    08:04:12 connected as north (client 0); waiting for work
    08:05:40 run cartpole-…: training, round 3
    08:05:52 answered after 12 s; waiting for work
    08:06:02 run cartpole-…: refused, round 1: privacy.noise is below 1 (least_noise)

What its policy does not allow is refused before any work, and never called training.

The same is kept in the node's folder (`now.json`), for `fedrl flower status`.
"""

from __future__ import annotations

import contextlib
import json
import math
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from fedrl.core.atomic_files import OWNER_ONLY, write_atomically
from fedrl.core.serialization import Damaged
from fedrl.core.update_refusal import one_line
from fedrl.engines.flower import key_folder, messages, running_lock
from fedrl.engines.flower.adapter import records
from fedrl.engines.flower.node_check import reach
from fedrl.engines.flower.own_check import Finding, Joining
from fedrl.engines.flower.owner_log import say

NOW = "now.json"
RETRY_SECONDS, LATER_SECONDS = 2.0, 30.0
BEAT_SECONDS = 10.0
IDLE = "waiting for work"
CONNECTING = "connecting"
HEARD_SECONDS = 60.0
"""A SuperNode asks for messages every 23 s, and every question is answered."""
TURNED_AWAY_SECONDS = 15.0
"""A SuperNode that was not turned away for so long, several tries, is in."""
STILL_COUNTED = (
    "the coordinator still counts an earlier connection of this key: if this node was killed, it "
    "is let in within two minutes; if not, another node runs with the same key"
)
Answer = Callable[[records.Content], records.Content]


class Now(NamedTuple):
    """What a node was doing at a time, in seconds since 1970."""

    time: float
    client: int
    name: str
    superlink: str
    connected: bool
    doing: str


class Story:
    """Of one node. Only what changes is said."""

    def __init__(
        self,
        node: Joining,
        client: int,
        folder: Path,
        unheard: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """`unheard` are the seconds since the SuperLink has answered its SuperNode."""
        self.node, self.client, self.folder, self.unheard = node, client, folder, unheard
        self.connected, self.doing, self.trouble = False, CONNECTING, ""
        self._working = False
        self._writing, self._ended = threading.Lock(), False
        self._turned_away = -math.inf

    def told(self, answer: Answer) -> Answer:
        """The same answers, with what came of work that has begun said after it."""

        def telling(content: records.Content) -> records.Content:
            if _is_work(content):
                self.found(True)  # whoever is asked something is connected
            began, what = time.monotonic(), ""
            try:
                reply = answer(content)
                what = _answered(content, reply) if self._working else ""
                return reply
            finally:
                if self._working:
                    self._working = False
                    self._turn(IDLE, f"{what}after {time.monotonic() - began:.0f} s")

        return telling

    def begins(self, asked: messages.Ready | messages.Job) -> None:
        """The node has taken this on."""
        what = "getting ready"
        if isinstance(asked, messages.Job):
            what = f"training, round {asked.round}"
        self._working = True
        self._turn(f"{_run(asked)}: {what}")

    def _turn(self, doing: str, after: str = "") -> None:
        line = doing if not after else f"answered {after}; {doing}"
        self.doing = doing
        self.write()
        say(line)

    def found(self, connected: bool, why: str = "") -> None:
        """What a look at the connection has shown."""
        if connected and not self.connected:
            self.connected, self.trouble = True, ""
            self.doing = IDLE
            if self.node.key is not None:  # a key that is kept out may be another node's
                key_folder.remember(self.node.key, self.folder)
            say(f"connected as {self.node.name} (client {self.client}); {IDLE}")
        elif not connected and (self.connected or why != self.trouble):
            self.connected, self.trouble, self.doing = False, why, why or CONNECTING
            if why:
                say(why)
        self.write()

    def turned_away(self) -> None:
        """Its SuperNode was, with a key that is registered: Flower has one of a key at a time."""
        self._turned_away = time.monotonic()
        if not self.trouble:
            self.found(False, STILL_COUNTED)

    @property
    def patient(self) -> bool:
        """Whether what keeps it out ends only when somebody does something."""
        return bool(self.trouble) and self.trouble != STILL_COUNTED

    @property
    def heard(self) -> bool:
        """Whether the SuperLink has answered its SuperNode lately; one asks nothing during work."""
        return self._working or self.unheard() < HEARD_SECONDS

    def looked(self, bad: str) -> None:
        """A look at the connection, from the address to the key; empty if all is good."""
        lately = time.monotonic() - self._turned_away < TURNED_AWAY_SECONDS
        good = not bad and not lately and self.heard
        self.found(good, bad or (STILL_COUNTED if lately else ""))

    def aside(self, line: str) -> None:
        """What its SuperNode does: of interest only where nothing else explains it."""
        if not self.trouble:
            say(line)

    def write(self) -> None:
        now = Now(
            round(time.time(), 1), self.client, self.node.name, self.node.superlink,
            self.connected, self.doing,
        )  # fmt: skip
        with self._writing, contextlib.suppress(OSError):  # a full disk stops the node elsewhere
            if not self._ended:
                write_atomically(self.folder / NOW, json.dumps(now._asdict()).encode(), OWNER_ONLY)

    def end(self) -> None:
        """The node does nothing any more, whatever a look that is under way still finds."""
        with self._writing, contextlib.suppress(OSError):
            self._ended = True
            (self.folder / NOW).unlink(missing_ok=True)


@contextlib.contextmanager
def telling(story: Story, begin: Callable[[], None] = lambda: None) -> Iterator[Story]:
    """Look at the connection from time to time, until the node ends. What `begin` finds wrong in
    the folder, which is this node's alone by then, is told before anybody is called."""
    over = threading.Event()
    # Two would take turns with one client's state and secret.
    taken = (
        f"--folder {story.folder}: another node runs in it; a machine in several federations has a "
        "folder for each"
    )
    with running_lock.alone(story.folder, taken, running_lock.PATIENCE_SECONDS, say):
        thread = threading.Thread(target=_follow, args=(story, over), daemon=True)
        try:
            begin()
            thread.start()
            yield story
        finally:
            over.set()
            story.end()


def _follow(story: Story, over: threading.Event) -> None:
    """All steps until it is connected, ever more seldom: a refusal is a line in the coordinator's
    log. Then only whether somebody listens, which costs nobody, or at once if its SuperNode has
    lost the SuperLink."""
    pause = RETRY_SECONDS
    while not over.is_set():
        heard = story.heard
        listening = story.connected and heard
        findings = _until_listening(story.node) if listening else list(reach(story.node))
        if over.is_set():  # the look took long, and a node that has ended says nothing
            return
        bad = next((one.what for one in findings if not one.good), "")
        story.looked(bad)
        pause = RETRY_SECONDS if story.connected else min(2 * pause, LATER_SECONDS)
        end = time.monotonic() + (LATER_SECONDS if story.connected else pause)
        beat = BEAT_SECONDS if story.connected else RETRY_SECONDS
        while (rest := end - time.monotonic()) > 0 and not over.wait(min(rest, beat)):
            story.write()
            if story.heard != heard:
                break


def _until_listening(node: Joining) -> list[Finding]:
    found = []
    for finding in reach(node):
        found.append(finding)
        break
    return found


def _is_work(content: records.Content) -> bool:
    """Whether a message asks for what takes time."""
    try:
        text = records.heading(content)
        asked = messages.from_json(text, messages.Who, messages.Ready, messages.Job, messages.Step)
    except Damaged:
        return False
    return isinstance(asked, messages.Ready | messages.Job)


def _answered(asked: records.Content, reply: records.Content) -> str:
    """What was answered to work, where that is no result of it."""
    if not messages.from_json(records.heading(reply), messages.Answer).reason:
        return ""
    text = records.heading(asked)
    job = isinstance(messages.from_json(text, messages.Ready, messages.Job), messages.Job)
    return "that there is no update, " if job else "that it is not ready, "


def _run(asked: messages.Ready | messages.Job) -> str:
    return f"run {one_line(asked.run)[:100]}"


def not_done(asked: messages.Asked, refused: bool) -> str:
    """Of what was asked for and not given: whether it was refused, or tried in vain."""
    if isinstance(asked, messages.Step):
        return f"a secure sum: {'refused' if refused else 'no update'}"
    if isinstance(asked, messages.Ready):
        return f"{_run(asked)}: {'refused' if refused else 'not ready'}"
    return f"{_run(asked)}: {'refused' if refused else 'no update'}, round {asked.round}"
