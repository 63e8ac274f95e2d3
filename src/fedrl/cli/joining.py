"""`fedrl joining`: what joining a federation brings one client."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from fedrl.cli.flower import own_settings
from fedrl.cli.parser import Parser

if TYPE_CHECKING:
    from fedrl.analysis.joining import Joining
    from fedrl.core.types import Json

JOINING = """\
Compare, on one client's own held-out data, the federation's model with the client's own training
alone at the same work. FOLDER is a run of `partition.strategy = "own"` on this machine, or the
folder of a node that was started with --keep-model. Nothing is sent. A node's own settings go
after --, as for `fedrl flower node`."""


FEWEST = 10
"""Held-out items below which an interval means nothing: all may differ alike by chance."""


def joining(argv: list[str]) -> int:
    """What joining a federation brings one client."""
    argv, own = own_settings(argv)
    parser = Parser("fedrl joining", description=JOINING)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="of a run, or of a node")
    parser.add_argument("--client", type=int, default=0, help="of a run: which one (0)")
    parser.add_argument("--data", type=Path, help="of a node: its own data")
    parser.add_argument("--run", default="", help="of a node: which run, if it kept several")
    parser.add_argument("--evaluations", type=int, default=3, help="of every held-out task (3)")
    parser.add_argument("--out", type=Path, help="for the training alone (FOLDER/alone)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there, too")
    asked = parser.parse_args(argv)
    from fedrl import api

    found = api.joining(
        asked.folder,
        client=asked.client,
        data=asked.data,
        run=asked.run,
        evaluations=asked.evaluations,
        out=asked.out,
        own=own,
    )
    show(found)
    if asked.json is not None:
        asked.json.write_text(json.dumps(numbers(found), indent=1) + "\n")
    return 0


def numbers(found: "Joining") -> "Json":
    """Means, and the gain with half of its interval; no task's own score."""
    gain, half = found.gain()
    return {
        "client": found.client,
        "rounds": found.rounds,
        "held_out": len(found.start),
        "measure": found.measure,
        "start": float(found.start.mean()),
        "alone": float(found.alone.mean()),
        "federated": float(found.federated.mean()),
        "gain": gain,
        "half": half,
    } | ({} if found.success is None else {"success": dict(found.success)})


def show(found: "Joining") -> None:
    from rich.console import Console
    from rich.table import Table

    told = numbers(found)
    table = Table(title=f"client {found.client}: {len(found.start)} held-out items of its own")
    table.add_column("model")
    table.add_column(found.measure, justify="right")
    if found.success is not None:
        table.add_column("success", justify="right")
    alone = f"alone, {found.rounds} rounds"
    for called, model in (("at the start", "start"), (alone, "alone"), ("federated", "federated")):
        beside = [] if found.success is None else [f"{found.success[model]:.3f}"]
        table.add_row(called, f"{told[model]:.3f}", *beside)
    console = Console(highlight=False)
    console.print(table)
    console.print(
        f"joining brings {told['gain']:+.3f} ± {told['half']:.3f} of {found.measure} "
        "(95% over held-out items): " + verdict(told["gain"], told["half"], len(found.start))
    )


def verdict(gain: float, half: float, count: int) -> str:
    if count < FEWEST:
        return f"{count} items are too few to tell ({FEWEST} at least)"
    if gain > half:
        return "the federated model is better here"
    if gain < -half:
        return "training alone is better here"
    return "no difference that these items could show"
