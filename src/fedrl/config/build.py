"""From settings to what they describe: a world, a method over it, and the clients that run it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from fedrl.clients.wrap import wrap
from fedrl.config import parts
from fedrl.config.schema import Config
from fedrl.core import seeding
from fedrl.core.abilities import (
    GpuUse,
    HeldApart,
    Outlined,
    ServerSamples,
    SharesGpu,
    TellsWhatIsHeld,
    sends_parameters,
)
from fedrl.core.registry import label
from fedrl.core.types import Algorithm, Tensors, UserError
from fedrl.envs import WORLDS
from fedrl.envs.client_worlds import KEPT, ClientWorlds, OwnShares, each_in_its_own
from fedrl.envs.text import DiffersByClient, PartitionedWorld, TextWorld
from fedrl.federation.async_settings import check_broadcast, check_method
from fedrl.federation.client_sampling import client_env_ids, groups
from fedrl.partition import OwnFolders, load_labels, partition
from fedrl.privacy.secure_aggregation import Terms


def build_world(config: Config, data: Path | None = None) -> Any:
    """`data` is a node's own folder, for clients that bring data of their own."""
    part = parts.world(config.world.name)
    if config.partition.strategy == "own":
        return own_world(config, part, own_folders(config, data))
    world = part.make("world.name", config.world, config.federation.clients, config.seed)
    if "text" not in part.kinds:
        return world
    shares = dealt_out(config, world)
    if isinstance(world, DiffersByClient):
        return each_in_its_own(world, shares)
    return PartitionedWorld(world, shares)


def dealt_out(config: Config, world: TextWorld) -> tuple[tuple[str, ...], ...]:
    """The ids of the tasks that each client trains on."""
    tasks, clients = world.tasks("train"), config.federation.clients
    if config.federation.kind != "centralized":
        labels = load_labels(config.partition)
        try:
            shares = partition(tasks, clients, config.partition, config.seed, labels)
        except UserError as error:
            raise UserError(f"{error} ([partition]; --partition.size and the like)") from error
        return tuple(tuple(share) for share in shares)
    everything = tuple(task.id for task in tasks)  # the whole pool, not what was dealt out of it
    if isinstance(world, DiffersByClient):  # once, and as much of it in each client's world
        return tuple(everything[client::clients] for client in range(clients))
    return (everything,) * clients


def own_folders(config: Config, data: Path | None = None) -> OwnFolders:
    """Where each client's data lies, here; without `data` this is no node."""
    folders = OwnFolders(Path(config.partition.folder), config.federation.clients, data)
    if data is None and config.engine != "flower":
        folders.of(0)  # as many as there are clients
    if data is None and not folders.public.is_dir():
        needed = config.partition.held_out == "public" or config.engine == "flower"
        if needed:
            raise UserError(
                f"partition.folder: there is no folder {folders.public}, the coordinator's own: "
                "what the model is evaluated on, and what clients' data is compared with"
            )
    if data is None and config.partition.digests:
        folders.require_unchanged(config.partition.digests, config.engine != "flower")
    return folders


def own_world(config: Config, part: parts.Part, folders: OwnFolders) -> Any:
    """Every client's world is of its own folder, opened when it is first asked for."""
    if "text" not in part.kinds:
        return part.make(
            "world.name", in_folder(config.world, None), config.federation.clients, config.seed,
            folders, config.partition, own=True,
        )  # fmt: skip

    @lru_cache(maxsize=KEPT)
    def opened(folder: Path) -> TextWorld:
        settings, clients = in_folder(config.world, folder), config.federation.clients
        made: TextWorld = part.make("world.name", settings, clients, config.seed, own=True)
        if isinstance(made, DiffersByClient):
            raise UserError(
                'partition.strategy is "own": every client has a world of its own as it is, of its '
                "own folder; let nothing else differ (world.variants)"
            )
        return made

    def client_world(client: int) -> TextWorld:
        with folders.naming(client):
            world = opened(folders.of(client))
            if not world.tasks("train"):
                raise UserError(f"{folders.of(client)} holds no tasks to train on")
            return world

    def plain() -> TextWorld:
        if not folders.public.is_dir():
            return client_world(0)
        with folders.naming():
            return opened(folders.public)

    worlds = ClientWorlds(plain, client_world, config.federation.clients)
    chosen = config.partition
    return PartitionedWorld(worlds, OwnShares(worlds), float(chosen.size), chosen.held_out)


