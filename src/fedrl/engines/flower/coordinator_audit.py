"""What the coordinator writes down: its SuperLink's and its drivers' side of the nodes' audit logs.

    link, ended     the SuperLink was started, a run is over
    registered      a node's key, from its file, and which
    revoked         a key that is in no file any more, whose node is out
    certificate     the SuperLink has taken up a new one
    activated       a node with a registered key has connected, and from where
    unknown         a request that was refused, from where, by whose key (so many a minute)
    run             a driver begins: the run's name, its recipe's digest, its clients
    joined          the node of this key is this client, and its name in the register
    left out        a node that is none, or that says another number than its key's, and why
    ready           which clients can run the recipe, and why the others cannot
    round           whose updates came, why the others' did not, whether they came as one sum

It lies beside the driver's secret. A log that cannot be written, or is damaged, stops no run: it is
the nodes' logs that speak for nodes, and the driver says that its own has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from fedrl.core.private_files import StateError
from fedrl.core.types import Failure, JsonValue, Result
from fedrl.core.update_refusal import one_line
from fedrl.engines.flower.audit_log import AuditLog
from fedrl.engines.flower.connection import Connection
from fedrl.engines.flower.owner_log import say


class CoordinatorAudit:
    """The log in the folder of `fedrl flower keys server`; None writes nothing."""

    def __init__(self, folder: Path | None, warn: Callable[[str], None] = say) -> None:
        self.log = None if folder is None or not folder.is_dir() else AuditLog(folder)
        self.warn = warn

    def add(self, event: str, **fields: JsonValue) -> None:
        if self.log is None:
            return
        try:
            self.log.add(event, **fields)
        except (OSError, StateError) as error:
            self.log = None
            self.warn(f"the coordinator's audit log ends here: {error}")

    def refuse(self, event: str, **fields: JsonValue) -> None:
        """What anybody can cause: so many a minute."""
        if self.admits(event):
            self.add(event, **fields)

    def admits(self, event: str) -> bool:
        """Whether one more of these may be written now; if not, it is counted."""
        return self.log is not None and self.log.admits(event)

    def outcomes(
        self, event: str, outcomes: Mapping[int, Result | Failure], **fields: JsonValue
    ) -> None:
        """One entry for what came of questions to several clients."""
        good = sorted(c for c, outcome in outcomes.items() if isinstance(outcome, Result))
        bad: dict[str, JsonValue] = {
            str(client): one_line(outcome.reason)
            for client, outcome in sorted(outcomes.items())
            if isinstance(outcome, Failure)
        }
        self.add(event, **fields, answered=list(good), failed=bad)


def of(connection: Connection, warn: Callable[[str], None]) -> CoordinatorAudit:
    """That of a driver: beside its secret."""
    return CoordinatorAudit(Path(connection.secret).parent if connection.secret else None, warn)
