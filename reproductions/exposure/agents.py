"""FedAgent under attack: which tasks a client trained on, and a pin that only one of them knows.

Every client has a fixed pool of tasks and trains on a random half of it; the run's seed says which.
The statistic of a record is the logit of its right answer's probability, log p − log(1 − p), as
Carlini et al. (2022) have it: under the final model, or by how much a client's change or the mean
of a round raises it.

A canary is a pin: a task whose right answer is three digits that nothing else tells. All thousand
pins are ranked by their log-probability, or by how much that was raised.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from fedrl.algorithms.fedagent.algorithm import FedAgent, build
from fedrl.config.build import settled
from fedrl.config.schema import Config
from fedrl.core import tree
from fedrl.core.seeding import generator
from fedrl.core.types import Json, Tables, Tensors
from fedrl.envs.prompts.world import Prompts
from fedrl.envs.text import PartitionedWorld
from fedrl.federation.client_sampling import client_env_ids
from fedrl.llm.rl.batches import to_rows
from fedrl.llm.rl.logprobs import answer_logprobs, hidden_states, log_distributions
from fedrl.llm.rollout import Sample
from reproductions.exposure import digits
from reproductions.exposure.attacks import exposure
from reproductions.exposure.watching import Seen, watch

REWARD = "reproductions.exposure.digits:right_places"
Floats = NDArray[np.float64]


def source(config: Config, how: Tables, folder: Path, secrets: Sequence[digits.Row]) -> Config:
    """The recipe with data of its own in this folder."""
    sizes = {name: int(how[name]) for name in ("public", "test")}
    sizes["train"] = config.federation.clients * int(how["pool"])
    path = digits.write(folder, sizes, [pin for pin in secrets for _ in range(how["repeats"])])
    world = replace(config.world, source=str(path), reward=(REWARD,), category="kind")
    return replace(config, world=world)


def shares(
    clients: int, pool: int, repeats: int, seed: int
) -> tuple[NDArray[np.bool_], NDArray[np.int64], list[list[int]]]:
    """Which records are trained on [records], which of its two pins each client has [clients], and
    every client's rows of train.jsonl."""
    random = generator(seed, "exposure/agents")
    member = random.random(clients * pool) < 0.5
    coin = random.integers(2, size=clients)
    held = []
    for client in range(clients):
        own = range(client * pool, (client + 1) * pool)
        first = clients * pool + (2 * client + int(coin[client])) * repeats
        held.append([i for i in own if member[i]] + list(range(first, first + repeats)))
    return member, coin, held


def measure(config: Config, how: Tables) -> Json:
    """One run, and what an attack sees of its records and pins."""
    with tempfile.TemporaryDirectory() as folder:
        secrets = digits.pins(config.federation.clients, config.seed)
        return attacked(source(config, how, Path(folder), secrets), how, secrets)


def attacked(config: Config, how: Tables, secrets: Sequence[digits.Row]) -> Json:
    clients, pool = config.federation.clients, int(how["pool"])
    member, coin, held = shares(clients, pool, int(how["repeats"]), config.seed)
    world = Prompts(config.world)
    name = world.tables["train"].id
    dealt = PartitionedWorld(world, [[name(i) for i in rows] for rows in held])
    algorithm = build(settled(config), dealt, config.rounds, client_env_ids(config.federation))
    seen = watch(config, algorithm)
    rows = [world.row(name(i)) for i in range(clients * pool)]
    listened = Listener(algorithm)

    def logits(theta: Tensors, client: int | None) -> Floats:
        some = rows if client is None else rows[client * pool : (client + 1) * pool]
        return listened.logits(theta, [(str(r["prompt"]), str(r["answer"])) for r in some])

    def pins(which: NDArray[np.int64]) -> Callable[[Tensors, int | None], Floats]:
        """Log-probabilities of all pins [clients, 1000], or of one client's [1, 1000]."""

        def told(theta: Tensors, client: int | None) -> Floats:
            some = range(clients) if client is None else (client,)
            return np.array([listened.pins(theta, secrets[2 * k + which[k]]["prompt"])
                             for k in some])  # fmt: skip

        return told

    def bits(which: NDArray[np.int64]) -> dict[str, list[float]]:
        scores = views(seen, pins(which), int(how["round"]))
        right = [int(secrets[2 * k + which[k]]["answer"]) for k in range(clients)]
        return {view: [exposure(s, r) for s, r in zip(rows, right, strict=True)]
                for view, rows in scores.items()}  # fmt: skip

    statistics = views(seen, logits, int(how["round"]))
    return {
        "member": "".join("01"[int(m)] for m in member),
        "statistics": {view: numbers.tolist() for view, numbers in statistics.items()},
        "canaries": bits(coin),
        "controls": bits(1 - coin),
        "utility": {k: seen.metrics[k] for k in how["utility"] if k in seen.metrics},
        "epsilon": seen.metrics.get("privacy/epsilon"),
        "length": float(np.median(seen.lengths)),
        "numbers": seen.numbers,
    }


