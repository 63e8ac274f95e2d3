"""`fedrl eval`: a run's last checkpoint, client by client, or on one split of tasks."""

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING

from fedrl.cli.parser import Parser
from fedrl.core.registry import label
from fedrl.core.types import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from fedrl.api import Run
    from fedrl.core.types import Json
    from fedrl.runs.agents import SplitEvaluation
    from fedrl.runs.evaluate import Evaluation

EVAL = "Evaluate a run's last checkpoint on fresh episodes (tabular worlds: exactly), by client."


def eval_(argv: list[str]) -> int:
    """Evaluate a run's last checkpoint, client by client."""
    parser = Parser("fedrl eval", description=EVAL)
    parser.add_argument("run", type=Path, metavar="RUN", help="the run's folder")
    parser.add_argument("--episodes", type=int, default=100, help="per client (100)")
    parser.add_argument("--seed", type=int, default=0, help="of these episodes (0)")
    parser.add_argument("--split", help="language agents: which tasks, by type (seen, unseen, …)")
    parser.add_argument("--json", action="store_true", help="print the numbers for programs")
    asked = parser.parse_args(argv)
    if asked.seed < 0:
        raise UserError(f"--seed is {asked.seed}; it must not be negative")
    from fedrl import api

    run = api.Run(asked.run)
    if asked.split is not None:
        split = run.evaluate_split(asked.split, asked.seed)
        if asked.json:
            print(json.dumps(of_what(run, asked.seed) | split_numbers(split), indent=1))
        else:
            show_split(split)
        return 0
    found = run.evaluate(asked.episodes, asked.seed)
    if asked.json:
        of = of_what(run, asked.seed) | {"episodes": asked.episodes}
        print(json.dumps(of | numbers(found, names_of(run, found)), indent=1))
    else:
        show(run, found)
    return 0


def of_what(run: "Run", seed: int) -> "Json":
    """Who keeps many of these files wants to know what each is of. `seed` is of these episodes, the
    run's own stands beside its settings."""
    config = run.config
    method, world = (label(config[table]["name"]) for table in ("algorithm", "world"))
    of = {"run": str(run.path), "method": method, "world": world, "run_seed": config["seed"]}
    return of | {"seed": seed}


def row(
    name: str,
    tasks: int | None,
    success: float | None,
    paid: float | None,
    alone: bool,
) -> "Json":
    """Of a client, of a type of task, or of all: the same keys, null where there is no such number.
    The interval is of one model's share of tasks won."""
    from fedrl.core.intervals import wilson

    known = alone and tasks and success is not None
    interval = list(wilson(success, tasks)) if known else None  # type: ignore[arg-type]
    return {"name": name, "tasks": tasks, "success": success, "interval": interval, "return": paid}


def names_of(run: "Run", found: "Evaluation") -> list[str]:
    """Of the rows; of clients without names of their own their numbers."""
    from fedrl.runs.client_names import kept_names
    from fedrl.runs.run_dir import RunDir

    names = kept_names(RunDir(run.path).read_meta())
    count = len(found.by_client)  # a row may be a user of a client
    return names if len(names) == count else [str(client) for client in range(count)]


def numbers(found: "Evaluation", names: "Sequence[str]") -> "Json":
    """Null where a client holds nothing out."""
    import numpy as np

    def listed(values: "np.ndarray") -> list[float | None]:
        return [None if math.isnan(value) else float(value) for value in values]

    nothing: list[float | None] = [None] * len(names)
    won_or_lost = found.measure == "success"
    paid = nothing if won_or_lost else listed(found.by_client)
    won = found.by_client if won_or_lost else found.success
    success = nothing if won is None else listed(won)
    tasks = [None] * len(names) if found.tasks is None else [int(n) for n in found.tasks]
    alone = found.models == 1
    return {
        "all": row(
            "all",
            None if found.tasks is None else int(found.tasks.sum()),
            None if won is None else float(np.nanmean(won)),  # each client counts the same
            None if won_or_lost else found.mean,
            alone=False,
        ),
        "rows": [
            row(*of_client, alone) for of_client in zip(names, tasks, success, paid, strict=True)
        ],
        "round": found.round,
        "measure": found.measure,
        "mean": found.mean,
        "by_client": listed(found.by_client),
        "own": None if found.own is None else listed(found.own),
    } | ({} if found.success is None else {"success": listed(found.success)})


