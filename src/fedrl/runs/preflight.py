"""What is looked at before a run has a folder, or goes on: whether its model, its world, its data
and its connection are there and fit. What does not is one line, and nothing is written."""

from __future__ import annotations

import os

from fedrl.config import parts
from fedrl.config.build import own_folders
from fedrl.config.schema import Config
from fedrl.core import agreement, seeding
from fedrl.core.abilities import GpuUse, SharesGpu, WarmUp
from fedrl.core.own_data import Agrees, ComparesContents
from fedrl.core.registry import is_file
from fedrl.core.types import Algorithm, UserError
from fedrl.engines.flower import connection as connections
from fedrl.envs.own_data import own_data_lines
from fedrl.envs.simulated import SimulatedWorld, require_repeats
from fedrl.envs.text import PartitionedWorld
from fedrl.federation.client_sampling import client_env_ids, groups
from fedrl.runs.open_engine import flower_driver


def clients_at_a_time(config: Config) -> int:
    """Clients of a round."""
    return sum(
        min(len(group), config.federation.cohort or len(group))
        for group in groups(config.federation)
    )


def check_model(config: Config, algorithm: Algorithm) -> None:
    """Load the language model, if one trains: it, its device or an extra may be missing."""
    take_gpu(config, algorithm)
    if hasattr(config.algorithm, "model") and isinstance(algorithm, WarmUp):
        algorithm.warm_up()


def take_gpu(config: Config, algorithm: Algorithm) -> bool:
    """Where a language model computes on a GPU, wait for room there: for this process and for its
    workers, whose clients learn. What could never fit is refused. Whether there was room for all
    that would be taken."""
    if not isinstance(algorithm, SharesGpu):
        return True
    workers = 0
    if config.engine == "workers":
        workers = min(config.workers or os.cpu_count() or 1, clients_at_a_time(config))
    return algorithm.take_gpu(GpuUse(config.engine == "inprocess", workers=workers))


def check_own_data(config: Config, algorithm: Algorithm) -> None:
    """Where clients bring their own: whether what must agree does. Nodes say it themselves."""
    if (
        config.partition.strategy != "own"
        or config.engine == "flower"
        or not isinstance(algorithm, Agrees)
    ):
        return
    agreed = agreement.written(algorithm.agreement())
    folders = own_folders(config)
    for client in range(config.federation.clients):
        agreement.require(algorithm, agreed, client, folders.named(client))
    check_apart(config, algorithm)


def check_apart(config: Config, algorithm: Algorithm) -> None:
    """Nobody trains on what the model is evaluated on, whatever it is called in each folder."""
    if not isinstance(algorithm, ComparesContents):
        return
    folders = own_folders(config)
    for client in range(len(client_env_ids(config.federation))):
        if count := algorithm.contents_in_common(client):
            raise UserError(
                f"{folders.named(client)} trains on {count} of the tasks that the model is "
                f"evaluated on: take them out of its folder or of {folders.public}"
            )


def own_data(config: Config, algorithm: Algorithm) -> list[str]:
    """What lies in the folders of clients who bring their own text worlds, where these are here."""
    dealt = getattr(algorithm, "dealt", None)
    if not isinstance(dealt, PartitionedWorld) or not dealt.own:
        return []
    if config.engine == "flower":
        return ["not looked at: what the clients' own folders hold"]
    lines = own_data_lines(dealt, own_folders(config))
    check_apart(config, algorithm)
    return lines


def check_world(config: Config, algorithm: Algorithm) -> None:
    """Play a world of one's own for a moment: its episodes must come again from their seeds."""
    world = getattr(algorithm, "world", None)
    if parts.world(config.world.name).entry.outside and isinstance(world, SimulatedWorld):
        require_repeats(world, seeding.derive(config.seed, "world/repeats"))


def check_connection(config: Config) -> None:
    """Say what is wrong with it before there is a folder."""
    if config.engine == "flower":
        flower_driver()
        names = (config.algorithm.name, config.world.name, config.attack.kind)
        for name in (*names, *parts.rewards(config.world)):
            if is_file(name):
                raise UserError(
                    f'{name} is a file, and engine = "flower" takes installed packages only: '
                    "`fedrl new` makes one"
                )
        connections.find(config.connection)
