"""The one Flower app: what a SuperLink wants to be given before it carries messages.

It is the same for every method. The driver is its ServerApp and `fedrl flower node` its ClientApp,
so both files of the app only lead back here; a SuperNode that starts its ClientApps itself finds a
real one in `client.py`, which needs fedrl installed beside that SuperNode.
"""

from __future__ import annotations

import hashlib

from flwr.cli.build import build_fab_from_files
from flwr.supercore.fab import Fab

import fedrl

PROJECT = """\
[project]
name = "fedrl-app"
version = "{version}"
description = "Federated reinforcement learning of agents"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "fedrl"

[tool.flwr.app.components]
serverapp = "fedrl_app.server:app"
clientapp = "fedrl_app.client:app"
"""
SERVER = 'raise SystemExit("this app is driven by: fedrl run RECIPE --engine flower")\n'
CLIENT = "from fedrl.engines.flower.node_recipes import client_app\n\napp = client_app()\n"


def build() -> Fab:
    numbers = [*fedrl.__version__.split("+")[0].split("."), "0", "0"][:3]
    files = {
        "pyproject.toml": PROJECT.format(version=".".join(numbers)).encode(),
        "fedrl_app/__init__.py": b"",
        "fedrl_app/server.py": SERVER.encode(),
        "fedrl_app/client.py": CLIENT.encode(),
    }
    content = build_fab_from_files(files)[0]
    return Fab(hashlib.sha256(content).hexdigest(), content, {})
