"""Anchors: the states on which clients that cannot average weights compare their values.

They are made once, by the server, and go to every client, so they should be public. Three sources:

    rollouts  visited by random play in the world: near the start, and known to be possible
    box       drawn uniformly from the box of plausible states: needs no simulator, and covers what
              random play never sees (the top of the hill, a landing), and what nobody ever sees
    file      the user's own, for instance what a public policy visits

What anchors, and values on them, tell about clients is in docs/fedqhd.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from fedrl.core import seeding
from fedrl.core.types import UserError
from fedrl.envs.discrete.worlds import random_states
from fedrl.envs.interfaces import DiscreteWorld

Source = Literal["rollouts", "box", "file"]

DEFAULT = 200
"""m of the paper."""
FORMATS = (".npy", ".csv")
STANDING = 0.25
"""Share of a box's landers that touch the ground."""


class Box(NamedTuple):
    low: tuple[float, ...]
    high: tuple[float, ...]


BOXES = {
    # The limits of position and angle (12°) end an episode; speeds have none, but good play keeps
    # well within 3.
    "cartpole-v1": Box((-2.4, -3.0, -0.2094, -3.0), (2.4, 3.0, 0.2094, 3.0)),
    # Two angles and two speeds. The world's own limits of speed, 4π and 9π, are far outside what an
    # arm that is swung up reaches: 99 of 100 states lie within 6 and 12.
    "acrobot-v1": Box((-np.pi, -np.pi, -6.0, -12.0), (np.pi, np.pi, 6.0, 12.0)),
    # From the wall to the flag, and both ways at top speed.
    "mountaincar-v0": Box((-1.2, -0.07), (0.5, 0.07)),
    # x and y in half viewports from the pad, speeds, angle and spin as a pilot who lands has them;
    # the legs are drawn apart from these.
    "lunarlander-v3": Box((-1.0, 0.0, -1.0, -1.5, -0.8, -1.0), (1.0, 1.5, 1.0, 0.5, 0.8, 1.0)),
}


def check(count: int, source: Source, file: str, used: bool = True) -> None:
    """Settings that contradict each other; `used` says whether clients agree on anchors at all."""
    if count < 1:
        raise UserError(f"algorithm.anchors is {count}; it must be at least 1")
    if not used and (source != "rollouts" or file):
        raise UserError(
            "algorithm.anchor_source and anchor_file are for clients that agree on values: "
            'set encoders = "own" and agree = "values" or "corrections", or remove them'
        )
    if source == "file" and not file:
        raise UserError(
            'algorithm.anchor_source is "file": name it, anchor_file = "states.npy" or a .csv'
        )
    if source != "file" and file:
        raise UserError(
            f'algorithm.anchor_file is {file!r}, but anchor_source is "{source}": '
            'set anchor_source = "file", or remove the file'
        )
    if file and Path(file).suffix.lower() not in FORMATS:
        raise UserError(f"algorithm.anchor_file is {file!r}; it must end in .npy or .csv")


def draw(world: DiscreteWorld, count: int, source: Source, file: str, seed: int) -> np.ndarray:
    """Anchors [m, dimension] float32, not scaled; m is `count`, or what the file holds."""
    if source == "rollouts":
        return random_states(world, count, seed)
    if source == "box":
        return box_states(world, count, seed)
    states = read_states(Path(file), world)
    if count not in (DEFAULT, len(states)):
        raise UserError(
            f"algorithm.anchors is {count}, but {file} holds {len(states)} states: "
            "remove anchors, the file decides"
        )
    return states


def box_states(world: DiscreteWorld, count: int, seed: int) -> np.ndarray:
    """`count` states [count, dimension] float32, uniform in the world's box, not scaled."""
    if world.name not in BOXES:
        raise UserError(
            f'algorithm.anchor_source is "box", but nothing is known of which states of '
            f'{world.name} are plausible: use "rollouts" or "file"'
        )
    random = seeding.generator(seed, "world.anchors.box")
    drawn = random.uniform(*BOXES[world.name], size=(count, len(BOXES[world.name].low)))
    if world.name == "acrobot-v1":  # it shows an angle by its cosine and sine
        first, second = drawn[:, 0], drawn[:, 1]
        circles = [np.cos(first), np.sin(first), np.cos(second), np.sin(second)]
        drawn = np.column_stack([*circles, drawn[:, 2:]])
    if world.name == "lunarlander-v3":
        drawn = np.hstack([drawn, np.zeros((count, 2))])
        _stand(drawn, random)
    return drawn.astype(np.float32)


def _stand(landers: np.ndarray, random: np.random.Generator) -> None:
    """Some stand on one leg or both, low and slow; the others fly. In place."""
    stands = random.random(len(landers)) < STANDING
    legs = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])[random.integers(3, size=len(landers))]
    landers[stands, 1] = random.uniform(-0.05, 0.05, size=len(landers))[stands]
    landers[stands, 2:6] *= 0.2
    landers[stands, 6:] = legs[stands]


def read_states(path: Path, world: DiscreteWorld) -> np.ndarray:
    """The states of a file [m, dimension] as float32; what cannot be used is said in one line."""
    key = f"algorithm.anchor_file: {path}"
    try:
        table = _csv(path, key) if path.suffix.lower() == ".csv" else np.load(path)
    except OSError as error:
        raise UserError(f"{key} cannot be read: {error.strerror or error}") from error
    except (ValueError, EOFError) as error:  # another format, a torn file, or Python objects
        raise UserError(f"{key} is no {path.suffix.lower()} file of numbers") from error
    if not (isinstance(table, np.ndarray) and table.ndim == 2 and table.dtype.kind in "iuf"):
        raise UserError(f"{key} must hold a table of numbers, one state per row")
    if not len(table):
        raise UserError(f"{key} holds no state")
    if table.shape[1] != world.dimension:
        raise UserError(
            f"{key} has {table.shape[1]} columns; a state of {world.name} has {world.dimension}"
        )
    with np.errstate(over="ignore"):
        states = table.astype(np.float32)
    broken = ~np.isfinite(states).all(axis=1)
    if broken.any():
        raise UserError(f"{key}: row {int(broken.argmax()) + 1} has a number that is not finite")
    return states


def _csv(path: Path, key: str) -> np.ndarray:
    rows: list[list[float]] = []
    for number, line in enumerate(path.read_text(encoding="utf-8-sig").splitlines(), 1):
        if not line.strip():
            continue
        try:
            rows.append([float(word) for word in line.split(",")])
        except ValueError as error:
            raise UserError(
                f"{key}: line {number} is not numbers with commas between them (no header, please)"
            ) from error
        if len(rows[-1]) != len(rows[0]):
            raise UserError(
                f"{key}: line {number} has {len(rows[-1])} columns, the first line {len(rows[0])}"
            )
    return np.array(rows).reshape(len(rows), -1 if rows else 0)
