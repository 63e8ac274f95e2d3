"""What joining brings a client: the federation's model beside the client's own training alone.

    start        the model that the run began with
    federated    the model that the federation made
    alone        the same method on this client's data alone, for as many rounds as the client took
                 part in until that model was made: the same work of this client, from the same
                 start, with nobody's noise and no server's optimiser. Who learns alone keeps Adam's
                 moments between rounds, unless the recipe says otherwise

A node has the model that it was sent last, which comes from the rounds before that; a simulation
has the model of the run's end.

All three are judged on what this client holds out, by the same random numbers, so their scores are
compared task by task: success, or the return where rewards are numbers, as `fedrl eval` has it.
Nothing is sent anywhere: this is for the client to know.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedrl import privacy
from fedrl.aggregation.settings import Settings as Aggregate
from fedrl.clients import attacks, faults
from fedrl.config.build import build_algorithm, own_folders
from fedrl.config.loading import as_dict, read_recipe, resolve
from fedrl.config.schema import Config
from fedrl.core import seeding
from fedrl.core.intervals import interval
from fedrl.core.own_data import JudgesEpisodes, JudgesOwn
from fedrl.core.types import Algorithm, Job, Tensors, UserError
from fedrl.federation import async_settings
from fedrl.federation.client_sampling import Settings as Federation
from fedrl.runs import train as runs
from fedrl.runs.evaluate import newest
from fedrl.runs.main_metric import pays_numbers
from fedrl.runs.read import flatten
from fedrl.runs.run_dir import RunDir, require_run


@dataclass(frozen=True)
class Member:
    """A client of a run: its data, what it was sent last and has kept, its number of rounds."""

    config: Config
    client: int
    data: Path
    broadcast: Tensors
    state: Tensors | None
    rounds: int


@dataclass(frozen=True)
class Joining:
    """Scores of every held-out task [n], means over evaluations; alone for `rounds` rounds.

    `measure` is what their mean is called. Where that is the return, `success` stands beside it, by
    model.
    """

    client: int
    rounds: int
    start: np.ndarray
    federated: np.ndarray
    alone: np.ndarray
    measure: str = "mean score"
    success: Mapping[str, float] | None = None

    def gain(self) -> tuple[float, float]:
        """Of the federation's model over the one alone: mean, and half of a 95% interval over
        tasks (the two models as they are: other seeds would make others)."""
        mean, half = interval(self.federated - self.alone)
        return float(mean), float(half)


def of_run(path: Path, client: int) -> Member:
    """A client of a simulation."""
    require_run(path)
    config = resolve(read_recipe(path / "config.toml"))
    _require_own(config)
    if not 0 <= client < config.federation.clients:
        raise UserError(
            f"--client is {client}; clients are numbered 0 to {config.federation.clients - 1}"
        )
    snapshot = newest(RunDir(path).checkpoints(), config)
    if snapshot is None:
        raise UserError(f"{path} has no whole checkpoint")
    lines = (path / "clients.jsonl").read_text().splitlines()
    told = [record for record in map(json.loads, lines) if record["client"] == client]
    rounds = {record["round"] for record in told if record["status"] == "ok"}
    if not rounds:
        raise UserError(f"client {client} took part in no round of {path}")
    algorithm = build_algorithm(config)
    broadcast = algorithm.broadcast(snapshot.states[0], snapshot.round + 1)
    kept = snapshot.clients.get(client)
    data = own_folders(config).of(client)
    return Member(config, client, data, broadcast, kept, len(rounds))


def joining(member: Member, out: Path, evaluations: int = 3, progress: bool = True) -> Joining:
    """Train alone in a new run under `out`, then judge all three models."""
    if evaluations < 1:
        raise UserError(f"--evaluations is {evaluations}; it must be at least 1")
    _require_own(member.config)
    if not member.rounds:
        raise UserError(
            "the model that this client was sent last comes from no round of its own yet: ask "
            "again when it has taken part in one more"
        )
    config = alone(member, out)
    algorithm = build_algorithm(config)
    if not isinstance(algorithm, JudgesOwn):
        raise UserError(
            f"{config.algorithm.name} has no held-out data of a client's own to be judged on"
        )
    first = algorithm.broadcast(algorithm.init(seeding.derive(config.seed, "init")), 1)
    start = _scores(algorithm, first, None, config.seed, evaluations)
    if not start.size:
        raise UserError(f"client {member.client} holds nothing out to be judged on")
    run = runs.start(config, algorithm)
    last = runs.train(config, run, algorithm, progress=progress)
    own = algorithm.broadcast(last.states[0], config.rounds + 1)
    joined = build_algorithm(  # with what a member keeps for itself
        replace(
            config,
            algorithm=_of_one(member.config.algorithm, member.client),
            federation=Federation(clients=1),
        )
    )
    federated = _scores(joined, member.broadcast, member.state, config.seed, evaluations)
    alone_ = _scores(algorithm, own, last.clients.get(0), config.seed, evaluations)
    judged = {"start": start, "federated": federated, "alone": alone_}
    who = member.client, member.rounds
    if not isinstance(algorithm, JudgesEpisodes):
        return Joining(*who, *(score for (score,) in judged.values()))
    won = [scores[1] for scores in judged.values()]
    if not pays_numbers(flatten(as_dict(config))):
        return Joining(*who, *won, measure="success")
    rates = {model: float(scores[1].mean()) for model, scores in judged.items()}
    paid = [scores[0] for scores in judged.values()]
    return Joining(*who, *paid, measure="mean return", success=rates)


def _scores(
    algorithm: Algorithm, broadcast: Tensors, state: Tensors | None, seed: int, evaluations: int
) -> np.ndarray:
    """Of each held-out item the score, or what it was paid and whether it was won [1 or 2, n]."""
    drawn = (seeding.derive(seed, "joining", number) for number in range(evaluations))
    jobs = [Job(0, broadcast, state, each) for each in drawn]
    if isinstance(algorithm, JudgesEpisodes):
        return np.mean([algorithm.judge_episodes(job) for job in jobs], axis=0)
    assert isinstance(algorithm, JudgesOwn)
    return np.mean([[algorithm.judge(job)] for job in jobs], axis=0)


def alone(member: Member, out: Path) -> Config:
    """The run of this client by itself: its folder is the only one, and nobody is protected."""
    config, place = member.config, out / "clients" / str(member.client)
    place.mkdir(parents=True, exist_ok=True)
    link = place / "own"
    link.unlink(missing_ok=True)  # it may lead to other data
    link.symlink_to(member.data.resolve(), target_is_directory=True)
    method: Any = config.algorithm
    if getattr(method, "personal_rank", 0):  # alone, all of the model is its own
        method = replace(method, personal_rank=0)
    if hasattr(method, "server_optimizer"):  # there is no server
        method = replace(method, server_optimizer="sgd", server_lr=1.0)
    return replace(
        config,
        name=f"alone-{member.client}",
        out=str(out),
        rounds=member.rounds,
        engine="inprocess",
        connection="",
        eval_every=member.rounds,
        checkpoint_every=member.rounds,
        track=(),
        agree=(),
        algorithm=_of_one(method, member.client),
        federation=Federation(kind="local", clients=1),
        partition=replace(config.partition, folder=str(place), held_out="clients", digests=()),
        async_buffer=async_settings.Settings(),
        aggregate=Aggregate(),
        privacy=privacy.Settings(),
        faults=faults.Settings(),
        attack=attacks.Settings(),
    )


def _of_one(method: Any, client: int) -> Any:
    """Settings of a method for one of its clients."""
    weights = getattr(method, "lam", ())
    return replace(method, lam=(weights[client],)) if len(weights) > 1 else method


def _require_own(config: Config) -> None:
    if config.partition.strategy != "own":
        raise UserError(
            f'partition.strategy is "{config.partition.strategy}": only a client that brings data '
            'of its own ("own") can ask what joining brings it'
        )
    if config.federation.kind != "federated":
        raise UserError(
            f'federation.kind is "{config.federation.kind}": nobody joined anybody in this run'
        )
