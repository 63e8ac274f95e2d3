"""Organisations with folders of their own, in a simulation and behind nodes of this process."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path

import pytest

from fedrl.config.build import build_algorithm
from fedrl.config.schema import Config
from fedrl.engines.flower import connection as connections
from fedrl.engines.flower import driver, node_recipes
from fedrl.engines.flower.connection import Connection
from fedrl.engines.flower.engine import FlowerEngine
from fedrl.engines.flower.policy import Policy
from fedrl.engines.flower.superlink_client import Outgoing
from fedrl.runs import train as runs
from support.flower_nodes import Inline, Net
from support.flower_runs import train
from support.toy import Toy

MEMBERS = ("north", "south", "west")


def write_lines(path: Path, lines: Iterable[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


class Nodes(Net):
    """A node per organisation, each with its own folder of data, and nothing of the others'.

    `logs` are what the nodes say to their owners, `crossed` what travelled, as it travelled.
    """

    def __init__(
        self, folder: Path, data: Iterable[Path], *flags: str, packages: tuple[str, ...] = ()
    ) -> None:
        super().__init__(Toy(), folder, 0)
        self.logs: dict[int, list[str]] = {}
        self.crossed: list[str] = []
        named = {"packages": packages}
        for client, own in enumerate(data):
            home = folder / f"node-{client}"
            home.mkdir(parents=True)
            made = partial(
                node_recipes.plan, folder=home, data=str(own), flags=flags, policy=Policy(**named)
            )
            self.logs[client] = []
            self.members[100 + client] = Inline(
                client, home, made, log=self.logs[client].append, rules=partial(Policy, **named)
            )

    def push(self, messages: list[Outgoing]) -> list[str]:
        numbers = super().push(messages)
        for number in numbers:
            if (answer := self.answers.get(number)) is not None:
                self.crossed.append(str(answer.content))
        return numbers


def on_nodes(
    config: Config | None,
    nodes: Net,
    monkeypatch: pytest.MonkeyPatch,
    path: Path | None = None,
    rounds: int = 0,
) -> Path:
    """The run that a driver of these nodes makes, or the next rounds of that at `path`.

    Paths and FEDRL_DATA are a node's while it computes, which is in this process, and come back
    afterwards.
    """
    with monkeypatch.context() as patch:
        patch.chdir(Path.cwd())
        patch.setenv("FEDRL_DATA", "")
        here = Connection("nowhere:1")
        patch.setattr(connections, "find", lambda name: here)
        patch.setattr(driver, "FlowerEngine", partial(FlowerEngine, opens=nodes.open))
        if path is None:
            assert config is not None
            return train(config)
        longer, run = runs.resume(path, ["--rounds", str(rounds)])
        runs.train(longer, run, build_algorithm(longer))
        return run.path
