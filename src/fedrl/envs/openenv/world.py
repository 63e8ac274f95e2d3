"""A server of OpenEnv as a text world: https://github.com/meta-pytorch/OpenEnv.

    [world]
    name = "openenv"
    url = "http://127.0.0.1:8000"      # or serve = "package.server.app:app"

A task is what `reset` gets: a seed, or an id of the environment's own from a file. The agent's
command becomes an action, and fields of the observation become what it sees (`fields`). Every
episode has a session of its own (`session`); a rollout's are stepped side by side.

Nobody is asked before the first episode, and a server that is lost costs the client that plays
there its update. On another's machine the address is the owner's: a recipe's is refused.
"""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Literal

from fedrl.core.limits import above_zero, at_least_one, not_negative
from fedrl.core.registry import absolute
from fedrl.core.types import Address, CodeName, FilePath, Json, UserError, Word
from fedrl.envs.openenv import fields
from fedrl.envs.openenv.loopback_server import SERVERS, LoopbackServer
from fedrl.envs.openenv.session import LARGEST, Answer, Place, ServerLost, Session, Sessions
from fedrl.envs.side_by_side import StepsTogether, run_all
from fedrl.envs.text import Episode, Task, Turn

SPLITS = ("public", "unseen", "train")


@dataclass(frozen=True)
class Settings:
    """Which server, which tasks, and how text becomes actions."""

    name: Literal["openenv"] = "openenv"
    # Address of a server, such as http://127.0.0.1:8000.
    url: Address = ""
    # In its place: an environment's server application, package.module:app, to start on loopback.
    serve: CodeName = ""
    # Field of an action that gets the agent's text. Empty: its only field that must be given, else
    # the text is the whole action in JSON.
    action: Word = ""
    # Fields of an observation that the agent sees. Empty: all.
    observation: tuple[Word, ...] = ()
    # Field of an observation that lists the commands which are possible, if there is one.
    commands: Word = ""
    # Field of the first observation that says the task. Empty: the environment's description.
    goal: Word = ""
    # Argument of `reset` that says which task: "seed", or another for ids of `ids`.
    task: Word = "seed"
    # File of task ids, one in a line; they are dealt to public, unseen and train in their order.
    ids: FilePath = ""
    # First seed; public, unseen and train follow each other from here.
    first_seed: int = 0
    # Tasks for warm starts, of nobody.
    public: int = 0
    # Tasks for evaluation only.
    unseen: int = 50
    # Tasks that are dealt to the clients; of a file, 0 is all others.
    train: int = 1000
    # Most commands of an episode.
    max_steps: int = 20
    # An episode is won if its rewards add up to this.
    win: float = 1.0
    # Seconds that the server may take for an answer.
    patience: float = 30.0

    def __post_init__(self) -> None:
        if bool(self.url) == bool(self.serve):
            raise UserError(
                "world.url or world.serve: name a server's address, or one to start, not both"
            )
        scheme, found, rest = self.url.partition("://")
        if self.url and not (found and rest and scheme in ("http", "https")):
            raise UserError(f"world.url is {self.url!r}; it is like http://127.0.0.1:8000")
        at_least_one(self, "world.", "unseen", "max_steps")
        not_negative(self, "world.", "first_seed", "public", "train")
        above_zero(self, "world.", "patience")
        if not self.ids:
            at_least_one(self, "world.", "train")
            if self.task != "seed":
                raise UserError(f"world.task is {self.task!r}, whose values world.ids must list")
        elif self.task == "seed":
            raise UserError("world.ids lists task ids: name reset's argument, world.task")


@dataclass(frozen=True)
class Server:
    """What is known of a server once it was asked."""

    sessions: Sessions
    action: fields.ActionFields
    description: str
    process: LoopbackServer | None


