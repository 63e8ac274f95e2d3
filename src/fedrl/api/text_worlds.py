"""What is done around text worlds and reviews: warm starts, partitions, playing, transcripts.

A world is its name, or its table as in a recipe: `{"name": "household", "rooms": "medium"}`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rich.console import Console

from fedrl.config import parts
from fedrl.config.flag_parsing import checked, fields, nearest, section, split_flags
from fedrl.core.limits import one_of
from fedrl.core.types import Json, Tables, UserError
from fedrl.envs import WORLDS

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from fedrl.analysis.partition import PartitionReport
    from fedrl.envs.parity import Line
    from fedrl.envs.text import TextWorld
    from fedrl.partition import Settings as Partition

    Section = TypeVar("Section", bound=DataclassInstance)

RECORDED = ("household", "webshop")
"""Worlds of which there are transcripts of the real engines."""
REVIEWS = "imdb"
"""The world whose warm start reads; in the others an expert plays."""

World = str | Tables


def open_world(world: World, flags: Sequence[str] = ()) -> TextWorld:
    """A text world with all its tasks; `flags` are its settings as texts (`--world.rooms …`)."""
    part, settings = _world(world, flags)
    opened: TextWorld = part.make("world", settings, 0, 0)
    return opened


def _world(world: World, flags: Sequence[str]) -> tuple[parts.Part, Any]:
    """Where it comes from, and its settings."""
    said = {"name": world} if isinstance(world, str) else dict(world)
    part = text_world(said.pop("name", ""))
    return part, _settings(part.settings, flags, said, "world.")


def text_world(name: str) -> parts.Part:
    """The text world of this name, wherever it comes from."""
    part = parts.world(name)
    if "text" not in part.kinds:
        texts = [known for known, entry in WORLDS.builtin.items() if "text" in entry.kinds]
        raise UserError(f"{name} is no text world; choose from {', '.join(texts)}, or your own")
    return part


def _settings(
    cls: type[Section], flags: Sequence[str], values: Tables, prefix: str = ""
) -> Section:
    """Settings from flags and values, nothing unknown and nothing of a wrong type."""
    hints, checked_values = fields(cls), Json()
    for key, value in values.items():
        if key not in hints:
            raise UserError(f"unknown key {prefix}{key}; {nearest(key, list(hints))}")
        checked_values[key] = checked(value, hints[key], prefix + key)
    return replace(section(cls, split_flags(flags), prefix), **checked_values)


def _split(flags: Sequence[str]) -> tuple[list[str], list[str]]:
    """Flags that are not, and that are, of the world."""
    pairs = split_flags(flags)
    words = [[f"--{key}"] if text is None else [f"--{key}={text}"] for key, text in pairs]
    of_world = [key.startswith("world.") for key, _ in pairs]
    return (
        [word for each, theirs in zip(words, of_world) if not theirs for word in each],
        [word for each, theirs in zip(words, of_world) if theirs for word in each],
    )


def warm_start(
    world: World,
    out: str | Path,
    *,
    flags: Sequence[str] = (),
    progress: bool | None = None,
    **settings: Any,
) -> Path:
    """Teach a model to act by imitating the world's expert on public tasks; its new folder.

    Of imdb, to write by reading public reviews. Settings are those of `fedrl warmstart --help`.
    """
    console = Console(highlight=False)
    console.quiet = not (progress or (progress is None and console.is_terminal))
    ours, theirs = _split(flags)
    name = world if isinstance(world, str) else world.get("name")
    if name == REVIEWS:
        from fedrl.envs.imdb import world as imdb
        from fedrl.runs import warmstart_reviews as reading

        said = {} if isinstance(world, str) else {k: v for k, v in world.items() if k != "name"}
        reviews = imdb.World(_settings(imdb.Settings, theirs, said, "world."), 0, 0)
        how = _settings(reading.Settings, ours, settings)
        return reading.warmstart(reviews, how, Path(out), console)
    from fedrl.runs import warmstart as playing

    imitation = _settings(playing.Settings, ours, settings)
    played = open_world(world, theirs)
    if "tasks" not in settings and not any(flag.split("=")[0] == "--tasks" for flag in ours):
        imitation = playing.as_many_as_there_are(played, imitation, console)
    return playing.warmstart(played, imitation, Path(out), console)


def partition_tasks(
    world: World,
    clients: int | None = None,
    *,
    seed: int = 0,
    success_rate: float | None = None,
    flags: Sequence[str] = (),
    **settings: Any,
) -> PartitionReport:
    """Deal a world's training tasks out to (100) clients as a run would, and measure how they
    differ.

    Settings are the recipe's `[partition]`: `strategy="preference", omega=0.9`. With `success_rate`
    labels are drawn, to look at the hardness partition without a file of them. With
    `strategy="own"` nothing is dealt: `folder` is looked into, and the clients are those in it.
    """
    from fedrl import partition as dealing
    from fedrl.analysis.partition import deal

    ours, theirs = _split(flags)
    how = _settings(dealing.Settings, ours, settings)
    if how.strategy == "own":
        return _own_data(world, clients, how, seed, theirs)
    if how.labels and success_rate is not None:
        raise UserError("--labels and --success-rate are two sources of labels; give one of them")
    tasks = open_world(world, theirs).tasks("train")
    labels = None
    if success_rate is not None:
        labels = dealing.draw_labels(tasks, success_rate, seed)
    said = [*(key for key, _ in split_flags(ours)), *settings]
    return deal(tasks, 100 if clients is None else clients, how, seed, labels, how.unread(said))


def _own_data(
    world: World, clients: int | None, how: Partition, seed: int, flags: Sequence[str]
) -> PartitionReport:
    """What the clients' own folders hold, each of which is opened."""
    from fedrl.analysis.partition import PartitionReport
    from fedrl.config.build import own_folders, own_world
    from fedrl.config.schema import Config
    from fedrl.envs.own_data import own_data_lines
    from fedrl.federation.client_sampling import Settings as Federation
    from fedrl.partition import client_folders, measure

    part, settings = _world(world, flags)
    count = len(client_folders(Path(how.folder))) if clients is None else clients
    config = Config(seed=seed, federation=Federation(clients=count), world=settings, partition=how)
    folders = own_folders(config)
    dealt = own_world(config, part, folders)
    lines, tasks = own_data_lines(dealt, folders), dealt.world.tasks("train")
    shares = [list(share) for share in dealt.shares]
    return PartitionReport(tasks, how, shares, measure(shares, tasks), None, (), lines)


