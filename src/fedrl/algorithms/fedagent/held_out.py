"""Which tasks a language agent is evaluated on: the server's, and those of clients' own worlds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedrl.algorithms.fedagent.settings import Settings
from fedrl.core.limits import one_of
from fedrl.core.types import ModelName, UserError
from fedrl.envs.client_worlds import ClientWorlds, owned, owner_of
from fedrl.envs.text import Fingerprinted, Task, TextWorld, spaced
from fedrl.llm.warmstart_record import shown_among

SEEN = "seen"
"""The split with new tasks in scenes that are trained in."""


def check_own(settings: Settings, world: TextWorld) -> None:
    """Own worlds can only be evaluated in where clients have such."""
    differs = world.alike if isinstance(world, ClientWorlds) else SEEN in world.splits
    if settings.eval_own and not differs:
        raise UserError(
            f"algorithm.eval_own is {settings.eval_own}, but no client has a world of its own: set "
            "it to 0, or let the worlds differ (world.variants; in the household, scenes)"
        )


def check_more_tasks(settings: Settings, world: TextWorld, own_data: bool) -> None:
    """Further splits are there, and clients can play what the server evaluates on."""
    for split in settings.eval_splits:
        one_of("algorithm.eval_splits", split, world.splits)
        if split == settings.eval_split:
            raise UserError(f"algorithm.eval_splits: {split!r} is what algorithm.eval_split plays")
    for key in ("eval_trained", "eval_splits"):
        if own_data and getattr(settings, key):
            raise UserError(
                f"algorithm.{key} is of tasks that everybody has, and clients with data of their "
                'own may lack: leave it out (partition.held_out = "clients" tells how the model '
                "does on what they hold out)"
            )


def plain_names(world: TextWorld, shares: Sequence[Sequence[str]]) -> set[str]:
    """What is trained on, as it is called whosever world it is played in."""
    tasks = (task for share in shares for task in share)
    return {owner_of(task)[1] for task in tasks} if isinstance(world, ClientWorlds) else set(tasks)


def check_apart(
    world: TextWorld, evaluated: Sequence[Task], trained: set[str], model: ModelName
) -> None:
    """Nobody trains on what anybody is evaluated on, and the first model has seen neither."""
    public = {task.id for task in evaluated}
    if shared := public & trained:
        raise UserError(f"task {min(shared)} is both trained on and evaluated")
    for what, ids in (("evaluated", public), ("a client's", trained)):
        if shared := shown_among(model, world, ids):
            raise UserError(
                f"algorithm.model: its warm start was shown task {min(shared)}, which is {what}"
                " here; choose the world's splits (world.public, …) as the warm start did"
            )


def check_contents(world: TextWorld, evaluated: Sequence[Task], model: ModelName) -> None:
    """Of data of one's own, whose tasks are numbered by each owner: the first model has seen no
    task that is evaluated, whatever it was called then."""
    if not isinstance(world, Fingerprinted):
        return
    if seen := shown_among(model, world, [task.id for task in evaluated]):
        raise UserError(
            f"algorithm.model: its warm start was shown {len(seen)} of the {len(evaluated)} tasks "
            "that are evaluated here; hold them out of it (world.public, world.test)"
        )


def contents_in_common(worlds: ClientWorlds, client: int, evaluated: Sequence[Task]) -> int:
    """How many tasks of a client's training the model is evaluated on; 0 where nobody can tell."""
    own, public = worlds.of(client), worlds.plain
    if own is public or not isinstance(own, Fingerprinted) or not isinstance(public, Fingerprinted):
        return 0
    trained = own.fingerprints([task.id for task in own.tasks("train")])
    return len(trained & public.fingerprints([task.id for task in evaluated]))


def some(tasks: Sequence[Task], settings: Settings) -> list[Task]:
    return spaced(tasks, min(settings.eval_tasks or len(tasks), len(tasks)))


def own_tasks(
    world: ClientWorlds, owner: int, settings: Settings, public: Sequence[Task]
) -> list[Task]:
    """What a client's world or data of its own has that is not trained on; of worlds that are alike
    the very tasks that the server evaluates on (`public`), as far as they are there."""
    tasks = world.tasks_of(owner, settings.eval_split)
    if not world.alike:
        return some(tasks, settings)
    there = {task.id for task in tasks}
    return [task for task in (owned(owner, task) for task in public) if task.id in there]


def own_parts(
    world: ClientWorlds, owners: Sequence[int], settings: Settings, public: Sequence[Task],
    count: int,
) -> list[list[str]]:  # fmt: skip
    """The tasks, so many, that an evaluation plays in each of these clients' own worlds, by their
    ids.

    Clients begin at other places, so that together they play many.
    """
    parts = []
    for owner in owners:
        tasks = [task.id for task in own_tasks(world, owner, settings, public)]
        first = owner % max(len(tasks), 1)
        parts.append(spaced(tasks[first:] + tasks[:first], min(count, len(tasks))))
    return parts


def in_own_scenes(world: TextWorld, share: Sequence[str], count: int, owner: int = 0) -> list[str]:
    """New tasks, so many, in the scenes that a client trains in; none in a world without. Clients
    begin at other places."""
    if isinstance(world, ClientWorlds) or SEEN not in world.splits:
        return []
    mine = set(share)
    scenes = {task.scene for task in world.tasks("train") if task.id in mine} - {""}
    there = [task.id for task in world.tasks(SEEN) if task.scene in scenes]
    first = owner % max(len(there), 1)
    return spaced(there[first:] + there[:first], min(count, len(there)))


def mean_over_worlds(won: Sequence[bool], parts: Sequence[Sequence[str]]) -> float:
    """Every world counts the same; one that has none of the tasks does not."""
    ends = np.cumsum([len(part) for part in parts])[:-1]
    rates = [rows.mean() for rows in np.split(np.array(won, float), ends) if len(rows)]
    return float(np.mean(rates))
