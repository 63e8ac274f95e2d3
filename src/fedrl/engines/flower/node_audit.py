"""What a node writes down of every answer, before it leaves: who asked for what, and what was told.

    start     the node was started: by which policy, for which coordinator
    policy    its policy has changed: the keys that differ from the defaults
    ready     it said that it can run a recipe
    update    an update left as it is, and its bytes
    keys, letters, masked, agreed, opened    its steps of a secure sum, and who is in it
    refused   it did not do what it was asked for, and why
    failed    its client gave no update, and what the coordinator was told of that
    approved, rejected    a person said so to a recipe (`approval.py`)

`epsilon` and `charges` are what its own ledger has counted by then, `noise` the multiplier of what
left. A ledger with fewer charges than the log knows was put back, and the node answers nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from fedrl.core.private_files import StateError
from fedrl.core.types import Json, JsonValue
from fedrl.core.update_refusal import one_line
from fedrl.engines.flower import audit_log, messages
from fedrl.engines.flower.adapter import records
from fedrl.engines.flower.approval import digest
from fedrl.engines.flower.audit_log import AuditLog
from fedrl.engines.flower.policy import Policy
from fedrl.privacy.client_ledger import Spent

GAVE = ("update", "masked")
"""Entries that tell of numbers which left the node."""
STEPS = {"share": "letters", "mask": "masked", "agree": "agreed", "unmask": "opened"}
LONGEST = 100
"""Characters of a run's name."""


def last_start(folder: Path) -> Json:
    """The entry of the node's last start; empty if it never was started in this folder."""
    entries, _, _ = audit_log.read(folder)
    return next((e for e in reversed(entries) if e.get("event") == "start"), {})


class Told(NamedTuple):
    """An answer, what the audit log calls it, and what its owner reads beside it."""

    heading: messages.Answer
    body: records.Sealed
    event: str
    own: str = ""


class NodeAudit:
    """The log of the node of one client; `coordinator` is the digest of its CA's key."""

    def __init__(self, folder: Path, client: int, coordinator: str = "") -> None:
        self.log = AuditLog(folder)
        self.client, self.coordinator = client, coordinator
        self._policy = ""
        self._key = ""
        self._charges: int | None = None

    def started(self, version: str, peers: int | None, key: str = "") -> None:
        """`StateError` if the log is damaged: it is for its owner to look into first. `key` is the
        digest of the node's own, empty where it has none."""
        self._key = key
        known: dict[str, JsonValue] = {} if peers is None else {"peers": peers}
        known |= {"key": key} if key else {}
        self.log.add(
            "start", client=self.client, version=version, coordinator=self.coordinator, **known
        )

    def keyed(self, key: str) -> None:
        """With which key it goes on, if its owner has put another one in the place of the first."""
        if key != self._key:
            self._key = key
            self.log.add("key", key=key)

    def ruled(self, policy: Policy) -> None:
        """By which policy it goes from now on."""
        if policy.digest != self._policy:
            self.log.add("policy", policy=policy.digest, said=policy.said())
            self._policy = policy.digest

    def answered(
        self,
        event: str,
        job: messages.Job | messages.Ready | None,
        reason: str = "",
        own: str = "",
        **fields: JsonValue,
    ) -> None:
        """`job` is what was asked for, or what began the sum that a step was of; `own` is beside
        the reason, and travels nowhere."""
        about: dict[str, JsonValue] = {"coordinator": self.coordinator[:16]}
        if job is not None:
            about |= {"run": one_line(job.run)[:LONGEST], "recipe": digest(job.recipe)}
        if isinstance(job, messages.Job):
            about |= {"round": job.round, "attempt": job.attempt}
        if reason:
            about |= {"own": one_line(own)} if own else {}
            self.log.refuse(event, **about, reason=one_line(reason))  # as the driver reads it
        else:
            self.log.add(event, **about, **fields)

    def counted(self, spent: Spent) -> dict[str, JsonValue]:
        """For an entry; `StateError` if the ledger has forgotten what the log knows."""
        if self._charges is None:
            self._charges = self.log.highest("charges")
        if spent.answers < self._charges:
            raise StateError("its ledger of what it has answered is older than its audit log")
        self._charges = spent.answers
        return {"epsilon": spent.epsilon, "charges": spent.answers}
