"""fedrl: federated reinforcement learning of agents, from tabular MDPs to language models.

    run = fedrl.run("momentum/cartpole", rounds=50, seed=3, algorithm={"beta": 0.2})

`run`, `resume`, `load`, `sweep` and all that the command line can do are in `fedrl.api`, which is
imported when one of them is used: `import fedrl` is quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from fedrl.core import gymnasium_registration

if TYPE_CHECKING:
    from fedrl.api import (
        Run,
        Runs,
        answer_queries,
        catalogue,
        configure,
        data_sets,
        doctor,
        draw,
        dry_run,
        fetch_data,
        flower,
        gap,
        joining,
        label_model,
        load,
        load_policy,
        new_package,
        open_world,
        parity,
        partition_tasks,
        plan,
        play_world,
        register,
        reproduce,
        resume,
        run,
        sweep,
        verify,
        warm_start,
        watch,
    )
    from fedrl.core.types import UserError

__version__ = "0.1.0"
__all__ = [
    "Run", "Runs", "UserError", "answer_queries", "catalogue", "configure", "data_sets", "doctor",
    "draw", "dry_run", "fetch_data", "flower", "gap", "joining", "label_model", "load",
    "load_policy", "new_package", "open_world", "parity", "partition_tasks", "plan", "play_world",
    "register", "reproduce", "resume", "run", "sweep", "verify", "warm_start", "watch",
]  # fmt: skip

gymnasium_registration.install()


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'fedrl' has no attribute {name!r}")
    return getattr(importlib.import_module("fedrl.api"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
