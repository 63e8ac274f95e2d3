"""The rows of FedQHD's Table 1: who learns how, what was tuned for each, and what was tried.

What a client practises (target sync, ε, replay, updates per step) and how states are scaled comes
from the task's recipe, `recipes/fedqhd/TASK.toml`, for all methods alike. What is left is a
method's own: step size, batch, bandwidth, ridge, distillation. Every method had as many tries.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

TASKS = {
    "cartpole": "CartPole",
    "acrobot": "Acrobot",
    "lunarlander": "LunarLander",
    "mountaincar": "MountainCar",
}
"""By the names of their recipes."""
ENCODERS = ("shared", "own")
"""The paper's homogeneous and heterogeneous columns."""

Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Method:
    """A row: a method in a federation. `encoders` are the columns in which it is a run of its own.

    `agree` is how clients with own encoders do.
    """

    title: str
    algorithm: str
    kind: str = "federated"
    encoders: tuple[str, ...] = ENCODERS
    agree: str = "values"

    @property
    def deep(self) -> bool:
        return self.algorithm in ("feddqn", "distill-dqn")


METHODS = {
    "independent": Method("Independent QHD", "fedqhd", "independent"),
    "truncate": Method("Truncate FedAvg-QHD", "truncate-qhd", encoders=("own",), agree="truncate"),
    "feddqn": Method("FedAvg-DQN", "feddqn", encoders=("shared",)),
    "distill": Method("Distillation FedDQN", "distill-dqn"),
    "fedqhd": Method("FedQHD", "fedqhd"),
    "corrections": Method(
        "FedQHD, corrections (ours)", "fedqhd", encoders=("own",), agree="corrections"
    ),
    "oracle-qhd": Method("Oracle QHD", "fedqhd", "centralized", ("shared",)),
    "oracle-dqn": Method("Oracle DQN", "feddqn", "centralized", ("shared",)),
}
SAME = {
    "truncate-shared": "fedqhd-shared",
    "oracle-qhd-own": "oracle-qhd-shared",
    "oracle-dqn-own": "oracle-dqn-shared",
}
"""Cells of the table that are another cell's runs: with a shared encoder nothing is cut, and a
learner alone has one encoder, or one network, that no other differs from."""


def learner(method: str, encoders: str) -> str | None:
    """The run behind a cell of the table; None where there can be none: FedAvg of other sizes."""
    name = f"{method}-{encoders}"
    return SAME.get(name, name if encoders in METHODS[method].encoders else None)


def learners() -> Iterator[tuple[str, str]]:
    """Everything that is a run of its own, as (method, encoders)."""
    for name, about in METHODS.items():
        for encoders in about.encoders:
            yield name, encoders


# Tuning

TRIES = {"cartpole": 8, "acrobot": 8, "lunarlander": 4, "mountaincar": 8}
"""Settings that were tried, for every learner alike, and one more for Distillation (`BOX`).
LunarLander's simulator is the slow one."""
SEED = 1000
"""The seed of the tries; it is reported nowhere."""

Grid = Mapping[str, Sequence[Any]]

QHD: Mapping[str, Grid] = {
    "cartpole": {"bandwidth": (0.25, 0.5, 0.75, 1.0), "lr": (0.05, 0.1)},
    "acrobot": {"bandwidth": (0.5, 0.75, 1.0, 1.5), "lr": (0.05, 0.1)},
    "lunarlander": {"bandwidth": (0.7, 1.0), "lr": (0.05, 0.1)},
    "mountaincar": {"bandwidth": (0.1, 0.15, 0.2, 0.3), "lr": (0.05, 0.1)},
}
COMPILED: Mapping[str, Grid] = {
    "cartpole": {
        "bandwidth": (0.5, 0.75), "ridge": (1e-6, 1e-3), "anchor_source": ("rollouts", "box"),
    },
    "acrobot": {
        "bandwidth": (0.75, 1.0), "ridge": (1e-6, 1e-3), "anchor_source": ("rollouts", "box"),
    },
    "lunarlander": {"bandwidth": (0.7, 1.0), "anchor_source": ("rollouts", "box")},
    "mountaincar": {
        "bandwidth": (0.15, 0.2), "ridge": (1e-6, 1e-3), "anchor_source": ("rollouts", "box"),
    },
}  # fmt: skip
DQN: Grid = {"lr": (1e-4, 3e-4, 1e-3, 3e-3), "batch": (32, 64)}
DISTILL: Grid = {"lr": (3e-4, 1e-3), "temperature": (0.1, 1.0), "distill_steps": (20, 100)}
LANDER_DQN: Grid = {"lr": (3e-4, 1e-3), "batch": (32, 64)}
LANDER_DISTILL: Grid = {"lr": (3e-4, 1e-3), "distill_steps": (20, 100)}


