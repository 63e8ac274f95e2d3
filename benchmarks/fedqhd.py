"""How fast FedQHD is: its kernels beside NumPy, LunarLander's loop, growth, minutes per run.

python benchmarks/fedqhd.py [kernels] [lander] [growth] [minutes] [--quick] [--json F] [--plot F]

kernels   A step is one action and one TD update on 16 transitions, of one of 5 clients (|A| = 2,
          d = 4). NumPy is measured twice, in float64, its default, and in float32, the kernels'
          precision: on processors with wide vectors its float32 cosine is many times faster. The
          limit is what a polynomial of fused multiply-adds reaches on the same core; processors
          that add beside multiplying may pass it.
lander    Steps of LunarLander's loop on the host, beside Gymnasium's own without a learner.
growth    Time per step by D, per round by N, to factor and to compile by m.
minutes   Whole runs of the recipes beside the paper's Table 2. With --quick a few episodes, and
          what a run would take if all of its episodes lasted to their limit.

One thread and CPU seconds throughout; what is compared takes turns in one run.
"""

from __future__ import annotations

import contextlib
import io
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import harness
import numpy as np
import qhd_clients
from qhd_clients import CompiledClient, NumpyClient, Rounds

from fedrl.algorithms.qhd import encoders as qhd_features
from fedrl.algorithms.qhd.fedqhd import FedQHD, Settings
from fedrl.algorithms.qhd.ridge import Compiler
from fedrl.config import schema as configs
from fedrl.config.build import build_algorithm
from fedrl.config.loading import find_recipe, read_recipe, resolve
from fedrl.core.types import Job
from fedrl.envs.discrete import worlds as discrete
from fedrl.report import plots
from fedrl.runs import train as running

CLIENTS = 5
SHARED, OWN = (10_000,) * CLIENTS, (500, 1000, 2000, 5000, 10_000)

Client = NumpyClient | CompiledClient
Work = Callable[[], tuple[float, float]]
"""Does some work; returns how much, in its own units, and the CPU seconds."""

PAPER = {
    "cartpole": (7.8, 1.6),
    "acrobot": (5.6, 1.9),
    "lunarlander": (15.5, 5.9),
    "mountaincar": (17.2, 1.4),
}
"""Table 2, minutes per run of FedQHD: one encoder of 10,000 features for all, own encoders."""

SHORT = {"cartpole": 40, "acrobot": 2, "lunarlander": 10, "mountaincar": 5}
"""Episodes per client of a short run: some thousand steps."""


def turns(rounds: int, work: dict[str, Work]) -> dict[str, float]:
    """Units per CPU second, each the best of its turns: other load only ever slows one down."""
    best = dict.fromkeys(work, 0.0)
    for _ in range(rounds):
        for name, run in work.items():
            units, seconds = run()
            best[name] = max(best[name], units / seconds)
    return best


def timed(play: Callable[[], float]) -> tuple[float, float]:
    start = time.process_time()
    units = play()
    return units, time.process_time() - start


def episodes(clients: Sequence[Client], count: int) -> float:
    return float(sum(client.episodes(count) for client in clients))


