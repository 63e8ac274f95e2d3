"""What a member of a federation can ask for itself: `fedrl.joining`."""

from __future__ import annotations

import contextlib
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedrl.core.registry import missing_extra
from fedrl.core.types import UserError

if TYPE_CHECKING:
    from fedrl.analysis.joining import Joining, Member


def joining(
    folder: str | Path,
    *,
    client: int = 0,
    data: str | Path | None = None,
    run: str = "",
    evaluations: int = 3,
    out: str | Path | None = None,
    own: Sequence[str] = (),
    progress: bool = True,
) -> Joining:
    """What joining brings one client, on its own held-out data: `fedrl joining --help`.

    `folder` is a run's, or a node's with `data`, the node's own; `own` are the node's settings.
    """
    from fedrl.analysis import joining as comparison

    place = Path(folder).absolute()
    alone = Path(out or place / "alone").absolute()
    if (place / "config.toml").is_file():
        member = comparison.of_run(place, client)
        return comparison.joining(member, alone, evaluations, progress)
    if data is None:
        raise UserError(f"{folder} is no run of fedrl; of a node's folder, --data is needed, too")
    member = _of_node(place, Path(data).absolute(), run, own)
    with contextlib.chdir(place):  # where a recipe's paths begin on a node
        return comparison.joining(member, alone, evaluations, progress)


def _of_node(folder: Path, data: Path, run: str, own: Sequence[str]) -> Member:
    try:
        from fedrl.engines.flower import kept_model, node_recipes
        from fedrl.engines.flower.node_plan import Refused
    except ModuleNotFoundError as error:
        raise missing_extra(error, "a node's folder", "flower") from error
    from fedrl.analysis.joining import Member

    kept = kept_model.load(folder, run)
    # The node has run this recipe's code before: its owner allowed it then.
    named = tomllib.loads(kept.recipe).get("packages", ())
    try:
        config = node_recipes.configuration(kept.recipe, own, [p.split(":")[0] for p in named])
    except Refused as error:
        raise UserError(str(error)) from error
    source = getattr(config.world, "source", "")
    if config.partition.strategy == "own" and not (data / source).exists():
        raise UserError(
            f"there is no {data / source}: --data is the folder in which {source} lies, as of the "
            "node"
        )
    return Member(config, kept.client, data, kept.broadcast, kept.state, len(kept.rounds))
