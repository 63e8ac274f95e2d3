"""Environments that can be looked at: Gymnasium's own pictures, or ours where pygame is missing.

A world that can be recorded (`fedrl record`) gives a client's environment with `rendered(client)`:
Gymnasium's interface, with `render()` as a picture [height, width, 3] of bytes. Of a world of one's
own (`EnvironmentWorld`) it is enough that its environments have `render()` or `frame()`.
"""

from __future__ import annotations

import importlib.util
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, SupportsFloat, runtime_checkable

import numpy as np

from fedrl.core.types import UserError
from fedrl.envs.simulated import Environment, EnvironmentWorld

WIDTH, HEIGHT = 600, 400
Options = Mapping[str, Any]
Point = tuple[float, float]


class RenderedEnvironment(Protocol):
    """What a recording needs of an environment; Gymnasium's have it."""

    metadata: dict[str, Any]

    def reset(self, *, seed: int | None = None) -> tuple[Any, dict[str, Any]]: ...

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]: ...

    def render(self) -> Any: ...

    def close(self) -> None: ...


@runtime_checkable
class Rendered(Protocol):
    """A world whose episodes can be drawn; of a batch of clients, one at a time."""

    def rendered(self, client: int) -> RenderedEnvironment: ...


@runtime_checkable
class Renders(Protocol):
    """An environment with pictures, as Gymnasium has them."""

    def render(self) -> Any: ...


@runtime_checkable
class Frames(Protocol):
    """The same in a word of its own."""

    def frame(self) -> Any: ...


def drawn(world: object, name: str, client: int) -> RenderedEnvironment:
    """The client's environment with pictures, or in a line what its world lacks for them."""
    if isinstance(world, Rendered):
        return world.rendered(client)
    if not isinstance(world, EnvironmentWorld):
        raise UserError(
            f"the world {name} has no pictures: only control worlds have, and those with a method "
            "rendered(client), an environment with render()"
        )
    env = world.environment(client)
    if isinstance(env, Frames):
        return OwnPictures(env, env.frame, name)
    if isinstance(env, Renders):
        return OwnPictures(env, env.render, name)
    raise _without_pictures(name)


def _without_pictures(name: str) -> UserError:
    return UserError(
        f"the world {name} has no pictures: its environments need a method render() or frame(), "
        "a picture [height, width, 3] of bytes"
    )


