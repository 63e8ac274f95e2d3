"""`fedrl export`: a run's language model, or its policy, as a folder of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

from fedrl.core.types import SavesModel, UserError
from fedrl.runs import policies
from fedrl.runs.agents import build, newest_checkpoint
from fedrl.runs.new_folder import new_folder


class Exported(NamedTuple):
    """Where the folder is, of which round, and what could not be written into it, if anything."""

    path: Path
    round: int
    what: Literal["model", "policy"]
    lacking: str = ""


def export(path: Path, out: Path, client: int | None = None, own: bool = False) -> Exported:
    """Make the folder `out` of the newest checkpoint."""
    config, algorithm = build(path)
    if not isinstance(algorithm, SavesModel):
        round, lacking = policies.write(path, out, client, own)
        return Exported(out, round, "policy", lacking)
    if client is not None or own:
        raise UserError(f"{path} is a run of a language model: leave --client and --own out")
    snapshot = newest_checkpoint(path, config)
    if len(snapshot.states) > 1:
        raise UserError(
            f"{path} has {len(snapshot.states)} models, one per client: only a run with one model "
            "can be exported"
        )
    with new_folder(out) as folder:
        algorithm.save(snapshot.states[0]["theta"], folder)
    return Exported(out, snapshot.round, "model")