class World(StepsTogether):
    """A `TextWorld` whose episodes are played over there."""

    name = "openenv"
    splits = SPLITS

    def __init__(self, settings: Settings, clients: int = 1, seed: int = 0) -> None:
        self.settings, self.max_steps = settings, settings.max_steps
        self._values = dict(_tasks(settings))
        if settings.serve:
            SERVERS.find(settings.serve)  # is it there, and allowed on this machine?
            self._serve = absolute(settings.serve)
        self._server: Server | None = None
        self._asking = threading.Lock()

    def tasks(self, split: str) -> list[Task]:
        return [Task(id, "openenv") for id in self._values if id.startswith(f"{split}/")]

    def start(self, task: str, seed: int = 0) -> tuple[Episode, Turn]:
        return self.start_many([task], seed)[0]

    def start_many(self, tasks: Sequence[str], seed: int = 0) -> list[tuple[Episode, Turn]]:
        server = self.server
        begun = run_all(
            server.sessions.begin({self.settings.task: self._value(task)}) for task in tasks
        )
        return [self._episode(server, session, first) for session, first in begun]

    def _value(self, task: str) -> int | str:
        if task not in self._values:
            raise UserError(f"the world has no task {task!r}")
        return self._values[task]

    def _episode(self, server: Server, session: Session, first: Answer) -> tuple[Episode, Turn]:
        field = self.settings.goal
        goal = fields.shown(first.observation, [field]) if field else server.description
        told = " ".join(filter(None, (goal, server.action.hint)))
        episode = OpenEnvEpisode(told, self.settings, server.action, session)
        server.sessions.lend(episode, session)
        return episode, episode.turn(first)

    @property
    def server(self) -> Server:
        """Asked for its schemas when the first episode begins."""
        with self._asking:
            if self._server is None:
                self._server = self._meet()
            return self._server

    def _meet(self) -> Server:
        settings = self.settings
        process = LoopbackServer(self._serve) if settings.serve else None
        place = Place(process.url if process else settings.url, settings.patience)
        schema, metadata = (_get(place, page) for page in ("/schema", "/metadata"))
        action = fields.action_fields(schema and schema.get("action"), settings.action)
        described = metadata.get("description") if metadata else None
        description = described if isinstance(described, str) else "Reach the environment's goal."
        return Server(Sessions(place), action, description, process)

    def close(self) -> None:
        """End the sessions, and the server if it is ours."""
        if self._server is not None:
            self._server.sessions.close()
            if self._server.process is not None:
                self._server.process.close()
            self._server = None

    def __reduce__(self) -> tuple[type[World], tuple[Settings]]:
        """To another process without its connections."""
        return World, (self.settings,)


class OpenEnvEpisode:
    """One episode over there; its session goes back to the others with it."""

    def __init__(
        self, goal: str, settings: Settings, action: fields.ActionFields, session: Session
    ) -> None:
        self.goal, self.settings, self.action, self.session = goal, settings, action, session
        self.total = 0.0

    def step(self, command: str) -> Turn:
        return run_all([self.take(command)])[0]

    async def take(self, command: str) -> Turn:
        try:
            action = self.action.action(command)
        except fields.NoAction as error:
            return self.turn(Answer({}, 0.0, False, str(error)))
        return self.turn(await self.session.step(action))

    def turn(self, answer: Answer) -> Turn:
        self.total += answer.reward
        observation = answer.error or fields.shown(answer.observation, self.settings.observation)
        won = answer.done and self.total >= self.settings.win
        commands = fields.listed(answer.observation, self.settings.commands)
        return Turn(observation, answer.reward, answer.done, commands, {"won": won})


def _tasks(settings: Settings) -> list[tuple[str, int | str]]:
    """What `reset` gets, by task ids: a seed, or a line of the file."""
    sizes = [settings.public, settings.unseen, settings.train]
    values: Sequence[int | str]
    if settings.ids:
        try:
            lines = Path(settings.ids).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"world.ids: {settings.ids} cannot be read as text") from error
        values = list(dict.fromkeys(filter(None, map(str.strip, lines))))
        sizes[2] = settings.train or max(len(values) - sum(sizes), 1)
        if sum(sizes) > len(values):
            raise UserError(
                f"world.ids: {settings.ids} has {len(values)} tasks, and world.public, unseen and "
                f"train ask for {sum(sizes)}"
            )
    else:
        values = range(settings.first_seed, settings.first_seed + sum(sizes))
    tasks, place = [], 0
    for split, size in zip(SPLITS, sizes, strict=True):
        tasks += [(f"{split}/{value}", value) for value in values[place : place + size]]
        place += size
    return tasks


def _get(place: Place, page: str) -> Json | None:
    """A JSON page of the server; None where it has none of that name."""
    handlers = [urllib.request.ProxyHandler({})] if place.local else []
    opener = urllib.request.build_opener(*handlers)
    try:
        with opener.open(place.url.rstrip("/") + page, timeout=place.patience) as response:
            found = json.loads(response.read(LARGEST))
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise ServerLost(f"answered {error.code} for {page}") from error
    except TimeoutError as error:
        raise ServerLost(f"did not answer within {place.patience:g} s") from error
    except OSError as error:
        raise ServerLost(f"cannot be reached ({type(error).__name__})") from error
    except (ValueError, RecursionError, HTTPException) as error:
        raise ServerLost("answered what is no answer of OpenEnv") from error
    return found if isinstance(found, dict) else None
