"""A run's configuration on both sides of Flower: the driver's engine, and a node's algorithm.

The recipe that travels is the resolved configuration. Paths in it, and FEDRL_DATA, mean the node's
own: a node reads it in its own folder, and its flags go over it. What a node refuses is in
`node_policy.py`.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from fedrl.config import schema as configs
from fedrl.config.build import build_clients, terms
from fedrl.config.flag_parsing import split_flags
from fedrl.config.schema import Config
from fedrl.core.types import Algorithm, UserError
from fedrl.engines.flower import connection as connections
from fedrl.engines.flower import node_policy
from fedrl.engines.flower.engine import Flower, Recipe
from fedrl.engines.flower.node import Client, Plan
from fedrl.engines.flower.node_policy import Policy
from fedrl.privacy import accounting, secure_aggregation
from fedrl.privacy.client_ledger import Budget
from fedrl.privacy.secure_aggregation.client import Worded
from fedrl.privacy.secure_aggregation.protocol import ProtocolError


def open_engine(
    config: Config, name: str, algorithm: Algorithm, warn: Callable[[str], None], kept: int
) -> Flower:
    """`name` is that of the run's folder: nodes file their clients' states under it.

    `kept` is how many checkpoints the run keeps.
    """
    # What concerns only the driver stays with it; the nodes' processes are workers. A node builds
    # its algorithm again when the recipe changes, so none of it may change with how a run is driven
    # (a job says its deadline itself).
    driven = replace(config.federation, deadline=1.0, quorum=0.5, retries=2)
    sent = replace(config, engine="workers", connection="", out="runs", track=(), federation=driven)
    # As many states as attempts can be made since the oldest checkpoint of the run, and one more.
    keep = (kept * config.checkpoint_every + 1) * (config.federation.retries + 1) + 1
    recipe = Recipe(name, configs.to_toml(sent), keep)
    here = connections.find(config.connection)
    if (registered := here.registered()) is not None:
        registered.check()
    own_noise = bool(config.privacy.noise) and config.privacy.where == "local"
    return Flower(algorithm, recipe, here, config.flower, warn, terms=terms(config), once=own_noise)


def read(recipe: str, flags: Sequence[str]) -> Config:
    """A recipe that came over the network, with the node's own flags over it."""
    try:
        return configs.resolve(tomllib.loads(recipe), flags)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"the recipe that was sent is not TOML: {error}") from error


def build(
    recipe: str, folder: str, data: str, flags: tuple[str, ...], fetch: bool = True
) -> Algorithm:
    """In the node's worker process: the recipe's paths are relative to the node's folder.

    Without `fetch` no library gets a model from elsewhere, whatever a model's own files name.
    """
    os.chdir(folder)
    if not fetch:
        os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    if data:
        os.environ["FEDRL_DATA"] = data
    config = read(recipe, flags)
    algorithm, common = build_clients(config), terms(config)
    return algorithm if common is None else Worded(algorithm, config.privacy, common)


def plan(
    recipe: str, folder: Path, data: str, flags: tuple[str, ...], policy: Policy | None = None
) -> Plan:
    config = read(recipe, flags)
    policy = policy or Policy(folder, own_keys(flags))
    node_policy.check(config, policy)
    _insist(config, flags)
    fetch = any(map(policy.trusts, node_policy.models(config)))
    make = partial(build, recipe, str(folder), data, flags, fetch)
    sent = config.flower
    budget = _budget(config, flags)
    reports = config.privacy.reports and not policy.trusts("privacy.reports")
    piece = int(sent.piece_mb * 1e6)
    return Plan(
        make, sent.half, piece, sent.warm, terms(config), budget, reports, config.seed
    )  # fmt: skip


def _budget(config: Config, flags: Sequence[str]) -> Budget | None:
    """A node's own ε. Its δ is its own, too: a recipe's could make any ε small."""
    own, chosen, common = dict(split_flags(flags)), config.privacy, terms(config)
    if not chosen.epsilon or "privacy.epsilon" not in own:
        return None
    delta = chosen.delta if "privacy.delta" in own else 0.0
    needed = 1 if common is None else common.needed
    return Budget(
        chosen.epsilon, delta or accounting.default_delta(1), chosen.noise,
        secure_aggregation.part(chosen.noise, needed),
    )  # fmt: skip


def own_keys(flags: Sequence[str]) -> frozenset[str]:
    return frozenset(key for key, _ in split_flags(flags))


def _insist(config: Config, flags: Sequence[str]) -> None:
    """A node whose own flags ask for privacy lets no recipe take it away again."""
    own, chosen = own_keys(flags), config.privacy
    noisy = bool(chosen.noise) and bool({"privacy.noise", "privacy.epsilon"} & own)
    asked = (chosen.secure and "privacy.secure" in own) or noisy
    if noisy and chosen.where == "central" and not chosen.secure and "privacy.where" not in own:
        raise ProtocolError(
            "its own settings ask for noise, which this recipe leaves to the server: the node "
            "needs privacy.where of its own, or the recipe privacy.secure"
        )
    for key in ("reports", "seeded"):
        if asked and getattr(chosen, key) and f"privacy.{key}" not in own:
            raise ProtocolError(f"its own settings do not allow privacy.{key} = true")


def client(
    number: int,
    folder: Path,
    data: str = "",
    flags: tuple[str, ...] = (),
    allowed: Sequence[str] = (),
    least: int = 1,
) -> Client:
    policy = Policy(folder, own_keys(flags), frozenset(allowed), least)
    made = partial(plan, folder=folder, data=data, flags=flags, policy=policy)
    return Client(number, folder, made)


def client_app() -> Any:
    """For SuperNodes that start ClientApps themselves: a process and an algorithm per message.

    Their node config says `client=3 folder="/srv/fedrl"`, and `data` where FEDRL_DATA is not set.
    """
    from flwr.app import Context, Message
    from flwr.clientapp import ClientApp

    app = ClientApp()

    @app.query()
    def answer(message: Message, context: Context) -> Message:
        node = context.node_config
        here = client(int(node["client"]), Path(str(node["folder"])), str(node.get("data", "")))
        try:
            return Message(here.answer(message.content), reply_to=message)
        finally:
            here.close()

    return app
