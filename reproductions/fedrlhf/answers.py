"""Files of answers that people might have given: as they mean them, shuffled, or one lying.

A person's answer to "is this score too high, right or too low?" follows from the score and the
rating that they feel, so that one file can answer for every score a model may show. Felt ratings
are the true ones of movies that are trained on, with the recipe's noise, drawn once per movie.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedrl.config.loading import resolve
from fedrl.core.seeding import generator
from fedrl.runs.grid import short_hash
from fedrl.runs.new_folder import new_folder
from reproductions.runner import Need

NOISE = 0.5
"""Stars: the simulated person's."""
SCORES = np.arange(1, 11) / 2
"""What a model may show, in stars."""


@dataclass(frozen=True)
class Log:
    """The answers of all clients of one seed; `flipped` is who lies in that kind."""

    kind: str
    seed: int
    clients: int
    flipped: int
    world: Mapping[str, Any]

    def place(self, folder: Path) -> Path:
        said = [self.kind, self.seed, self.clients, self.flipped, dict(self.world), NOISE]
        return folder / "answers" / f"{self.kind}-seed{self.seed}.{short_hash(said)}"

    def files(self, folder: Path) -> str:
        """As `algorithm.feedback_file` takes it."""
        return str(self.place(folder) / "{client}.jsonl")


def need(log: Log, folder: Path) -> Need:
    """The files, for runs that read them."""
    name = f"answers, {log.kind}, seed {log.seed}"
    return Need(name, log.place(folder).is_dir, partial(write, log, folder))


def write(log: Log, folder: Path) -> None:
    """One file per client; a folder appears when it is whole."""
    from fedrl.envs.movielens.world import World

    settings = resolve({"world": dict(log.world), "algorithm": {"name": "fedrlhf"}}).world
    world = World(settings, log.clients, log.seed)
    with new_folder(log.place(folder)) as half:
        for client, rated in enumerate(world.ratings):
            keys = [str(world.movies[m].id) for m in rated.movie[rated.train]]
            random = generator(log.seed, f"answers/{log.kind}", client=client)
            felt = feelings(rated.rating[rated.train], log, client)
            if log.kind == "shuffled":
                felt = random.permutation(felt)
            sign = -1.0 if log.kind == "flipped" and client == log.flipped else 1.0
            lines = [json.dumps(line) + "\n" for line in answers(keys, felt, sign)]
            (half / f"{client}.jsonl").write_text("".join(lines), encoding="utf-8")


def feelings(rating: np.ndarray, log: Log, client: int) -> np.ndarray:
    """[n], the same in every kind of log: what differs is only what is said about them."""
    random = generator(log.seed, "answers/noise", client=client)
    return rating + NOISE * random.standard_normal(len(rating))


def answers(keys: list[str], felt: np.ndarray, sign: float) -> Iterator[Mapping[str, Any]]:
    from fedrl.feedback.sources.simulated import rating_answer

    for key, rating in zip(keys, felt.tolist(), strict=True):
        for score in SCORES.tolist():
            value = sign * rating_answer(score, rating)
            yield {"question": f"rate/{key}/{score:g}", "value": value}