def kernels(results: harness.Results, quick: bool) -> None:
    learners: dict[str, list[Client]] = {
        "float64": [NumpyClient(size, seed, np.float64) for seed, size in enumerate(SHARED)],
        "float32": [NumpyClient(size, seed, np.float32) for seed, size in enumerate(SHARED)],
        "compiled": [CompiledClient(size, seed) for seed, size in enumerate(SHARED)],
        "own": [CompiledClient(size, seed) for seed, size in enumerate(OWN)],
    }
    for clients in learners.values():
        episodes(clients, 3)  # compiles, and fills a batch: without one there are no updates
    amount = {"float64": 1, "float32": 4, "compiled": 20, "own": 20}
    work: dict[str, Work] = {
        name: partial(timed, partial(episodes, learners[name], amount[name])) for name in learners
    }
    work["limit"] = partial(qhd_clients.limit, 3000 if quick else 10_000)
    rates = turns(2 if quick else 6, work)
    share = rates["compiled"] * qhd_clients.operations(SHARED[0]) / rates["limit"]
    for name, label in (
        ("float64", "NumPy in float64, D = 10,000"),
        ("float32", "NumPy in float32, D = 10,000"),
        ("compiled", "compiled, D = 10,000"),
        ("own", "compiled, D_i = 500 to 10,000"),
    ):
        print(f"{label:32}{rates[name]:9.1f} steps/s")
        results.add(f"fedqhd/{name}", rates[name], "steps/s")
    print(f"{'arithmetic limit':32}{1e-9 * rates['limit']:9.1f} G operations/s")
    results.add("fedqhd/limit", 1e-9 * rates["limit"], "G_operations/s")
    for name in ("float64", "float32"):
        faster = rates["compiled"] / rates[name]
        print(f"{'compiled over NumPy in ' + name:32}{faster:9.1f} times")
        results.add(f"fedqhd/over_{name}", faster, "times")
    print(f"{'share of the limit, D = 10,000':32}{100 * share:9.0f} %", flush=True)
    results.add("fedqhd/share_of_limit", share, "fraction")


def lander(results: harness.Results, quick: bool) -> None:
    """A tenth of the actions is random; B = 16 for QHD, 32 for the network of 128 and 128."""
    if harness.missing("gymnasium", "Box2D"):
        print("lander: skipped, needs gymnasium and Box2D")
        return
    settings = discrete.Settings("lunarlander-v3", simulator="gymnasium")
    world = discrete.World(settings, 1, 0)
    work: dict[str, Work] = {
        "simulator": partial(timed, partial(qhd_clients.falls, 1000 if quick else 10_000))
    }
    for features in (1000, 10_000):
        for updates in (0, 1):
            name = f"qhd_{features}" + ("" if updates else "_acting")
            work[name] = partial(timed, qhd_clients.landing_qhd(world, features, updates))
    for updates in (0, 1):
        work["dqn" + ("" if updates else "_acting")] = partial(
            timed, qhd_clients.landing_dqn(world, updates)
        )
    for run in work.values():
        run()
    for name, rate in turns(2 if quick else 6, work).items():
        print(f"lander, {name:20}{rate:9,.0f} steps/s {1e6 / rate:7.1f} µs per step", flush=True)
        results.add(f"fedqhd/lander_{name}", rate, "steps/s")


def growth(results: harness.Results, quick: bool, path: Path | None) -> None:
    """Against D, N and m, one thing at a time; the exponent is that of the last doubling."""
    by_d = (100, 5000, 10_000) if quick else (100, 200, 500, 1000, 2000, 5000, 10_000)
    by_n = (1, 5, 10) if quick else (1, 2, 5, 10, 20)
    by_m = (50, 500, 1000) if quick else (50, 100, 200, 500, 1000, 2000)
    panels = [
        panel("µs per step by D", "D", by_d, partial(step_times, quick=quick)),
        panel("ms per round by clients", "N", by_n, partial(round_times, quick=quick)),
        panel("ms to factor and compile by anchors", "m", by_m, ridge_times, log=True),
    ]
    for each in panels:
        for name, line in each.lines.items():
            at, values = each.x[name], line[0]
            shown = ", ".join(f"{x:.0f}: {y:.3g}" for x, y in zip(at, values))
            print(f"growth, {each.title}, {name}: {shown}", flush=True)
            exponent = float(np.log(values[-1] / values[-2]) / np.log(at[-1] / at[-2]))
            key = "_".join(re.findall(r"\w+", name.replace(",0", "0")))
            results.add(f"fedqhd/growth_{each.x_label}_{key}", exponent, "exponent")
    if path is not None:
        draw(panels, path)
        print(f"growth: plotted to {path}")


