"""The text worlds: steps per second, resets, start-up and memory, and search at a million products.

python benchmarks/gym.py [household] [webshop] [million] [partition] [--quick] [--json FILE]

With FEDRL_DATA set, the genuine ALFWorld kitchens and the genuine catalogue are played too; where
the packages alfworld and textworld are installed, the real engine plays the same commands.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

import harness
import numpy as np

PARTS = ("household", "webshop", "million", "partition")


def best_rate(play: Callable[[], int], seconds: float) -> float:
    """Steps per second of the best half of the repetitions: others may be using the machine."""
    play()
    rates, until = [], time.perf_counter() + seconds
    while time.perf_counter() < until or len(rates) < 3:
        start = time.perf_counter()
        steps = play()
        rates.append(steps / (time.perf_counter() - start))
    return float(np.median(sorted(rates)[len(rates) // 2 :]))


# Household


def household(results: harness.Results, quick: bool) -> None:
    from fedrl.envs.household.world import Household, Settings

    worlds = {"tiny": Household(Settings(size="tiny", train=50))}
    worlds["generated"] = Household(Settings(size="dataset", train=20 if quick else 200))
    if os.environ.get("FEDRL_DATA"):
        worlds["genuine"] = Household(Settings(source="alfworld"))
    for name, world in worlds.items():
        _household(results, name, world, 0.5 if quick else 3.0)
    _real_engine(results, worlds.get("genuine", worlds["generated"]), 20 if quick else 200)


def _kitchen(world) -> str:
    """The largest kitchen among the first games, as in the dataset's own kitchens."""
    tasks = world.tasks("seen")[:140]
    kinds = [task for task in tasks if task.category in ("heat", "cool")] or list(tasks)
    return max(kinds, key=lambda task: len(world.problem(task.id).receptacles)).id


def _commands(world, task: str, episodes: int, seed: int = 0) -> list[list[str]]:
    """Half towards the goal (the expert's), half random: what a rollout in training looks like."""
    rng, played = random.Random(seed), []
    for _ in range(episodes):
        episode, turn = world.start(task)
        expert = list(reversed(world.demonstrate(task)[:-1]))
        commands = []
        for _ in range(50):
            go = rng.random() < 0.5 and expert
            commands.append(expert.pop() if go else rng.choice(turn.admissible))
            turn = episode.step(commands[-1])
            if turn.done:
                break
        played.append(commands)
    return played


def _household(results: harness.Results, name: str, world, seconds: float) -> None:
    from fedrl.envs.batch import Batch

    task = _kitchen(world)
    problem = world.problem(task)
    played = _commands(world, task, 40)

    def one_by_one() -> int:
        for commands in played:
            episode, _ = world.start(task)
            for command in commands:
                episode.step(command)  # its Turn holds the admissible commands
        return sum(map(len, played))

    def batched() -> int:
        batch = Batch(world)
        batch.reset([task] * 256)
        for step in range(20):
            batch.step([played[i % 40][step % len(played[i % 40])] for i in range(256)])
        return sum(batch.steps)

    def resets() -> int:
        for _ in range(500):
            world.start(task)
        return 500

    rate, together, reset = (best_rate(f, seconds) for f in (one_by_one, batched, resets))
    print(
        f"household {name}: {len(problem.receptacles)} receptacles, {len(problem.things)} objects: "
        f"{rate:,.0f} steps/s, {together:,.0f} in batches of 256, reset {1e6 / reset:.0f} µs"
    )
    results.add(f"household_{name}_steps", rate, "steps/s")
    results.add(f"household_{name}_batch_steps", together, "steps/s")
    results.add(f"household_{name}_reset", 1e6 / reset, "us")


def _real_engine(results: harness.Results, world, limit: int) -> None:
    if lacking := harness.missing("alfworld", "textworld"):
        print(f"the real engine is not installed ({', '.join(lacking)}): no ratio")
        return
    from fedrl.envs.household.alfworld import Alfworld

    task = _kitchen(world)
    commands = [c for played in _commands(world, task, 10) for c in played[:20]][:limit]
    real = Alfworld(world)
    start = time.perf_counter()
    episode, _ = real.start(task)
    reset = time.perf_counter() - start
    start, steps = time.perf_counter(), 0
    for command in commands:
        steps += 1
        if episode.step(command).done:
            break
    theirs = steps / (time.perf_counter() - start)
    ours = results.values["household_genuine_steps" if "household_genuine_steps" in results.values
                          else "household_generated_steps"]["value"]  # fmt: skip
    print(f"real engine: {theirs:.1f} steps/s, reset {reset:.2f} s: ours is {ours / theirs:,.0f}×")
    results.add("household_real_steps", theirs, "steps/s")
    results.add("household_ratio", float(ours) / theirs, "times")


# WebShop

START = """
import resource, time
start = time.perf_counter()
from fedrl.envs.webshop.shop import Settings, WebShop
shop = WebShop(Settings(source={source!r}, products=1000))
visit, turn = shop.start(shop.tasks("train")[0].id)
visit.step("search[a warm coat]")
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(time.perf_counter() - start, peak, len(shop.tasks("train")) + len(shop.tasks("valid")))
"""


