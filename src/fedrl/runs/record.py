"""`fedrl record`: an animation of what a run has learned, in one client's environment."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedrl.config.build import build_world
from fedrl.config.loading import read_recipe, resolve
from fedrl.core.abilities import Policy
from fedrl.core.types import UserError
from fedrl.engines.in_process import one_line
from fedrl.envs.rendering import RenderedEnvironment, drawn
from fedrl.runs.policies import learned
from fedrl.runs.run_dir import require_run

MOST = 2000
"""Pictures of one file: forty seconds of most worlds."""
COLOURS = 64
"""Of a GIF's palette."""
LINGER = 15
"""Times that an episode's last picture is shown."""


class Recording(NamedTuple):
    """The file, and the return and length of every episode that it shows."""

    path: Path
    returns: list[float]
    steps: list[int]


def record(
    path: Path,
    out: Path | None = None,
    client: int = 0,
    episodes: int = 1,
    seed: int = 0,
    own: bool = False,
    greedy: bool = False,
) -> Recording:
    """Play episodes with the newest checkpoint's policy and write them as a GIF or an MP4.

    A stochastic policy draws its actions, as in the run's evaluation, unless `greedy`.
    """
    require_run(path)
    target = out or path / "episode.gif"
    _check_target(target)
    if episodes < 1:
        raise UserError(f"--episodes is {episodes}; it must be at least 1")
    if sys.platform == "linux" and not os.environ.get("DISPLAY"):
        os.environ.setdefault("MUJOCO_GL", "egl")  # before MuJoCo and pygame are imported
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    config = resolve(read_recipe(path / "config.toml"))
    world = build_world(config)
    policy = _policy(path, client, own)
    env = drawn(world, config.world.name, client)
    rng = None if greedy else np.random.default_rng([seed, client])
    limit = int(getattr(world, "horizon", 0) or getattr(world, "limit", MOST))
    frames: list[np.ndarray] = []
    returns, steps = [], []
    try:
        for episode in range(episodes):
            total, count = _play(env, policy, rng, seed + episode, limit, frames, episode)
            returns.append(total)
            steps.append(count)
    finally:
        env.close()
    _write(target, frames, float(env.metadata.get("render_fps", 30)))
    return Recording(target, returns, steps)


def _policy(path: Path, client: int, own: bool) -> Policy:
    """The client's, where each has its own; else everybody's."""
    return learned(path, client, own).policy


def _play(
    env: RenderedEnvironment,
    policy: Policy,
    rng: np.random.Generator | None,
    seed: int,
    limit: int,
    frames: list[np.ndarray],
    episode: int,
) -> tuple[float, int]:
    """One episode: its return and length; pictures are added to `frames`."""
    observation, _ = env.reset(seed=seed)
    total, count, over = 0.0, 0, False
    while not over and count < limit:
        _add(frames, env, f"episode {episode + 1}   step {count}   return {total:.4g}")
        observation, reward, terminated, truncated, _ = env.step(policy.act(observation, rng))
        total, count, over = total + float(reward), count + 1, terminated or truncated
    _add(frames, env, f"episode {episode + 1}   step {count}   return {total:.4g}")
    frames += frames[-1:] * (LINGER - 1)
    return total, count


def _add(frames: list[np.ndarray], env: RenderedEnvironment, caption: str) -> None:
    if len(frames) >= MOST:
        return
    try:
        shown = np.asarray(env.render(), np.uint8)
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"this world cannot be drawn here: {one_line(error)}; MuJoCo draws with OpenGL: try "
            "MUJOCO_GL=egl or MUJOCO_GL=osmesa"
        ) from error
    frames.append(_captioned(shown, caption))


def _captioned(shown: np.ndarray, caption: str) -> np.ndarray:
    from PIL import Image, ImageDraw

    image = Image.fromarray(shown)
    pen = ImageDraw.Draw(image)
    left, top, right, bottom = pen.textbbox((10, 8), caption, font_size=14)
    pen.rectangle((left - 5, top - 4, right + 5, bottom + 4), "white")
    pen.text((10, 8), caption, "black", font_size=14)
    return np.asarray(image)


def _check_target(target: Path) -> None:
    if target.suffix not in (".gif", ".mp4"):
        raise UserError(f"--out is {target}; name a .gif file, or an .mp4")
    if target.suffix == ".mp4":
        _video()
    if not target.parent.is_dir():
        raise UserError(f"--out {target}: there is no folder {target.parent}")


def _video() -> Any:
    try:
        import imageio_ffmpeg
    except ModuleNotFoundError as error:
        raise UserError(
            "an .mp4 needs the package imageio-ffmpeg: pip install imageio-ffmpeg; a .gif does not"
        ) from error
    return imageio_ffmpeg


def _write(target: Path, frames: list[np.ndarray], per_second: float) -> None:
    if target.suffix == ".mp4":
        height, width = frames[0].shape[:2]
        writer = _video().write_frames(str(target), (width, height), fps=per_second)
        writer.send(None)
        for frame in frames:
            writer.send(np.ascontiguousarray(frame))
        writer.close()
        return
    from PIL import Image

    quick = Image.Quantize.FASTOCTREE
    images = [Image.fromarray(frame).quantize(COLOURS, quick) for frame in frames]
    pause = max(20, round(1000 / per_second / 10) * 10)  # browsers slow down what is quicker
    try:
        images[0].save(
            target, save_all=True, append_images=images[1:], duration=pause, loop=0, optimize=False
        )
    except OSError as error:
        raise UserError(f"cannot write {target}: {error.strerror or error}") from error
