"""Clients on other machines: the round loop's jobs travel by Flower's SuperLink and SuperNodes.

    fedrl run (the driver)  ⇄  SuperLink  ⇄  SuperNode  ⇄  fedrl flower node  ⇄  a worker process
    round loop, checkpoint     carries        carries       its folder            the algorithm

Flower carries messages between authenticated machines. It starts none of our code: the driver takes
the place of Flower's ServerApp process and `fedrl flower node` that of its ClientApp processes, by
the interface that Flower offers to executors of its own. So a node runs the fedrl that is installed
on it and never a program that came over the network, a model stays loaded between rounds, and a
round waits for the SuperNode to ask for messages and not for processes to start.

Flower's modules are imported here and nowhere else. Before they are, its telemetry, its check for
updates and its installing of packages are switched off: a federation talks to its members only.
"""

import os

OFFLINE = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}

os.environ.update(OFFLINE)
