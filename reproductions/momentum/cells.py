"""What is measured for the momentum paper: Table 2, Figures 1 and 2, Table 3, and their causes.

Every learner gets the same tuning: one grid of step sizes, the same tuning seeds (which are never
reported), the step with the best mean return over the run. Reported seeds start at 0, tuning seeds
at 10,000.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from reproductions.seed_cells import Cell, Measured

BETAS = (0.1, 0.2, 0.5, 0.8, 1.0)
KAPPAS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
TUNING = 10_000
LEARNERS = (
    ("pavg", 1.0),
    ("fedsvrpg-m", 0.2),
    ("fedsvrpg-m", 0.5),
    ("fedsvrpg-m", 0.8),
    ("fedhapg-m", 0.2),
    ("fedhapg-m", 0.5),
    ("fedhapg-m", 0.8),
)
"""The curves of Figure 1 and the rows of Table 3."""


@dataclass(frozen=True)
class Scale:
    """How much is spent: seeds and rounds per part."""

    table_seeds: int
    table_chunk: int
    regime_seeds: int
    cartpole_seeds: int
    cartpole_rounds: int
    cartpole_tuning: int
    mujoco_seeds: int
    mujoco_rounds: int
    mujoco_horizon: int
    mujoco_tuning_rounds: int
    betas: tuple[float, ...] = BETAS
    kappas: tuple[float, ...] = KAPPAS
    learners: tuple[tuple[str, float], ...] = LEARNERS
    agents: tuple[int, ...] = (1, 2, 4, 5, 8, 16)
    most_rates: int = 9


SCALES = {
    "smoke": Scale(
        *(4, 4, 4, 2, 4, 1, 1, 2, 20, 1),
        betas=(0.2, 1.0),
        kappas=(0.0, 1.0),
        learners=(("pavg", 1.0), ("fedsvrpg-m", 0.2), ("fedhapg-m", 0.2)),
        agents=(4, 8),
        most_rates=1,
    ),
    "small": Scale(200, 100, 50, 8, 150, 4, 2, 30, 500, 8),
    "full": Scale(1000, 100, 200, 24, 150, 8, 4, 40, 500, 15),
}


def tabular(part: str, name: str, scale_seeds: int, **fields: Any) -> Cell:
    """A cell of random MDPs: Table 2's settings, changed by `fields`."""
    algorithm = {"name": "fedsvrpg-m", "local_steps": 32, "lr": 0.05}
    world = {"name": "random_mdp", "kappa": 0.0, "horizon": 500}
    algorithm |= fields.pop("algorithm", {})
    world |= fields.pop("world", {})
    settings = {"clients": 20, "rounds": 6, "chunk": 100} | fields
    return Cell(part, name, algorithm, world, seeds=scale_seeds, **settings)


def table2(scale: Scale) -> list[Cell]:
    return [
        tabular(
            "table2",
            f"beta={beta},kappa={kappa}",
            scale.table_seeds,
            algorithm={"beta": beta},
            world={"kappa": kappa},
            chunk=scale.table_chunk,
        )
        for kappa in scale.kappas
        for beta in scale.betas
    ]


def kernels(scale: Scale) -> list[Cell]:
    """Table 2 again with kernels that differ more: is it still flat in κ?"""
    return [
        tabular(
            "kernels",
            f"{kernel},beta={beta},kappa={kappa}",
            scale.table_seeds,
            algorithm={"beta": beta},
            world={"kappa": kappa, "kernel": kernel},
        )
        for kernel in ("bernoulli", "orthogonal")
        for kappa in (scale.kappas[0], scale.kappas[-1])
        for beta in scale.betas
    ]


def regimes(scale: Scale) -> list[Cell]:
    """Why β < 1 wins in Table 2, and where the variance reduction itself helps."""
    cells = []
    world = {"kappa": 1.0}
    for horizon, rounds in ((10, 8), (50, 8)):
        cells += [
            tabular(
                "regimes",
                f"H={horizon},beta={beta}",
                scale.regime_seeds,
                algorithm={"beta": beta},
                world=world | {"horizon": horizon},
                rounds=rounds,
            )
            for beta in scale.betas
        ]
    # If the weights vanish, Eq. (4) is g + (1-β)u: heavy-ball momentum. With 0.9 that is β = 0.1.
    cells.append(
        tabular(
            "regimes",
            "H=500,pavg+server momentum 0.9",
            scale.regime_seeds,
            algorithm={"name": "pavg", "server_optimizer": "momentum", "beta": 1.0},
            world=world,
        )
    )
    # PAvg with a step as large as the vanished weights give to β = 0.1 and 0.2 in the long run.
    for factor in (2, 5, 10):
        cells.append(
            tabular(
                "regimes",
                f"H=500,pavg,server_lr x{factor}",
                scale.regime_seeds,
                algorithm={"name": "pavg", "beta": 1.0, "server_lr": 1.6 * factor},
                world=world,
            )
        )
    direct = {"policy": "direct", "floor": 0.05, "lr": 0.005}
    for kernel in ("uniform", "orthogonal"):
        cells += [
            tabular(
                "regimes",
                f"direct,{kernel},beta={beta}",
                scale.regime_seeds,
                algorithm=direct | {"beta": beta},
                world=world | {"horizon": 5, "kernel": kernel},
                rounds=60,
            )
            for beta in scale.betas
        ]
    return cells