class OwnPictures:
    """An environment of one's own with its pictures, small ones enlarged."""

    def __init__(self, env: Environment, picture: Callable[[], Any], name: str) -> None:
        self.env, self.picture, self.name = env, picture, name
        self.metadata: dict[str, Any] = getattr(env, "metadata", {})
        bare = getattr(env, "unwrapped", env)
        if getattr(bare, "render_mode", "") is None:  # Gymnasium's default
            setattr(bare, "render_mode", "rgb_array")  # noqa: B010 - others' environments

    def reset(self, *, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        assert seed is not None
        seen, info = self.env.reset(seed=seed)
        return seen, dict(info)

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        seen, reward, terminated, truncated, info = self.env.step(action)
        return seen, reward, terminated, truncated, dict(info)

    def render(self) -> np.ndarray:
        try:
            given = self.picture()
        except NotImplementedError as error:  # of Gymnasium's own class
            raise _without_pictures(self.name) from error
        shown = np.asarray(given)
        if shown.ndim == 2:  # shades of grey
            shown = np.stack([shown] * 3, -1)
        if shown.ndim != 3 or shown.shape[-1] != 3 or shown.dtype.kind not in "iu":
            raise UserError(
                f"the world {self.name} shows {type(given).__name__} {list(shown.shape)} of "
                f"{shown.dtype}; a picture is [height, width, 3] of bytes"
            )
        times = max(1, HEIGHT // max(shown.shape[:2]))
        return shown.repeat(times, 0).repeat(times, 1).astype(np.uint8)

    def close(self) -> None:
        close = getattr(self.env, "close", None)
        if callable(close):
            close()


def twin(
    id: str, attributes: Options | None = None, reset: Options | None = None, **options: Any
) -> RenderedEnvironment:
    """Gymnasium's environment of this id, with other physics and starts, to be drawn."""
    try:
        import gymnasium
    except ModuleNotFoundError as error:
        raise UserError(f'drawing {id} needs Gymnasium: pip install "fedrl[gym]"') from error
    own = DRAWINGS.get(id) if importlib.util.find_spec("pygame") is None else None
    mode: Options = {} if own is not None else {"render_mode": "rgb_array"}
    try:
        made: gymnasium.Env[Any, Any] = gymnasium.make(id, **mode, **options)
    except (gymnasium.error.Error, ModuleNotFoundError) as error:
        raise UserError(f"{id} cannot be drawn here: {error}") from error
    for name, value in (attributes or {}).items():
        setattr(made.unwrapped, name, value)
    return Twin(made, dict(reset or {}), own)


class Twin:
    """An environment whose resets have options of their own, and perhaps a drawing of ours."""

    def __init__(self, env: Any, reset: dict[str, Any], drawing: Any = None) -> None:
        self.env, self.options, self.drawing = env, reset, drawing
        self.metadata: dict[str, Any] = env.metadata

    def reset(self, *, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        found: tuple[Any, dict[str, Any]] = self.env.reset(seed=seed, options=self.options or None)
        return found

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        found: tuple[Any, float, bool, bool, dict[str, Any]] = self.env.step(action)
        return found

    def render(self) -> Any:
        if self.drawing is None:
            return self.env.render()
        return self.drawing(np.asarray(self.env.unwrapped.state, float))

    def close(self) -> None:
        self.env.close()


# Drawings of our own, by the state of Gymnasium's environment


def draw_cartpole(state: np.ndarray) -> np.ndarray:
    """A cart on its track, ±2.4 wide, and the pole, whose angle counts from upright."""
    x, angle = WIDTH / 2 + state[0] * WIDTH / 5, state[2]
    track, length = 300.0, 125.0
    tip = (x + length * math.sin(angle), track - 15 - length * math.cos(angle))
    return picture(
        [((0, track), (WIDTH, track), 2, "black"), ((x, track - 15), tip, 10, "#ca9865")],
        [(x - 25, track - 15, x + 25, track + 15, "black")],
    )


def draw_acrobot(state: np.ndarray) -> np.ndarray:
    """Two links that hang from the middle; the line is the height to be reached."""
    scale, middle = 80.0, (WIDTH / 2, HEIGHT / 2)
    first, both = state[0], state[0] + state[1]
    elbow = (middle[0] + scale * math.sin(first), middle[1] + scale * math.cos(first))
    hand = (elbow[0] + scale * math.sin(both), elbow[1] + scale * math.cos(both))
    goal = middle[1] - scale
    return picture(
        [
            ((0, goal), (WIDTH, goal), 1, "black"),
            (middle, elbow, 14, "#00a0a0"),
            (elbow, hand, 14, "#00c8c8"),
        ],
        dots=[(*middle, 9), (*elbow, 9)],
    )


def draw_mountaincar(state: np.ndarray) -> np.ndarray:
    """The valley sin(3x), the car, and the flag at 0.5."""

    def place(x: float) -> Point:
        return (x + 1.2) / 1.8 * WIDTH, HEIGHT - (math.sin(3 * x) * 0.45 + 0.55) * HEIGHT / 1.6 - 30

    ground = [place(x) for x in np.linspace(-1.2, 0.6, 100)]
    lines = [(a, b, 2, "black") for a, b in itertools.pairwise(ground)]
    flag, car = place(0.5), place(float(state[0]))
    pole = (flag[0], flag[1] - 50)
    lines += [(flag, pole, 2, "black"), (pole, (flag[0] + 25, flag[1] - 42), 8, "#cccc00")]
    return picture(lines, dots=[(car[0], car[1] - 11, 11)])


def picture(
    lines: Sequence[tuple[Point, Point, int, str]],
    boxes: Sequence[tuple[float, float, float, float, str]] = (),
    dots: Sequence[tuple[float, float, float]] = (),
) -> np.ndarray:
    """Lines (from, to, width, colour), boxes (left, top, right, bottom, colour), dots (x, y, r)."""
    from PIL import Image, ImageDraw

    image = Image.new("RGB", (WIDTH, HEIGHT), "white")
    pen = ImageDraw.Draw(image)
    for *corners, colour in boxes:
        pen.rectangle(corners, colour)
    for start, end, width, colour in lines:
        pen.line([start, end], colour, width)
    for x, y, radius in dots:
        pen.ellipse((x - radius, y - radius, x + radius, y + radius), "#505050")
    return np.asarray(image)


DRAWINGS = {
    "CartPole-v1": draw_cartpole,
    "Acrobot-v1": draw_acrobot,
    "MountainCar-v0": draw_mountaincar,
}