def play_world(
    world: World | TextWorld,
    *,
    task: str | None = None,
    split: str | None = None,
    port: int = 0,
    browser: bool = True,
) -> int:
    """Play a world yourself, until you stop: the shop on a page, others in the terminal.

    The page is of this machine only; the exit code comes back.
    """
    opened = open_world(world) if isinstance(world, str | Mapping) else world
    if opened.name != "webshop" and port:
        raise UserError(f"--port is for the shop's page; {opened.name} is played in the terminal")
    chosen = split or opened.splits[min(1, len(opened.splits) - 1)]
    one_of("--split", chosen, opened.splits)
    if opened.name == "household":
        from fedrl.play.terminal import play as in_terminal

        return in_terminal(opened, chosen, task)  # type: ignore[arg-type]
    if opened.name != "webshop":
        from fedrl.play.any_world import play as by_turns

        return by_turns(opened, chosen, task)
    from fedrl.play.shop_server import serve

    return serve(opened, port, task, chosen, browser)  # type: ignore[arg-type]


def parity(
    world: str, paths: Sequence[str | Path], *, data: str | Path | None = None
) -> list[Line]:
    """Replay recorded transcripts of the real engines against ours: a line per file.

    `data` is the folder with the real data, if it is in no usual place.
    """
    files = [Path(path) for path in paths]
    one_of("world", world, RECORDED)
    name = {"household": "alfworld"}.get(world, world)
    folder = _data(None if data is None else Path(data), files[0], name)
    if world == "household":
        from fedrl.envs.household.parity import replay

        return replay(files, folder)
    from fedrl.envs.webshop.parity import replay as replay_shop

    folders = {path if path.is_dir() else path.parent: None for path in files}
    return [line for each in folders for line in replay_shop(each, folder)]


def _data(given: Path | None, transcripts: Path, name: str) -> Path:
    """Where the real data lies: said, by FEDRL_DATA, beside the transcripts, or in the cache."""
    from fedrl.datasets.fetch import root

    beside = transcripts.resolve().parent
    beside = (transcripts.resolve() if transcripts.is_dir() else beside).parent / "data" / name
    if given is not None:
        return given / name if (given / name).is_dir() else given
    if not os.environ.get("FEDRL_DATA") and beside.is_dir():
        return beside
    return root(name)