def in_folder(world: Any, folder: Path | None) -> Any:
    """The settings of a world whose files lie in this folder."""
    source = getattr(world, "source", None)
    if source is None:
        raise UserError(
            f'partition.strategy is "own", but the world {world.name} reads no files: it has no '
            "setting `source`"
        )
    if source == "generated" or Path(source).is_absolute() or ".." in Path(source).parts:
        raise UserError(
            f'world.source is {source!r}: with partition.strategy = "own" it names what lies in '
            "each client's folder"
        )
    return world if folder is None else replace(world, source=str(folder / source))


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
    alone = all(len(group) == 1 for group in groups(config.federation))
    if (
        alone
        and config.federation.kind != "federated"
        and getattr(settings, "personal_rank", False)
    ):
        raise UserError(
            "algorithm.personal_rank is for clients that share a model, and here each learns alone "
            f'(federation.kind = "{config.federation.kind}"): set it to 0'
        )
    if getattr(settings, "optimizer_state", None) != "auto":
        return settings
    return replace(settings, optimizer_state="kept" if alone else "fresh")


def build_algorithm(config: Config, data: Path | None = None) -> Algorithm:
    """The method over its world, as its paper has it: nothing is put around its clients.

    `data` is a node's own folder, for clients that bring data of their own.
    """
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
        build_world(config, data),
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
    check_secrets(config, algorithm)
    check_precision(config, algorithm)
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


def check_precision(config: Config, algorithm: Algorithm) -> None:
    """A 127th of the largest change is little; of the largest weight or count it is not."""
    name = config.algorithm.name
    if config.flower.precision != "int8":
        return
    if sends_parameters(algorithm):
        raise UserError(
            f'flower.precision = "int8" is for changes, but {name} sends values: choose '
            '"bfloat16" or "float16"'
        )
    if isinstance(algorithm, HeldApart) and algorithm.counts and not config.privacy.secure:
        raise UserError(
            f'flower.precision = "int8" would spoil the counts of holders that {name} divides by: '
            f'choose "float16", or {algorithm.without_counts}'
        )


def check_secrets(config: Config, algorithm: Algorithm) -> None:
    """What tells of a client's data leaves its machine in secure sums alone, where a method says
    so."""
    if not isinstance(algorithm, TellsWhatIsHeld) or not algorithm.in_secret:
        return
    if config.engine == "flower" and not config.privacy.secure:
        raise UserError(
            f"{config.algorithm.name}: which rows a client changes tells what its data are about, "
            "and would leave its machine in plain: set privacy.secure = true and privacy.clip"
        )


def notes(config: Config) -> list[str]:
    """What a run's settings change of its method, where that is easily missed."""
    method, lines = config.algorithm, []
    keys = {one: one.rpartition(":")[2] for one in config.borrowed}
    # A switch is nothing that one tunes for a method.
    if tuned := [
        one for one, key in keys.items() if not isinstance(getattr(method, key, None), bool)
    ]:
        lines.append(borrowed_note(tuned, label(method.name)))
    if method.name == "fedpg-br" and method.standardize:
        lines.append(
            "algorithm.standardize scales the clients' and the server's trajectories apart, which "
            "biases FedPG-BR's correction: the paper does without"
        )
    return lines


def borrowed_note(borrowed: Sequence[str], method: str) -> str:
    """`borrowed` as a run's settings have it."""
    keys = ", ".join(one.rpartition(":")[2] for one in borrowed)
    other = borrowed[0].rpartition(":")[0]
    return (
        f"{method} runs with the recipe's {keys}, which were chosen for {other}: a fair comparison "
        "gives each method its own"
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


def build_worker(config: Config, whole: bool = True) -> Algorithm:
    """The same in a worker of a driver that reserved room on GPUs for its workers, too: `whole`
    says whether for all that they would take."""
    algorithm = build_algorithm(config)
    if isinstance(algorithm, SharesGpu):
        algorithm.take_gpu(GpuUse(learns=True, evaluates=False, reserved=True, whole=whole))
    return build_clients(config, algorithm)


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