def panel(
    title: str,
    label: str,
    values: Sequence[int],
    measure: Callable[[int], dict[str, float]],
    log: bool = False,
) -> plots.Panel:
    found = [measure(value) for value in values]
    lines = {name: np.array([[one[name] for one in found]]) for name in found[0]}
    return plots.Panel(title, label, dict.fromkeys(lines, np.array(values, float)), lines, log=log)


def draw(panels: Sequence[plots.Panel], path: Path) -> None:
    """Panels with lines of their own each, so each has its own legend."""
    import matplotlib
    from matplotlib.ticker import MaxNLocator

    figure, row = plots.figure(len(panels))
    with matplotlib.rc_context(plots.STYLE):
        for axes, each in zip(row, panels, strict=True):
            plots.band_plot(axes, each.x, each.lines, log=each.log)
            axes.set_title(each.title)
            axes.set_xlabel(each.x_label)
            axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
            if each.log:  # on both axes a slope is an exponent
                axes.set_xscale("log")
                at = next(iter(each.x.values()))
                axes.set_xticks(at, [f"{x:,.0f}" for x in at])
                axes.minorticks_off()
            axes.legend(fontsize=8)
    plots.save(figure, path)


def step_times(features: int, quick: bool) -> dict[str, float]:
    """µs of a step as in `kernels`."""
    more = max(1, 1000 // features)
    work: dict[str, Work] = {}
    for name, client, amount in (
        ("compiled", CompiledClient(features, 0), 20 * more),
        ("NumPy, float32", NumpyClient(features, 0, np.float32), 2 * more),
    ):
        client.episodes(3)
        work[name] = partial(timed, partial(episodes, [client], amount))
    return {name: 1e6 / rate for name, rate in turns(3 if quick else 10, work).items()}


def round_times(clients: int, quick: bool) -> dict[str, float]:
    """ms of a round: MountainCar, two episodes of 200 steps per client, D = 2,000, m = 200.

    The clients' work, the mean and the server's step; random play, so that episodes stay as long.
    """
    world = discrete.World(discrete.Settings("mountaincar-v0"), clients, 0)
    work: dict[str, Work] = {}
    for name, encoders in (("shared encoder", "shared"), ("own encoders", "own")):
        settings = Settings(
            encoders=encoders, features=2000, sizes=(2000,), episodes=2, eval_episodes=1,
            epsilon_floor=1.0, replay=1000,
        )  # fmt: skip
        rounds = Rounds(FedQHD(settings, world, [[c] for c in range(clients)]), clients)
        rounds.advance()  # compiles, and factors
        work[name] = partial(timed, rounds.advance)
    return {name: 1e3 / rate for name, rate in turns(2 if quick else 5, work).items()}


def ridge_times(anchors: int) -> dict[str, float]:
    """ms to factor once per run, and to compile a teacher of three actions once per round."""
    random = np.random.default_rng(0)
    states, teacher = random.normal(size=(anchors, 4)), random.normal(size=(anchors, 3))
    found = {}
    for features in (1000, 10_000):
        rows = qhd_features.design(qhd_features.draw(4, features, 0.5, 0), states)
        compiler = Compiler(rows, 1e-3)
        factor = min(timed(lambda rows=rows: Compiler(rows, 1e-3).features)[1] for _ in range(2))
        repeats = max(1, 20_000_000 // rows.size)
        compiling = min(
            timed(lambda c=compiler, n=repeats: [c.compile(teacher) for _ in range(n)])[1]
            for _ in range(3)
        )
        found[f"factor, D = {features:,}"] = 1e3 * factor
        found[f"compile, D = {features:,}"] = 1e3 * compiling / repeats
    return found


def minutes(results: harness.Results, quick: bool) -> None:
    """The recipes' runs, evaluations and checkpoints included."""
    for task, paper in PAPER.items():
        if task == "lunarlander" and harness.missing("gymnasium", "Box2D"):
            print("minutes, lunarlander: skipped, needs gymnasium and Box2D")
            continue
        recipe = read_recipe(find_recipe(f"fedqhd/{task}"))
        for encoders, theirs in zip(("shared", "own"), paper):
            config = resolve(recipe, ["--algorithm.encoders", encoders])
            name = f"fedqhd/minutes_{task}_{encoders}"
            if quick:
                per_step, per_exchange, most = short_run(task, config)
                exchanges = config.federation.clients * config.rounds
                total = (per_step * most + per_exchange * exchanges) / 60
                print(
                    f"minutes, {task}, {encoders}: {1e6 * per_step:.0f} µs per step and "
                    f"{1e3 * per_exchange:.0f} ms per exchange measured; a run of {most:,} steps, "
                    f"if no episode ended before its limit: at most {total:.1f} CPU minutes, "
                    f"extrapolated, without evaluations; the paper {theirs}",
                    flush=True,
                )
                results.add(f"{name}_at_most_extrapolated", total, "min")
            else:
                steps, cpu, wall = whole_run(config)
                print(
                    f"minutes, {task}, {encoders}: {steps:,.0f} steps in {cpu / 60:.2f} CPU "
                    f"minutes ({wall / 60:.2f} by the clock), measured; the paper {theirs}",
                    flush=True,
                )
                results.add(f"{name}_cpu", cpu / 60, "min")
                results.add(f"{name}_steps", steps, "steps")


def short_run(task: str, config: configs.Config) -> tuple[float, float, int]:
    """CPU seconds per step and per exchange, and the most steps of a whole run.

    Every client plays a round of one episode and one of many: the difference is steps alone.
    """
    spent, steps = np.zeros(2), np.zeros(2)
    for which, episodes in enumerate((1, SHORT[task])):
        few = replace(config.algorithm, episodes=episodes, eval_episodes=1)
        algorithm: Any = build_algorithm(replace(config, algorithm=few))
        state = algorithm.init(0)
        for client in range(config.federation.clients):
            fresh = algorithm.local(Job(client, state, None, client))  # compiles, and factors
            news = {name: value + 1e-3 for name, value in fresh.update.items()}  # to be compiled
            start = time.process_time()
            done = algorithm.local(Job(client, state | news, fresh.state, 100 + client))
            spent[which] += time.process_time() - start
            steps[which] += done.metrics["env/steps"]
    per_step = float((spent[1] - spent[0]) / (steps[1] - steps[0]))
    per_exchange = float(spent[0] - per_step * steps[0]) / config.federation.clients
    most = config.federation.clients * config.rounds * config.algorithm.episodes
    return per_step, max(per_exchange, 0.0), most * algorithm.world.limit


def whole_run(config: configs.Config) -> tuple[float, float, float]:
    """(steps, CPU seconds, seconds by the clock) of `fedrl run`, into a folder that is deleted."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
        config = replace(config, out=folder)
        cpu, wall = time.process_time(), time.perf_counter()
        last = running.train(config, running.start(config), build_algorithm(config))
        spent = time.process_time() - cpu, time.perf_counter() - wall
    return last.totals["env/steps"], *spent


def main() -> None:
    parser = harness.options((__doc__ or "").splitlines()[0])
    parts = ("kernels", "lander", "growth", "minutes")
    parser.add_argument(
        "parts", nargs="*", choices=[*parts, []], metavar="PART", help="all of them by default"
    )
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the growth as a PNG")
    asked = parser.parse_args()
    harness.header("FedQHD: CPU seconds, one thread")
    results = harness.Results()
    drawn = partial(growth, path=asked.plot)
    work = dict(zip(parts, (kernels, lander, drawn, minutes), strict=True))
    for part in asked.parts or parts:
        work[part](results, asked.quick)
    results.finish(asked.json)


if __name__ == "__main__":
    main()
