"""Small federations of ratings."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from fedrl.algorithms.fedrlhf.ratings.algorithm import FedRLHF, Settings
from fedrl.envs.movielens import world as movielens
from fedrl.envs.movielens.world import World

WORLD = movielens.Settings(users=40, movies=120, ratings=50, least=10)


CLIENTS = 4


def world(seed: int = 0, clients: int = CLIENTS, **changes) -> World:
    return World(dataclasses.replace(WORLD, **changes), clients, seed)


def built(
    found: World | None = None, client_env_ids: Sequence[Sequence[int]] = (), **settings
) -> FedRLHF:
    found = found or world()
    held = client_env_ids or [[c] for c in range(found.clients)]
    return FedRLHF(Settings(**settings), found, held)