def webshop(results: harness.Results, quick: bool) -> None:
    from fedrl.envs.webshop.shop import Settings, WebShop

    sources = ["generated"] + (["webshop"] if os.environ.get("FEDRL_DATA") else [])
    for source in sources:
        name = "genuine" if source == "webshop" else source
        starts = [_start(source) for _ in range(2 if quick else 5)]
        seconds, memory, goals = min(starts)
        shop = WebShop(Settings(source=source, products=1000))
        played = _shopping(shop, 200 if quick else 1500)
        rate = best_rate(lambda shop=shop, played=played: _shop(shop, played), 1 if quick else 5)
        cold = _cold(Settings(source=source, products=1000), played)
        print(
            f"webshop {name}: {rate:,.0f} steps/s mixed ({cold:,.0f} the first time through), "
            f"start {seconds:.2f} s with {goals:.0f} goals, peak {memory:.0f} MB"
        )
        results.add(f"webshop_{name}_steps", rate, "steps/s")
        results.add(f"webshop_{name}_cold_steps", cold, "steps/s")
        results.add(f"webshop_{name}_start", seconds, "s")
        results.add(f"webshop_{name}_memory", memory, "MB")


def _start(source: str) -> tuple[float, float, float]:
    """Of a fresh process, imports included: until the first page of results, and its peak."""
    code = START.format(source=source)
    command = [sys.executable, "-P", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, memory, goals = map(float, done.stdout.split())
    return seconds, memory, goals


def _shopping(shop, episodes: int) -> list[tuple[str, list[str]]]:
    """Half the episodes buy the goal, half wander: searches of their own, pages, items, options."""
    rng, played = random.Random(0), []
    tasks = [task.id for task in shop.tasks("train")]
    for i in range(episodes):
        task = rng.choice(tasks)
        if i % 2:
            played.append((task, shop.demonstrate(task)))
            continue
        visit, turn = shop.start(task)
        words, commands = visit.goal.split(), []
        for _ in range(15):
            choices = [c for c in turn.admissible if c != "click[buy now]"] or list(turn.admissible)
            command = rng.choice(choices)
            if command == "search[<words>]" or rng.random() < 0.15:
                command = f"search[{' '.join(rng.sample(words, min(4, len(words))))}]"
            commands.append(command)
            turn = visit.step(command)
        played.append((task, commands))
    return played


def _shop(shop, played: Sequence[tuple[str, list[str]]]) -> int:
    for task, commands in played:
        visit, _ = shop.start(task)
        for command in commands:
            visit.step(command)
    return sum(len(commands) for _, commands in played)


def _cold(settings, played: Sequence[tuple[str, list[str]]]) -> float:
    """A shop that has shown nothing yet: every search is computed, every page is written."""
    from fedrl.envs.webshop import shop as shops

    shops.open_store.cache_clear()
    shop = shops.WebShop(settings)
    start = time.perf_counter()
    steps = _shop(shop, played)
    return steps / (time.perf_counter() - start)


# A million products


def million(results: harness.Results, quick: bool) -> None:
    import resource

    from fedrl.envs.webshop.generate import products
    from fedrl.envs.webshop.product import indexed_text
    from fedrl.envs.webshop.search import Index

    count = 50_000 if quick else 1_000_000
    ids: list[str] = []
    queries: list[str] = []

    def texts():
        for i, product in enumerate(products(count, 0)):
            ids.append(product.asin)
            if product.instruction and i % (count // 500) == 0:
                queries.append(" ".join((*product.instruction_attributes, product.query)))
            yield indexed_text(product)

    start = time.perf_counter()
    generated = list(texts())
    made = time.perf_counter() - start
    start = time.perf_counter()
    index = Index.build(ids, generated)
    built = time.perf_counter() - start
    del generated
    index.search(queries[0])  # compiles
    took = []
    for query in queries:
        start = time.perf_counter()
        index.search(query)
        took.append(1e3 * (time.perf_counter() - start))
    p50, p95 = np.percentile(took, [50, 95])
    size = sum(getattr(index, name).nbytes for name in ("docs", "codes", "order", "starts")) / 1e6
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{count:,} products: generated in {made:.0f} s, indexed in {built:.0f} s, index "
        f"{size:,.0f} MB (peak of the process {peak:,.0f} MB); {len(queries)} queries: "
        f"p50 {p50:.2f} ms, p95 {p95:.2f} ms"
    )
    results.add("search_products", count, "products")
    results.add("search_generate", made, "s")
    results.add("search_build", built, "s")
    results.add("search_index", size, "MB")
    results.add("search_p50", p50, "ms")
    results.add("search_p95", p95, "ms")


# Partitions


def partition(results: harness.Results, quick: bool) -> None:
    """10,000 clients × 1,000 tasks from 100,000, by strategy; seconds of CPU time."""
    from fedrl import partition as dealing
    from fedrl.envs.text import Task

    clients, size, count = (1000, 100, 10_000) if quick else (10_000, 1000, 100_000)
    tasks = [Task(f"task-{i:06d}", f"kind-{i % 6}") for i in range(count)]
    labels = dealing.draw_labels(tasks, 0.4, 0)
    for strategy in ("uniform", "preference", "coverage", "hardness"):
        settings = dealing.Settings(strategy=strategy, size=size, xi=1.0)
        start = time.process_time()
        dealing.partition(tasks, clients, settings, 0, labels)
        took = time.process_time() - start
        print(f"{strategy}: {clients:,} clients × {size:,} of {count:,} tasks in {took:.1f} s")
        results.add(f"partition_{strategy}", took, "s")


PLAYED = {"household": household, "webshop": webshop, "million": million, "partition": partition}


def main() -> None:
    parser = harness.options(__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", help=f"{', '.join(PARTS)}; all by default")
    asked = parser.parse_args()
    if unknown := set(asked.parts) - set(PARTS):
        parser.error(f"no part {', '.join(unknown)}; choose from {', '.join(PARTS)}")
    harness.header("text worlds")
    results = harness.Results()
    for part in asked.parts or PARTS:
        PLAYED[part](results, asked.quick)
    results.finish(asked.json)


if __name__ == "__main__":
    main()