def views(
    seen: Seen, told: Callable[[Tensors, int | None], Floats], at: int
) -> dict[str, Floats]:  # fmt: skip
    """By view, of what a model says (`told` of a client's own, or of everybody's): how much a
    client's change raised it, in round `at` and in all, how much the mean did, and what it is at
    the end. Clients' own stand one behind the other."""
    clients, rounds = sorted(seen.updates[0]), len(seen.updates)
    models = [state["theta"] for state in seen.states]
    raised = np.array(
        [
            np.concatenate([
                told(tree.map(np.add, models[t], seen.updates[t][k]), k) - told(models[t], k)
                for k in clients
            ])
            for t in range(rounds)
        ]
    )  # fmt: skip
    return {
        "update": raised[at - 1],
        "updates": raised.sum(0),
        "mean": told(models[at], None) - told(models[at - 1], None),
        "model": told(models[-1], None),
    }


class Listener:
    """What a model with given weights says; a call sets them."""

    def __init__(self, algorithm: FedAgent) -> None:
        self.trainer = algorithm.trainer
        self.model = self.trainer.policy.model
        self.tokenizer = self.trainer.policy.tokenizer

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        found: list[list[int]] = self.tokenizer(list(texts), add_special_tokens=False)["input_ids"]
        return found

    def logits(self, theta: Tensors, asked: Sequence[tuple[str, str]]) -> Floats:
        """log p − log(1 − p) of answers to prompts, their end included [n]."""
        self.trainer.actor.load(theta)
        end = self.tokenizer.eos_token_id
        prompts, answers = (self._ids(texts) for texts in zip(*asked, strict=True))
        samples = [Sample(0, 0, p, [*a, end], [], "") for p, a in zip(prompts, answers)]
        with torch.no_grad():
            batch = to_rows(samples, end, self.trainer.policy.device)
            logs, _ = answer_logprobs(self.model, batch, 1.0)
            total = torch.zeros(len(samples)).index_add_(0, batch.row.cpu(), logs.cpu())
        likely = np.minimum(total.double().numpy(), -1e-9)
        return likely - np.log(-np.expm1(likely))

    def pins(self, theta: Tensors, prompt: str) -> Floats:
        """log p of every pin after this prompt [10^n], in their order; not of their end.

        A model is asked once for each beginning, and these are few.
        """
        self.trainer.actor.load(theta)
        (start,), tokens = self._ids([prompt]), [ids[0] for ids in self._ids(list("0123456789"))]
        begun = [
            list(before)
            for length in range(digits.LENGTH)
            for before in itertools.product(range(10), repeat=length)
        ]
        samples = [
            Sample(0, 0, [*start, *(tokens[d] for d in before)], tokens[:1], [], "")
            for before in begun
        ]
        with torch.no_grad():
            batch = to_rows(samples, self.tokenizer.eos_token_id, self.trainer.policy.device)
            logs = log_distributions(self.model, hidden_states(self.model, batch), batch, 1.0)
        next_digit = logs[:, tokens].double().cpu().numpy()  # [beginnings, 10]
        likely, place = next_digit[:1].ravel(), 1
        for length in range(1, digits.LENGTH):
            count = 10**length
            likely = (likely[:, None] + next_digit[place : place + count]).ravel()
            place += count
        return np.asarray(likely)
