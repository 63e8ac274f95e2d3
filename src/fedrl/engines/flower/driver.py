"""The driver of a run on Flower: from its settings to the engine, and to the recipe that nodes get.

The recipe that travels is the resolved configuration. Paths in it, and FEDRL_DATA, mean the node's
own (`node_recipes.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fedrl.aggregation import rules
from fedrl.aggregation.settings import Settings as Aggregate
from fedrl.config.build import packages, terms
from fedrl.config.loading import to_toml
from fedrl.config.schema import Config
from fedrl.core import agreement
from fedrl.core.own_data import Agrees
from fedrl.core.types import Algorithm
from fedrl.engines.flower import connection as connections
from fedrl.engines.flower import coordinator_audit
from fedrl.engines.flower.approval import digest
from fedrl.engines.flower.engine import FlowerEngine, Recipe


def open_engine(
    config: Config, name: str, algorithm: Algorithm, warn: Callable[[str], None], kept: int
) -> FlowerEngine:
    """`name` is that of the run's folder: nodes file their clients' states under it.

    `kept` is how many checkpoints the run keeps.
    """
    # As many states as attempts can be made since the oldest checkpoint of the run, and one more.
    keep = (kept * config.checkpoint_every + 1) * (config.federation.retries + 1) + 1
    agreed = agreement.written(algorithm.agreement()) if isinstance(algorithm, Agrees) else ()
    recipe = Recipe(name, to_toml(replace(sent(config), agree=agreed)), keep)
    here = connections.find(config.connection)
    if (registered := here.registered()) is not None:
        registered.check()
    audit = coordinator_audit.of(here, warn)
    clients = config.federation.clients
    audit.add("run", run=name, recipe=digest(recipe.text), clients=clients)
    own_noise = bool(config.privacy.noise) and config.privacy.where == "local"
    return FlowerEngine(
        algorithm, recipe, here, config.flower, warn, terms=terms(config), once=own_noise,
        audit=audit,
    )  # fmt: skip


def sent(config: Config) -> Config:
    """What nodes get of a run: what concerns only the driver stays with it.

    A node builds its algorithm again when the recipe changes, so none of it may change with how a
    run is driven (a job says its deadline itself). The nodes' processes are workers. A rule of
    aggregation is the driver's, and so is its package: nodes need not have it. The quorum travels,
    for how few plain updates become one is what a node's policy asks (`fewest_updates.py`).
    """
    quorum = config.federation.quorum if terms(config) is None else 0.5
    driven = replace(config.federation, deadline=1.0, quorum=quorum, retries=2)
    outside = rules.AGGREGATORS.find(config.aggregate.name).outside
    common = replace(
        config,
        engine="workers",
        connection="",
        out="runs",
        track=(),
        federation=driven,
        partition=replace(config.partition, folder="data", digests=()),
        aggregate=Aggregate() if outside else config.aggregate,
    )
    return replace(common, packages=packages(common))
