"""Nodes as `fedrl flower node` makes them, asked one thing at a time, and recipes to ask for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tomli_w

from fedrl.config.build import build_algorithm
from fedrl.config.loading import resolve
from fedrl.core import seeding, serialization
from fedrl.core.types import Json, Tensors
from fedrl.engines.flower import audit_log, messages, node_recipes
from fedrl.engines.flower.adapter import records
from fedrl.engines.flower.policy import Flags
from fedrl.privacy.secure_aggregation.identity import Identity
from support.flower_nodes import Inline

CLIENTS = 5
SMALL = {
    "rounds": 1,
    "engine": "workers",
    "federation": {"clients": CLIENTS},
    "algorithm": {"name": "pavg", "local_steps": 1, "eval_episodes": 1},
    "world": {"name": "random_mdp", "horizon": 5},
}
SECRET = {"privacy": {"clip": 0.5, "secure": True}}
RATINGS = {"algorithm": {"name": "fedrlhf"}, "world": {"name": "movielens"}}
TEXTS = {"algorithm": {"name": "fedrlhf-text"}, "world": {"name": "imdb"}}
QHD = {"algorithm": {"name": "fedqhd", "encoders": "own"}, "world": {"name": "cartpole-v1"}}


def merged(*parts: dict) -> dict:
    """Later parts go over earlier ones; another method or world begins anew."""
    whole: dict = {}
    for part in parts:
        for key, value in part.items():
            more = isinstance(value, dict) and "name" not in value
            whole[key] = whole.get(key, {}) | value if more else value
    return whole


def text(*parts: dict) -> str:
    """As a driver that checks nothing would write it."""
    return tomli_w.dumps(merged(SMALL, *parts))


def broadcast(*parts: dict) -> Tensors:
    """What a driver sends of such a recipe in round 1."""
    algorithm = build_algorithm(resolve(merged(SMALL, *parts)))
    return algorithm.broadcast(algorithm.init(0), 1)


class AskedNode:
    """A node as `fedrl flower node` makes it, which computes here; `said` is its own log."""

    def __init__(
        self,
        folder: Path,
        *flags: str,
        number: int = 0,
        identity: Identity | None = None,
        coordinator: str = "",
        **rules: object,
    ) -> None:
        said = Flags(**rules)  # type: ignore[arg-type]
        made = node_recipes.client(number, folder, "", flags, said, identity, coordinator)
        self.said: list[str] = []
        self.refused = False  # whether its last answer was one that it would give again
        self.client = Inline(
            number,
            folder,
            made.plan,
            self.said.append,
            audit=made.audit,
            rules=made.rules,
            identity=made.identity,
        )

    def reason(self, recipe: str, **fields: object) -> str:
        """Why there is no update; empty if there is one."""
        sent = fields.pop("sent", {"x": np.zeros(1)})
        pieces = serialization.cut(serialization.pack(sent), 100)  # type: ignore[arg-type]
        seed = seeding.local(resolve({}).seed, 0, 0, self.client.number)
        job = {"seed": seed, "run": "run", "state": "", "keep": 2, "deadline": 0.0} | fields
        digest = serialization.checksum(pieces)
        heading = messages.Job(
            messages.nonce(), self.client.number, recipe=recipe, digest=digest, **job
        )  # type: ignore[arg-type]
        return self._asked(heading, pieces)

    def ready(self, recipe: str) -> str:
        """Why it is not ready; empty if it is."""
        pieces = serialization.cut(serialization.pack({}), 100)
        digest = serialization.checksum(pieces)
        heading = messages.Ready(messages.nonce(), self.client.number, "run", recipe, digest)
        return self._asked(heading, pieces)

    def step(self, exchange: str, step: str) -> str:
        pieces = serialization.cut(serialization.pack({}), 100)
        digest = serialization.checksum(pieces)
        heading = messages.Step(messages.nonce(), self.client.number, exchange, step, digest)
        return self._asked(heading, pieces)

    def _asked(self, heading: messages.Asked, pieces: list[bytes]) -> str:
        content = records.content(messages.to_json(heading), records.body(pieces))
        answer = messages.from_json(records.opened(self.client.answer(content))[0], messages.Answer)
        self.refused = answer.refused
        return answer.reason

    def entries(self) -> list[Json]:
        """Its audit log, which is whole."""
        found, damage, _ = audit_log.read(self.client.folder)
        assert damage == []
        return found
