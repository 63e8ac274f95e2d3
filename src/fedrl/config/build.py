"""From settings to what they describe: a world, a method over it, and the clients that run it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from fedrl.clients.wrap import wrap
from fedrl.config import parts
from fedrl.config.schema import Config
from fedrl.core import seeding
from fedrl.core.types import Algorithm, Outlined, ServerSamples, Tensors, UserError
from fedrl.envs import WORLDS
from fedrl.envs.text import PartitionedWorld
from fedrl.federation.async_settings import check_broadcast, check_method
from fedrl.federation.client_sampling import client_env_ids, groups
from fedrl.partition import load_labels, partition
from fedrl.privacy.secure_aggregation import Terms


def build_world(config: Config) -> Any:
    part = parts.world(config.world.name)
    world = part.make("world.name", config.world, config.federation.clients, config.seed)
    if "text" not in part.kinds:
        return world
    if config.federation.kind == "centralized":  # the whole pool, not what was dealt out of it
        everything = tuple(task.id for task in world.tasks("train"))
        return PartitionedWorld(world, (everything,) * config.federation.clients)
    labels = load_labels(config.partition)
    shares = partition(
        world.tasks("train"), config.federation.clients, config.partition, config.seed, labels
    )
    return PartitionedWorld(world, tuple(tuple(share) for share in shares))


def packages(config: Config) -> tuple[str, ...]:
    """`package:version:hash` of the code from outside that the run uses."""
    return parts.packages(
        {
            "algorithm": config.algorithm.name,
            "world": config.world.name,
            "aggregate": config.aggregate.name,
            "attack": config.attack.kind,
        },
        ("algorithm.", config.algorithm),
        ("world.", config.world),
    )


def settled(config: Config) -> Any:
    """The method's settings, with what "auto" means in this federation."""
    settings = config.algorithm
    if getattr(settings, "optimizer_state", None) != "auto":
        return settings
    alone = all(len(group) == 1 for group in groups(config.federation))
    return replace(settings, optimizer_state="kept" if alone else "fresh")


def build_algorithm(config: Config) -> Algorithm:
    """The method over its world, as its paper has it: nothing is put around its clients."""
    name = config.algorithm.name
    part, world = parts.method(name), parts.world(config.world.name)
    if not set(part.kinds) & set(world.kinds):
        fitting = [n for n, e in WORLDS.builtin.items() if set(part.kinds) & set(e.kinds)]
        raise UserError(
            f"world.name is {world.name!r}, which algorithm.name = {name!r} cannot play; "
            f"choose from {', '.join(fitting)}"
        )
    algorithm: Algorithm = part.make(
        "algorithm.name",
        settled(config),
        build_world(config),
        config.rounds,
        client_env_ids(config.federation),
    )
    if isinstance(algorithm, ServerSamples):
        places = config.federation.clients + 1
        algorithm.server_world = partial(
            world.make, "world.name", config.world, places, config.seed
        )
    noisy = config.privacy.noise > 0
    check_filter(config)
    config.rule.check_method(name, algorithm, noisy, config.async_buffer.size)
    if config.async_buffer.size:
        beta = getattr(config.algorithm, "beta", 1.0)
        check_method(algorithm, beta)
        check_broadcast(algorithm, first_broadcast(config, algorithm)[0], beta)
    return algorithm


def check_filter(config: Config) -> None:
    """FedPG-BR's filter knows how far apart means of so many trajectories lie."""
    rule, method = config.aggregate, config.algorithm
    if rule.name == method.name == "fedpg-br" and rule.batch != method.trajectories:
        raise UserError(
            f"aggregate.batch is {rule.batch}, but a gradient is of algorithm.trajectories = "
            f"{method.trajectories}: set both alike, or the filter is too wide or too narrow"
        )


def build_clients(
    config: Config, algorithm: Algorithm | None = None, masked: bool = False
) -> Algorithm:
    """The method with what the settings put around its clients: attacks, faults, protection.

    `masked` is for clients on machines of their own: what leaves them is for a secure sum, if the
    run has such.
    """
    method = build_algorithm(config) if algorithm is None else algorithm
    return wrap(
        method,
        config.attack,
        config.faults,
        config.privacy,
        config.federation.clients,
        config.seed,
        terms(config) if masked else None,
    )


def first_broadcast(config: Config, algorithm: Algorithm) -> tuple[Tensors, list[str]]:
    """Of round 1, and what a client needs; of a large model its shapes, without its weights."""
    state: Tensors
    needs: list[str] = []
    if isinstance(algorithm, Outlined):
        state, needs = algorithm.outline()
    else:
        state = algorithm.init(seeding.derive(config.seed, "init"))
    return algorithm.broadcast(state, 1), needs


def terms(config: Config) -> Terms | None:
    """Of a run's secure sums, the same for the driver and on every node."""
    return (
        Terms.of(config.privacy, config.federation.clients_per_round)
        if config.privacy.secure
        else None
    )
