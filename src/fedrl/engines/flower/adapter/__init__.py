"""Flower's API, all of it that fedrl uses: no other module imports Flower or knows its names.

    records     a heading and pieces of bytes as the content of a Flower message, and back
    arrived_answers    a node's answer as its objects come, and what is refused of them
    transfer    objects on their way, few at a time
    object_store       where a SuperLink and a SuperNode have them meanwhile
    driver      a run at a SuperLink, with the driver in the place of its ServerApp
    node        the tasks of a SuperNode, with the node in the place of its ClientApps
    supernode   the SuperNode's program
    superlink   the SuperLink's web application, its nodes' signatures, registering nodes
    app         the one Flower app that a SuperLink is given

Several files and not one, because a node does not load a SuperLink. What is built on them (polling,
the inbox, limits, retries, who may ask) is fedrl's own, one folder up.

Before Flower is imported, its telemetry, its check for updates and its installing of packages are
switched off: a federation talks to its members only.
"""

import os

OFFLINE = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}
os.environ.update(OFFLINE)

COMPONENT = "fedrl"
"""By which a SuperLink and a SuperNode know our clients."""
HOME = "flwr"
"""Folder of Flower's own files, in that of a node or server; `HOME_VARIABLE` names it to Flower."""
HOME_VARIABLE = "FLWR_HOME"
SUPERNODE = "from fedrl.engines.flower.adapter.supernode import main; main()"
"""The program of a SuperNode."""
HEARD = "heard"
"""A file in `HOME`, touched when the SuperLink has answered a SuperNode, and gone after a question
for messages that it did not."""
TURNED_AWAY = b"Failed to activate SuperNode"
"""What a SuperNode's log ends with if the SuperLink does not take it."""
SUPERNODE_POLL_SECONDS = 3.0
"""Flower's own time after a question for messages that brought none, for which it has no setting.
Twice a second it looks whether its client has answered."""
POLL_SOONER = """\
import time, types
from flwr.supernode import start_client_internal as loop
loop.time = types.SimpleNamespace(sleep=lambda seconds: time.sleep(min(seconds, {poll!r})))
"""
