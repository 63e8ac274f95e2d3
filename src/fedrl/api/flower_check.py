"""What a technician asks: would this node get in, and how are a node and its federation?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from fedrl.api.flower_review import needs_flower
from fedrl.core.types import UserError

if TYPE_CHECKING:
    from fedrl.engines.flower.own_check import Finding


@needs_flower
def check(
    superlink: str,
    *,
    ca: str | Path | None = None,
    key: str | Path | None = None,
    insecure: bool = False,
    folder: str | Path | None = None,
    policy: str | Path | None = None,
    data: str | Path | None = None,
    client: int | None = None,
) -> Iterator[Finding]:
    """What a node with these words would find, step by step; nothing is changed."""
    from fedrl.engines.flower import node_check, own_check

    if insecure == bool(ca and key):
        raise UserError("a node needs --ca and --key, or --insecure and neither")
    names = {"ca": ca, "key": key, "folder": folder, "policy": policy, "data": data}
    paths = {name: None if path is None else Path(path) for name, path in names.items()}
    return node_check.check(own_check.Joining(superlink, **paths, client=client))


@needs_flower
def status(folder: str | Path) -> list[str]:
    """How a node or a coordinator is, by its own folder, in lines for a person."""
    from fedrl.engines.flower import status as telling

    return telling.status(Path(folder))
