"""How fast FedRLHF on ratings is: its kernels beside PyTorch loops, and the time of a round.

python benchmarks/fedrlhf.py [kernels] [round] [reproduction] [--quick] [--json F]

kernels   Examples that one client learns from per second: Q-learning, embeddings of 50, layers of
          100 and 50, batch 8, Adam 0.001, five epochs per round. PyTorch three times: with whole
          tables of embeddings, as one usually writes it; with sparse gradients and SparseAdam; and
          with tables of the client's own rows alone, which is what the kernel works on. All take
          the same minibatches and actions; how far the networks are apart after an epoch is shown.
round     A round of K = 50 clients: learning alone, and all of it: answers of simulated people,
          reward models, learning, personal scores, the mean, the server's step.
reproduction
          What `fedrl reproduce fedrlhf` takes for one row of its table: FedRLHF with K = 50, five
          rounds and five seeds, run folders and checkpoints included, two processes. Wall minutes
          on an idle machine.

The world is generated in the size of the genuine ratings: 610 users, 9,742 movies, some 165 ratings
per user. One thread, CPU seconds but for the last part; what is compared takes turns in one run.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import harness
import numpy as np

from fedrl.aggregation import mean as aggregate
from fedrl.algorithms.fedrlhf.ratings import policy as rating_policy
from fedrl.algorithms.fedrlhf.ratings.algorithm import FedRLHF, Settings
from fedrl.algorithms.fedrlhf.ratings.client_data import ClientRatings
from fedrl.api import complete
from fedrl.api.papers import find_reproductions
from fedrl.core import seeding
from fedrl.core.types import Job, Tensors
from fedrl.envs.movielens import world as movielens
from fedrl.feedback import rating_kernels
from fedrl.feedback import rating_network as network
from fedrl.runs.process_pool import Job as Run
from fedrl.runs.process_pool import finish, pool

CLIENTS = 50
PROCESSES = 2
WORLD = movielens.Settings(users=610, movies=9742, ratings=165)
EPOCHS = 5

Work = Callable[[], float]
"""Does some work; returns how much, in its own units."""


def turns(rounds: int, work: dict[str, Work]) -> dict[str, float]:
    """Units per CPU second, each the best of its turns: other load only ever slows one down."""
    best = dict.fromkeys(work, 0.0)
    for _ in range(rounds):
        for name, run in work.items():
            start = time.process_time()
            units = run()
            best[name] = max(best[name], units / (time.process_time() - start))
    return best


def built(**settings: Any) -> FedRLHF:
    world = movielens.World(WORLD, CLIENTS, 0)
    return FedRLHF(Settings(**settings), world, [[c] for c in range(CLIENTS)])


def typical(algorithm: FedRLHF) -> int:
    """The client with the median number of movies."""
    counts = [len(mine.appeal) for mine in algorithm.client_data]
    return int(np.argsort(counts)[len(counts) // 2])


def kernels(results: harness.Results, quick: bool) -> None:
    if harness.missing("torch"):
        print("kernels: skipped, needs torch")
        return
    from torch_ratings import Client

    algorithm = built(feedback="none")
    mine = algorithm.client_data[typical(algorithm)]
    start, rewards = algorithm.init(0), np.stack([-mine.appeal, mine.appeal], 1)
    own = network.unpack(network.pack(start, mine.users, mine.movies), sizes_of(algorithm, mine))
    everywhere = algorithm.train_examples(mine)
    loops = {
        "dense": Client(start, algorithm.sizes, everywhere, rewards),
        "sparse": Client(start, algorithm.sizes, everywhere, rewards, sparse=True),
        "rows": Client(own, sizes_of(algorithm, mine), mine.train, rewards),
    }
    order, chances = drawn(len(mine.appeal), 1 if quick else 2 * EPOCHS)
    compare(algorithm, mine, start, rewards, loops)
    work: dict[str, Work] = {
        name: partial(loop.epochs, order, chances) for name, loop in loops.items()
    }
    work["compiled"] = partial(values, algorithm, mine, start, rewards)
    work["policy"] = partial(policy, algorithm, mine, start, rewards)
    work["policy"]()  # compiles
    rates = turns(2 if quick else 6, work)
    print(f"a client with {len(mine.appeal)} movies to train on")
    for name, label in (
        ("dense", "PyTorch, whole tables"),
        ("sparse", "PyTorch, sparse gradients"),
        ("rows", "PyTorch, the client's rows"),
        ("compiled", "compiled, Q-learning"),
        ("policy", "compiled, policy gradient"),
    ):
        print(f"{label:32}{rates[name]:11,.0f} examples/s")
        results.add(f"fedrlhf/{name}", rates[name], "examples/s")
    for name in loops:
        faster = rates["compiled"] / rates[name]
        print(f"{'Q-learning over PyTorch, ' + name:32}{faster:11.1f} times", flush=True)
        results.add(f"fedrlhf/over_{name}", faster, "times")


def sizes_of(algorithm: FedRLHF, mine: ClientRatings) -> rating_kernels.Sizes:
    return algorithm.sizes._replace(users=len(mine.users), movies=len(mine.movies))


def drawn(count: int, epochs: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    order = np.stack([random.permutation(count) for _ in range(epochs)])
    return order, random.random(order.shape)


def values(
    algorithm: FedRLHF,
    mine: ClientRatings,
    start: Tensors,
    rewards: np.ndarray,
    epochs: int = 40 * EPOCHS,
) -> float:
    """A round of one client with more epochs; packing its rows is part of it."""
    trained(algorithm, mine, start, rewards, epochs)
    return float(epochs * len(mine.appeal))


def trained(
    algorithm: FedRLHF, mine: ClientRatings, start: Tensors, rewards: np.ndarray, epochs: int
) -> np.ndarray:
    vector = network.pack(start, mine.users, mine.movies)
    order, chances = drawn(len(mine.appeal), epochs)
    rating_policy.learn(
        vector, sizes_of(algorithm, mine), mine.train, rewards, order, chances,
        rating_kernels.Rules(8, 1e-3), *network.adam_memory(None, vector.size),
    )  # fmt: skip
    return vector


def policy(algorithm: FedRLHF, mine: ClientRatings, start: Tensors, rewards: np.ndarray) -> float:
    vector = network.pack(start, mine.users, mine.movies)
    order, chances = drawn(len(mine.appeal), 40 * EPOCHS)
    rating_policy.learn(
        vector, sizes_of(algorithm, mine), mine.train, rewards, order, chances,
        rating_kernels.Rules(8, 1e-3, reinforce=True), *network.adam_memory(None, vector.size),
    )  # fmt: skip
    return float(order.size)


def compare(
    algorithm: FedRLHF,
    mine: ClientRatings,
    start: Tensors,
    rewards: np.ndarray,
    loops: dict[str, Any],
) -> None:
    """One epoch each from the same weights: the largest differences of dense layers."""
    order, chances = drawn(len(mine.appeal), 1)
    ours = network.unpack(trained(algorithm, mine, start, rewards, 1), sizes_of(algorithm, mine))[
        "layers"
    ]
    moved = float(np.abs(ours - start["layers"]).max())
    size = algorithm.sizes._replace(users=0, movies=0)
    for name, loop in loops.items():
        loop.epochs(order, chances)
        flat = [
            (layer.weight.T if i < 2 else layer.weight, layer.bias)
            for i, layer in enumerate(loop.network.dense)
        ]
        theirs = [part.detach().numpy() for pair in flat for part in pair]
        apart = max(
            float(np.abs(a - b).max())
            for a, b in zip(rating_kernels.layers(ours, size), theirs, strict=True)
        )
        print(
            f"after an epoch, dense layers moved {moved:.4f}; {name} is {apart:.1e} away from ours"
        )


def round_of_fifty(results: harness.Results, quick: bool) -> None:
    algorithm = built()
    start = algorithm.init(0)
    everybody = range(CLIENTS)
    # The second round: clients have answers and a reward model already.
    first = [algorithm.local(Job(c, start, None, seeding.derive(0, "a", 1, c))) for c in everybody]
    state = algorithm.step(start, aggregate.weighted((r.update, r.weight) for r in first), 1)
    jobs = [Job(r.client, state, r.state, seeding.derive(0, "a", 2, r.client)) for r in first]

    def learning() -> float:
        for job in jobs:
            mine = algorithm.client_data[job.client]
            algorithm.improve(job, mine, np.stack([-mine.appeal, mine.appeal], 1))
        return 1.0

    def whole() -> float:
        done = map(algorithm.local, jobs)
        algorithm.step(state, aggregate.weighted((r.update, r.weight) for r in done), 2)
        return 1.0

    def evaluation() -> float:
        algorithm.evaluate([state], [list(everybody)], 2, 0)
        return 1.0

    work = {"learning": learning, "whole": whole, "evaluation": evaluation}
    movies = sum(len(mine.appeal) for mine in algorithm.client_data)
    for name, rate in turns(1 if quick else 4, work).items():
        print(f"round, K = {CLIENTS}, {movies:,} movies, {name:12}{1 / rate:8.2f} s", flush=True)
        results.add(f"fedrlhf/round_{name}", 1 / rate, "s")


def reproduction(results: harness.Results, quick: bool) -> None:
    find_reproductions()
    from reproductions.fedrlhf.cells import grid_of, with_settings

    with tempfile.TemporaryDirectory() as folder:
        cells = grid_of("smoke" if quick else "small", Path(folder)).cells["movielens"]
        cell = [one for one in cells if one.labels["method"] == "fedrlhf"][-1]
        if not quick:
            cell = with_settings(cell, {f"world.{k}": v for k, v in asdict(WORLD).items()})
        jobs = [
            Run(f"seed {seed}", 1.0, partial(complete, cell.config(seed, Path(folder))))
            for seed in cell.seeds
        ]
        begin = time.perf_counter()
        with pool(PROCESSES) as executor:
            finish(executor, jobs, print, None)
        minutes = (time.perf_counter() - begin) / 60
    what = f"{cell.name}, {cell.rounds} rounds, {len(cell.seeds)} seeds, {PROCESSES} processes"
    print(f"{what:56}{minutes:8.2f} min", flush=True)
    results.add("fedrlhf/reproduction", minutes, "min")


def main() -> None:
    parser = harness.options((__doc__ or "").splitlines()[0])
    work = {"kernels": kernels, "round": round_of_fifty, "reproduction": reproduction}
    parser.add_argument(
        "parts", nargs="*", choices=[*work, []], metavar="PART", help="all of them by default"
    )
    asked = parser.parse_args()
    harness.header("FedRLHF on ratings: CPU seconds, one thread")
    results = harness.Results()
    for part in asked.parts or work:
        work[part](results, asked.quick)
    results.finish(asked.json)


if __name__ == "__main__":
    main()