BOX: Mapping[str, Mapping[str, Settings]] = {
    "cartpole": {
        "distill-shared": {"lr": 3e-4, "temperature": 0.1, "distill_steps": 100},
        "distill-own": {"lr": 3e-4, "temperature": 0.1, "distill_steps": 100},
    },
    "acrobot": {
        "distill-shared": {"lr": 1e-3, "temperature": 1.0, "distill_steps": 100},
        "distill-own": {"lr": 1e-3, "temperature": 1.0, "distill_steps": 100},
    },
    "lunarlander": {
        "distill-shared": {"lr": 3e-4, "distill_steps": 20},
        "distill-own": {"lr": 1e-3, "distill_steps": 20},
    },
    "mountaincar": {
        "distill-shared": {"lr": 1e-3, "temperature": 1.0, "distill_steps": 100},
        "distill-own": {"lr": 1e-3, "temperature": 1.0, "distill_steps": 100},
    },
}
"""One more try for Distillation, which agrees on anchors as FedQHD does: the best of its others (on
MountainCar they are all alike), with anchors from the box."""


FINAL_SEEDS = (SEED + 1,)
FINALISTS: Mapping[str, Mapping[str, tuple[int, ...]]] = {
    "cartpole": {
        "independent-shared": (1, 2, 3),
        "independent-own": (2, 3, 5),
        "truncate-own": (5, 6, 7),
        "feddqn-shared": (2, 3, 4),
        "distill-shared": (1, 3, 4),
        "distill-own": (0, 1, 4),
        "fedqhd-shared": (0, 1, 3),
        "fedqhd-own": (0, 2, 4),
        "corrections-own": (2, 4, 6),
        "oracle-qhd-shared": (0, 1, 2),
        "oracle-dqn-shared": (0, 1, 3),
    },
    "acrobot": {},
    "lunarlander": {},
    "mountaincar": {},
}
"""The best three tries of each learner, tried again with FINAL_SEEDS; the best mean counts. Only on
CartPole, where some learners stay at nine steps for good with one seed and not with the next."""


def seeds(task: str, name: str, number: int) -> tuple[int, ...]:
    """With which a try was made."""
    again = number in FINALISTS[task].get(name, ())
    return (SEED, *FINAL_SEEDS) if again else (SEED,)


def tries(task: str, name: str) -> list[dict[str, Any]]:
    """The settings tried for a learner (`fedqhd-own`) on a task: all combinations of its grid."""
    if name in ("fedqhd-own", "corrections-own"):
        grid = COMPILED[task]
    elif name.startswith("distill-"):
        grid = LANDER_DISTILL if task == "lunarlander" else DISTILL
    elif name in ("feddqn-shared", "oracle-dqn-shared"):
        grid = LANDER_DQN if task == "lunarlander" else DQN
    else:
        grid = QHD[task]
    tried = [dict(zip(grid, values)) for values in itertools.product(*grid.values())]
    if name in BOX[task]:
        tried.append({**BOX[task][name], "anchor_source": "box"})
    return tried


