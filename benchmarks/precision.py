"""What narrower numbers on the way cost a run: its result by `flower.precision`, seeds paired.

python benchmarks/precision.py [RECIPE …] [--seeds N] [--processes N] [--model FOLDER] [--quick]
                               [--json FILE]

Each run is in one process, and every broadcast and update goes through the bytes that
Flower would carry, so that the rounding is that of a federation and the time is not. Differences
are to float32 with the same seed, ± is a 95% t-interval. `--model` is for language agents.
"""

from __future__ import annotations

import tempfile
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import harness
import numpy as np

from fedrl.clients.wrapped_algorithm import ResultWrapper
from fedrl.config import flower
from fedrl.config.build import build_algorithm
from fedrl.config.loading import find_recipe, read_recipe, resolve
from fedrl.core import serialization
from fedrl.core.narrow_numbers import Precision
from fedrl.core.types import Algorithm, Job, Result, Tensors
from fedrl.federation.round_loop import Round
from fedrl.report import plots
from fedrl.runs import train as runs

FORMS: tuple[Precision, ...] = ("float32", "bfloat16", "float16", "int8")
RECIPES = ("momentum/cartpole", "fedrlhf/movielens")
METRICS = {"momentum": "eval/return", "fedrlhf": "personal/accuracy", "fedagent": "eval/success"}
"""What a family is judged by; of `personal/…` the mean over clients."""
WORDS = {"fedrlhf": ("--federation.clients", "20"), "fedagent": ("--algorithm.eval_tasks", "200")}
QUICK = ("--rounds", "2")
LAST = 5
"""The mean over so many evaluations, or as many as there are."""


class Carried(ResultWrapper):
    """An algorithm all of whose broadcasts and updates travel."""

    def __init__(self, algorithm: Algorithm, precision: Precision) -> None:
        super().__init__(algorithm)
        self.settings = flower.Settings(precision=precision)
        self.bytes = 0

    def broadcast(self, state: Tensors, round: int) -> Tensors:
        return self._carried(super().broadcast(state, round), self.settings.down)

    def sent(self, job: Job, result: Result) -> Result:
        return replace(result, update=self._carried(result.update, self.settings.precision))

    def _carried(self, tensors: Tensors, precision: Precision) -> Tensors:
        data = serialization.pack(tensors, precision)
        self.bytes += len(data)
        return serialization.unpack(data)


def trained(
    recipe: str, words: tuple[str, ...], precision: Precision, seed: int, folder: Path
) -> tuple[float, int]:
    """What it came to, and the bytes that were carried."""
    metric, found = METRICS[recipe.partition("/")[0]], []

    def look(done: Round) -> None:
        own = [row[metric] for row in done.clients if metric in row]
        if metric in done.metrics or own:
            found.append(float(np.mean(own)) if own else done.metrics[metric])

    flags = (*words, "--seed", str(seed), "--out", str(folder))
    config = resolve(read_recipe(find_recipe(recipe)), flags)
    carried = Carried(build_algorithm(config), precision)
    runs.train(config, runs.start(config), carried, [look], progress=False)
    return float(np.mean(found[-LAST:])), carried.bytes


def compare(
    recipe: str, words: tuple[str, ...], seeds: int, pool: Executor, results: harness.Results
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        runs = {
            form: [
                pool.submit(trained, recipe, words, form, seed, Path(folder) / f"{form}-{seed}")
                for seed in range(seeds)
            ]
            for form in FORMS
        }
        found = {form: [one.result() for one in some] for form, some in runs.items()}
    values = {form: np.array([value for value, _ in some]) for form, some in found.items()}
    for form, some in values.items():
        moved = sum(size for _, size in found[form]) / sum(size for _, size in found["float32"])
        mean, half = plots.interval(some - values["float32"])
        apart = "" if form == "float32" else f", {mean:+.4g} ± {half:.2g}"
        print(f"{recipe}, {form}: {some.mean():.4g}{apart}, {moved:.3f} of the bytes", flush=True)
        results.add(f"precision/{recipe}/{form}", float(some.mean()), METRICS[recipe.split("/")[0]])
        results.add(f"precision/{recipe}/{form}/bytes", moved, "of float32's")


def main() -> None:
    parser = harness.options(__doc__)
    parser.add_argument("recipes", nargs="*", default=RECIPES, metavar="RECIPE")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=1, help="runs side by side")
    parser.add_argument("--model", metavar="FOLDER", help="algorithm.model of fedagent's recipes")
    asked = parser.parse_args()
    harness.header("What narrower numbers on the way cost")
    results = harness.Results()
    with ProcessPoolExecutor(asked.processes, get_context("spawn")) as pool:
        for recipe in asked.recipes:
            words = WORDS.get(recipe.partition("/")[0], ()) + (QUICK if asked.quick else ())
            if asked.model and recipe.startswith("fedagent"):
                words += ("--algorithm.model", asked.model)
            compare(recipe, words, 2 if asked.quick else asked.seeds, pool, results)
    results.finish(asked.json)


if __name__ == "__main__":
    main()