def speedup(scale: Scale) -> list[Cell]:
    """The direction's error against the number of agents, at steps small enough to see noise."""
    return [
        tabular(
            "speedup",
            f"N={clients},beta={beta}",
            scale.regime_seeds,
            algorithm={"beta": beta, "local_steps": 8, "lr": 0.002},
            world={"kappa": 1.0, "horizon": 20},
            clients=clients,
            rounds=40,
            eval_every=5,
        )
        for clients in (1, 2, 4, 8, 16, 32)
        for beta in (0.2, 1.0)
    ]


@dataclass(frozen=True)
class Task:
    """A sampled world of Figures 1, 2 and Table 3, with the grid of step sizes for all learners."""

    world: dict[str, Any]
    algorithm: dict[str, Any]
    rates: tuple[float, ...]
    seeds: int
    rounds: int
    tuning_seeds: int
    tuning_rounds: int
    eval_every: int


def tasks(scale: Scale) -> dict[str, Task]:
    shared = {"local_steps": 10, "standardize": True, "weight_clip": 1.2}
    body = {"horizon": scale.mujoco_horizon}
    every = max(1, scale.mujoco_rounds // 10)
    mujoco = (
        scale.mujoco_seeds,
        scale.mujoco_rounds,
        2 if scale.mujoco_seeds > 1 else 1,
        scale.mujoco_tuning_rounds,
        every,
    )
    found = {
        "cartpole": Task(
            {"name": "cartpole"},
            shared,
            (0.001, 0.002, 0.004, 0.008),
            scale.cartpole_seeds,
            scale.cartpole_rounds,
            scale.cartpole_tuning,
            scale.cartpole_rounds,
            max(1, scale.cartpole_rounds // 75),
        ),
        "halfcheetah": Task(
            {"name": "halfcheetah"} | body,
            shared | {"log_std": -1.0, "eval_episodes": 2, "direction_clip": 100.0},
            (0.0003, 0.001),
            *mujoco,
        ),
        "walker2d": Task(
            {"name": "walker2d"} | body,
            shared | {"log_std": -0.5, "eval_episodes": 4, "direction_clip": 30.0},
            (0.0003, 0.001, 0.003),
            *mujoco,
        ),
    }
    return {key: replace(task, rates=task.rates[: scale.most_rates]) for key, task in found.items()}


def learner_name(name: str, beta: float) -> str:
    return name if name == "pavg" else f"{name} β={beta}"


def sampled(part: str, task: Task, name: str, beta: float, rate: float, **fields: Any) -> Cell:
    settings: dict[str, Any] = {
        "clients": 5,
        "rounds": task.rounds,
        "seeds": task.seeds,
        "eval_every": task.eval_every,
    } | fields
    algorithm = task.algorithm | {"name": name, "beta": beta, "lr": rate}
    return Cell(part, f"{learner_name(name, beta)}", algorithm, task.world, **settings)


def tuning(key: str, task: Task, learners: Iterable[tuple[str, float]]) -> list[Cell]:
    cells = []
    for name, beta in learners:
        for rate in task.rates:
            one = sampled(
                f"tune_{key}",
                task,
                name,
                beta,
                rate,
                seeds=task.tuning_seeds,
                rounds=task.tuning_rounds,
                first=TUNING,
            )
            cells.append(replace(one, name=f"{one.name},rate={rate}"))
    return cells


def chosen(
    tuned: dict[str, Measured], task: Task, learners: Iterable[tuple[str, float]]
) -> dict[tuple[str, float], float]:
    """The best step size of every learner: the highest mean return over the tuning runs."""
    best = {}
    for name, beta in learners:
        scores = {
            rate: float(tuned[f"{learner_name(name, beta)},rate={rate}"].area().mean())
            for rate in task.rates
        }
        best[name, beta] = max(scores, key=lambda rate: np.nan_to_num(scores[rate], nan=-np.inf))
    return best


def figure1(key: str, task: Task, rates: dict[tuple[str, float], float]) -> list[Cell]:
    return [sampled(f"figure1_{key}", task, *learner, rate) for learner, rate in rates.items()]


def equal_step(task: Task, learners: Iterable[tuple[str, float]]) -> list[Cell]:
    """One small step size for all, a third of the rounds: before anybody has converged."""
    rounds, rate = max(1, task.rounds // 3), task.rates[min(1, len(task.rates) - 1)]
    return [
        sampled("equal_step", task, *learner, rate, rounds=rounds, eval_every=1)
        for learner in learners
    ]


def figure2(
    task: Task, rates: dict[tuple[str, float], float], agents: tuple[int, ...]
) -> list[Cell]:
    """More agents, β = 0.2: N = 4, 5, 8 (and 1, 2, 16 to see the trend)."""
    cells = []
    for name in ("fedsvrpg-m", "fedhapg-m"):
        for clients in agents:
            one = sampled("figure2", task, name, 0.2, rates[name, 0.2], clients=clients)
            cells.append(replace(one, name=f"{one.name},N={clients}"))
    return cells


PARTS: dict[str, Callable[[Scale], list[Cell]]] = {
    "table2": table2,
    "kernels": kernels,
    "regimes": regimes,
    "speedup": speedup,
}
"""Tabular parts: their cells use all cores through numba. The others are in `momentum.py`."""
