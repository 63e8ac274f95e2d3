"""A node's policy as it is now: its file may change while the node runs."""

from __future__ import annotations

import time
from pathlib import Path

from fedrl.core.types import UserError
from fedrl.engines.flower.node_audit import NodeAudit
from fedrl.engines.flower.policy import Flags, Policy, Unreadable, parsed, text_of

SETTLE_SECONDS = 0.5
"""That a changed policy must stay as it is: an editor may empty a file before it writes it."""


class Rules:
    """A node's policy as it is now: the file, read anew each time, and the command line over it.

    A file that was there and is gone is no policy of defaults, and neither is half of one.
    """

    def __init__(self, file: Path, said: Flags, audit: NodeAudit) -> None:
        self.file, self.said, self.audit = file, said, audit
        self._text: str | None = None
        self._begun = False

    def __call__(self) -> Policy:
        try:
            policy = self._read()
        except UserError as error:
            raise Unreadable(str(error)) from error
        self.audit.ruled(policy)
        return policy

    def _read(self) -> Policy:
        text = text_of(self.file)
        if self._begun and text != self._text:
            time.sleep(SETTLE_SECONDS)
            if text_of(self.file) != text:
                raise UserError(f"{self.file} is being written: nothing is answered meanwhile")
            if text is None:
                raise UserError(f"{self.file} is gone: nothing is answered until it is back")
        policy = self.said.over(Policy() if text is None else parsed(text, self.file))
        self._begun, self._text = True, text
        return policy

    def data(self, policy: Policy) -> str:
        """The client's own data; paths of the file begin in its folder."""
        return str((self.file.parent / policy.data).resolve()) if policy.data else ""