def split_numbers(found: "SplitEvaluation") -> "Json":
    kinds = sorted(set(map(str, found.category)))
    places = {kind: [str(one) == kind for one in found.category] for kind in kinds}
    by_kind = {kind: found.won[there] for kind, there in places.items()}

    def told(name: str, there: "list[bool] | slice") -> "Json":
        won, paid = found.won[there], None if found.returns is None else found.returns[there]
        mean = None if paid is None else float(paid.mean())
        return row(name, len(won), float(won.mean()), mean, found.models == 1)

    return {
        "measure": "success" if found.returns is None else "mean return",
        "mean": found.mean if found.returns is None else float(found.returns.mean()),
        "all": told("all", slice(None)),
        "rows": [told(kind, there) for kind, there in places.items()],
        "round": found.round,
        "split": found.split,
        "models": found.models,
        "tasks": len(found.won),
        **({} if found.returns is None else {"return": float(found.returns.mean())}),
        "success": found.mean,
        "by_type": {k: {"tasks": len(w), "success": float(w.mean())} for k, w in by_kind.items()},
    }


def show(run: "Run", found: "Evaluation") -> None:
    """A row per client, and all of them in a line."""
    import numpy as np
    from rich.console import Console
    from rich.table import Table

    from fedrl.runs.client_names import client_name

    method, world = (label(run.config[table]["name"]) for table in ("algorithm", "world"))
    table = Table(title=f"{method} on {world}, round {found.round}")
    names = names_of(run, found)
    table.add_column("client", justify="right")
    table.add_column(found.measure, justify="right")
    if found.success is not None:
        table.add_column("success", justify="right")
    if found.own is not None:
        table.add_column("of its own model", justify="right")
    for client, value in enumerate(found.by_client):
        further = [each for each in (found.success, found.own) if each is not None]
        row = [value, *(each[client] for each in further)]
        name = client_name(client, names).removeprefix("client ")
        table.add_row(name, *("–" if math.isnan(one) else f"{one:.3f}" for one in row))
    console = Console(highlight=False)
    console.print(table)
    known = [
        value for value in found.by_client if not math.isnan(value)
    ]  # the others hold nothing out
    worst, best = min(known), max(known)
    rate = "" if found.success is None else f"; success {np.nanmean(found.success):.1%}"
    console.print(
        f"all {len(known)} clients: mean {found.mean:.4f}, worst {worst:.4f}, best {best:.4f}{rate}"
    )
    if found.own is not None:
        mine = found.own
        console.print(
            f"of their own models: mean {mine.mean():.4f}, worst {mine.min():.4f}, "
            f"best {mine.max():.4f}"
        )


def show_split(found: "SplitEvaluation") -> None:
    """Success by type of task.

    The interval is of one model: the mean of several is no share of tasks won.
    """
    from rich.console import Console
    from rich.table import Table

    alone = found.models == 1
    paid = found.returns
    leading = "success" if paid is None else "mean return"
    table = Table(title=f"{leading} on {found.split}, round {found.round}")
    columns = ("type of task", "tasks", *[leading] * (paid is not None), "success")
    for column in (*columns, *["95% interval"] * alone):
        table.add_column(column, justify="left" if column == "type of task" else "right")

    def row(chosen: "np.ndarray") -> list[str]:
        count, *share = _share(found.won[chosen], alone)
        return [count, *([] if paid is None else [f"{paid[chosen].mean():.3f}"]), *share]

    for kind in sorted(set(found.category)):
        table.add_row(str(kind), *row(found.category == kind))
    table.add_row("all", *row(found.category == found.category), style="bold")
    console = Console(highlight=False)
    console.print(table)
    console.print(
        "Answers are drawn anew, at the evaluation's temperature: a run's own number for the same "
        "model and tasks may differ by chance."
    )


def _share(won: "np.ndarray", interval: bool) -> list[str]:
    """How many, what share of them was won, and between which shares that leaves the truth."""
    from fedrl.core.intervals import wilson

    low, high = wilson(float(won.mean()), len(won))
    return [str(len(won)), f"{won.mean():.1%}", *[f"{low:.1%} – {high:.1%}"] * interval]
