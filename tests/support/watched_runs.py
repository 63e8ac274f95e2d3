"""Run folders as runs write them, line by line, and a page that follows them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import fedrl
from fedrl.report.watch.server import WatchServer

CONFIG = """name = "demo"
seed = {seed}
rounds = {rounds}
[federation]
clients = {clients}
[algorithm]
name = "fedagent"
{settings}[world]
name = "household"
"""


class Written:
    """A run that goes on when it is told to."""

    def __init__(
        self, folder: Path, seed: int = 0, rounds: int = 8, clients: int = 5, settings: str = ""
    ) -> None:
        self.path, self.clients, self.at = folder, clients, 0
        folder.mkdir(parents=True)
        text = CONFIG.format(seed=seed, rounds=rounds, clients=clients, settings=settings)
        (folder / "config.toml").write_text(text)
        self.status("running")
        self.add("metrics.jsonl", {"round": 0, "eval/success": 0.1})

    def status(self, word: str) -> None:
        (self.path / "meta.json").write_text(json.dumps({"status": word}))

    def add(self, name: str, *lines: dict) -> None:
        with (self.path / name).open("a") as file:
            file.write("".join(json.dumps(line) + "\n" for line in lines))

    def round(self, failed: int | None = None, **metrics: float) -> None:
        """All clients take part; the one that failed says why."""
        self.at += 1
        for client in range(self.clients):
            line: dict = {"round": self.at, "client": client, "status": "ok", "train/success": 0.2}
            if client == failed:
                line = {"round": self.at, "client": client, "status": "failed", "reason": "NaN"}
            self.add("clients.jsonl", line)
        self.add("timings.jsonl", {"round": self.at, "clients": 2.0, "evaluate": 1.0})
        self.add("metrics.jsonl", {
            "round": self.at, "eval/success": 0.1 + 0.1 * self.at, "comm/bytes_up": 1e6 * self.at,
            **metrics,
        })  # fmt: skip

    def episodes(self, *won: bool, **texts: str) -> None:
        """An evaluation's, after the round that was written last: the same tasks every time."""
        self.add("episodes.jsonl", *(
            an_episode(self.at, f"task-{i}", one, **texts) for i, one in enumerate(won)
        ))  # fmt: skip


def an_episode(round: int, task: str, won: bool, **texts: str) -> dict:
    """A line of episodes.jsonl."""
    step = {"said": "go to desk 1", "command": "go to desk 1", "valid": True,
            "saw": f"You see what is there in round {round}."}  # fmt: skip
    return {
        "round": round, "task": task, "kind": "pick", "goal": f"find the mug of {task}",
        "begin": "You are in a room.", "won": won, "steps": [step], "reward": float(won),
        "left_out": 0,
    } | texts  # fmt: skip


@contextmanager
def serving(*places: Path, port: int = 0) -> Iterator[WatchServer]:
    with fedrl.watch(places, port=port) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
