"""`fedrl.watch`: a page that follows runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedrl.report.watch.server import WatchServer


def watch(places: Sequence[str | Path] = (), *, port: int = 0) -> WatchServer:
    """A server on loopback that follows these runs, or all in these folders (./runs, which may
    not be there yet); `url` is its address.

    `serve_forever()` answers until it is stopped.
    """
    from fedrl.report.watch.server import WatchServer

    return WatchServer([Path(place) for place in places], port)