METHOD_SETTINGS: Mapping[str, Mapping[str, Settings]] = {
    "cartpole": {
        "independent-shared": {"bandwidth": 0.5, "lr": 0.05},
        "independent-own": {"bandwidth": 0.75, "lr": 0.1},
        "truncate-own": {"bandwidth": 1.0, "lr": 0.1},
        "feddqn-shared": {"lr": 0.0003, "batch": 64},
        "distill-shared": {"lr": 0.0003, "temperature": 0.1, "distill_steps": 100},
        "distill-own": {"lr": 0.0003, "temperature": 0.1, "distill_steps": 20},
        "fedqhd-shared": {"bandwidth": 0.25, "lr": 0.05},
        "fedqhd-own": {"bandwidth": 0.5, "ridge": 1e-06, "anchor_source": "rollouts"},
        "corrections-own": {"bandwidth": 0.5, "ridge": 0.001, "anchor_source": "rollouts"},
        "oracle-qhd-shared": {"bandwidth": 0.25, "lr": 0.05},
        "oracle-dqn-shared": {"lr": 0.0001, "batch": 32},
    },
    "acrobot": {
        "independent-shared": {"bandwidth": 0.5, "lr": 0.1},
        "independent-own": {"bandwidth": 1.0, "lr": 0.1},
        "truncate-own": {"bandwidth": 1.5, "lr": 0.05},
        "feddqn-shared": {"lr": 0.001, "batch": 64},
        "distill-shared": {"lr": 0.001, "temperature": 1.0, "distill_steps": 100},
        "distill-own": {"lr": 0.001, "temperature": 1.0, "distill_steps": 20},
        "fedqhd-shared": {"bandwidth": 0.5, "lr": 0.1},
        "fedqhd-own": {"bandwidth": 1.0, "ridge": 0.001, "anchor_source": "rollouts"},
        "corrections-own": {"bandwidth": 1.0, "ridge": 0.001, "anchor_source": "box"},
        "oracle-qhd-shared": {"bandwidth": 0.5, "lr": 0.05},
        "oracle-dqn-shared": {"lr": 0.0003, "batch": 32},
    },
    "lunarlander": {
        "independent-shared": {"bandwidth": 0.7, "lr": 0.05},
        "independent-own": {"bandwidth": 1.0, "lr": 0.05},
        "truncate-own": {"bandwidth": 1.0, "lr": 0.1},
        "feddqn-shared": {"lr": 0.0003, "batch": 32},
        "distill-shared": {"lr": 0.0003, "distill_steps": 20},
        "distill-own": {"lr": 0.001, "distill_steps": 20, "anchor_source": "box"},
        "fedqhd-shared": {"bandwidth": 1.0, "lr": 0.1},
        "fedqhd-own": {"bandwidth": 1.0, "anchor_source": "box"},
        "corrections-own": {"bandwidth": 1.0, "anchor_source": "rollouts"},
        "oracle-qhd-shared": {"bandwidth": 0.7, "lr": 0.1},
        "oracle-dqn-shared": {"lr": 0.001, "batch": 64},
    },
    "mountaincar": {
        "independent-shared": {"bandwidth": 0.1, "lr": 0.1},
        "independent-own": {"bandwidth": 0.2, "lr": 0.1},
        "truncate-own": {"bandwidth": 0.3, "lr": 0.1},
        "feddqn-shared": {"lr": 0.0001, "batch": 32},
        "distill-shared": {"lr": 0.0003, "temperature": 0.1, "distill_steps": 20},
        "distill-own": {"lr": 0.0003, "temperature": 0.1, "distill_steps": 20},
        "fedqhd-shared": {"bandwidth": 0.1, "lr": 0.1},
        "fedqhd-own": {"bandwidth": 0.2, "ridge": 1e-06, "anchor_source": "box"},
        "corrections-own": {"bandwidth": 0.15, "ridge": 1e-06, "anchor_source": "box"},
        "oracle-qhd-shared": {"bandwidth": 0.1, "lr": 0.1},
        "oracle-dqn-shared": {"lr": 0.0001, "batch": 32},
    },
}
"""By task and learner, the best of its tries, or of its finalists. A learner that is not named has
the recipe's settings or, for networks, the method's defaults."""
