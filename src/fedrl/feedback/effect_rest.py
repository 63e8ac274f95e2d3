"""What stays of `effect.json` when answers are deleted: nothing that follows from them.

That is what the model recommended before anybody had answered, and that lists were taken away:
else the page would say the same as to somebody whose answers were never learned from.
"""

from __future__ import annotations

import json


def after_deletion(data: bytes) -> bytes:
    """The file after a deletion; nothing of one that cannot be read."""
    try:
        rows = json.loads(data)
        taken = bool(rows.get("deleted") or rows.get("remains") or rows.get("answers"))
        rest = {"kind": rows["kind"], "first": rows.get("first", []), "deleted": taken}
        rest["stars"] = rows.get("stars", [])
    except (ValueError, KeyError, AttributeError):
        return b""
    return json.dumps(rest).encode()
