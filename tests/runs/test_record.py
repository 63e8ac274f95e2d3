"""`fedrl record`: pictures of a policy at work."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

import fedrl
from fedrl.cli import call
from fedrl.config.build import build_world
from fedrl.envs import rendering
from fedrl.runs.record import LINGER

gymnasium = pytest.importorskip("gymnasium")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> fedrl.Run:
    """Two clients of FedAvg-DQN that have hardly begun."""
    return fedrl.run(
        {
            "algorithm": {"name": "feddqn", "hidden": [8, 8], "episodes": 1},
            "world": {"name": "cartpole-v1"}, "federation": {"clients": 2}, "rounds": 1,
            "out": str(tmp_path_factory.mktemp("runs")),
        }
    )  # fmt: skip


def frames(path: Path) -> int:
    from PIL import Image

    with Image.open(path) as image:
        assert image.format == "GIF"
        assert image.size == (600, 400)
        return image.n_frames


def test_an_animation_shows_every_step(run: fedrl.Run, tmp_path: Path, monkeypatch, capsys):
    """Drawn by ourselves: pygame may be missing. The last picture stays for a while."""
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n: None if n == "pygame" else find(n))
    done = run.record(tmp_path / "a.gif", episodes=2, seed=4)
    # A picture that stays is one of a longer duration.
    assert frames(done.path) in (sum(done.steps) + 2, sum(done.steps) + 2 * LINGER)
    assert done.returns == [float(steps) for steps in done.steps]  # a point per step upright
    again = run.record(tmp_path / "b.gif", episodes=2, seed=4)
    assert again.returns == done.returns
    assert again.path.read_bytes() == done.path.read_bytes()
    capsys.readouterr()
    assert call(["record", str(run.path), "--seed", "4"]) == 0
    assert capsys.readouterr().out == (
        f"return {done.returns[0]:.4g} in {done.steps[0]} steps\n"
        f"animation: {run.path / 'episode.gif'}\n"
    )


def test_gymnasiums_own_pictures(run: fedrl.Run, tmp_path: Path):
    pytest.importorskip("pygame")
    done = run.record(tmp_path / "a.gif")
    assert frames(done.path) >= done.steps[0] + 1


def test_a_world_of_any_id_is_drawn(tmp_path: Path):
    pytest.importorskip("pygame")
    made = fedrl.run(
        {
            "algorithm": {"name": "feddqn", "hidden": [8, 8], "episodes": 1, "eval_episodes": 1},
            "world": {"name": "gymnasium", "id": "MountainCar-v0", "horizon": 8},
            "federation": {"clients": 2}, "rounds": 1, "out": str(tmp_path),
        }
    )  # fmt: skip
    done = made.record(tmp_path / "a.gif", client=1)
    assert done.steps == [8]  # the world's own limit
    assert frames(done.path) >= 9


def test_mistakes_are_told_before_anything_is_played(run: fedrl.Run, tmp_path: Path, monkeypatch):
    with pytest.raises(fedrl.UserError, match=r"name a \.gif file, or an \.mp4"):
        run.record(tmp_path / "a.png")
    with pytest.raises(fedrl.UserError, match="there is no folder"):
        run.record(tmp_path / "nowhere" / "a.gif")
    with pytest.raises(fedrl.UserError, match="--episodes is 0"):
        run.record(tmp_path / "a.gif", episodes=0)
    with pytest.raises(fedrl.UserError, match="client is 2; it is 0 to 1"):
        run.record(tmp_path / "a.gif", client=2)
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(fedrl.UserError, match="needs the package imageio-ffmpeg"):
        run.record(tmp_path / "a.mp4")
    assert list(tmp_path.iterdir()) == []


def test_a_world_without_pictures_is_told(tmp_path: Path):
    made = fedrl.run(
        "momentum/random_mdp", rounds=1, federation={"clients": 2}, out=tmp_path,
        world={"states": 3, "actions": 2},
    )  # fmt: skip
    with pytest.raises(fedrl.UserError, match="the world random_mdp has no pictures"):
        made.record()


def test_what_cannot_be_drawn_here_is_one_line(run: fedrl.Run, tmp_path: Path, monkeypatch):
    def no_window(self: rendering.Twin) -> None:
        raise RuntimeError("no display")

    monkeypatch.setattr(rendering.Twin, "render", no_window)
    with pytest.raises(fedrl.UserError, match=r"cannot be drawn here: .*no display"):
        run.record(tmp_path / "a.gif")


def test_the_twin_of_a_client_has_its_physics():
    """Steps of Gymnasium's CartPole with a client's numbers are those of our compiled one."""
    import jax.numpy as jnp

    from fedrl.envs.control.cartpole import physics_step

    config = fedrl.configure(
        "momentum/cartpole",
        world={"length_spread": 0.5, "gravity_spread": 0.3, "force_spread": 0.4, "horizon": 7},
        federation={"clients": 3, "cohort": 0},
    )
    world = build_world(config)
    twin = world.rendered(2)
    own = {name: jnp.array(values) for name, values in world.params([2]).items()}
    state, _ = twin.reset(seed=5)
    assert np.abs(state).max() <= own["initial"][0]
    for step in range(7):
        expected = np.asarray(physics_step(jnp.array(state)[:, None], jnp.array([step % 2]), own))
        state, _, _, cut, _ = twin.step(step % 2)
        np.testing.assert_allclose(state, expected[:, 0], atol=1e-5)
    assert cut


@pytest.mark.parametrize("id", sorted(rendering.DRAWINGS))
def test_our_drawings_follow_the_state(id: str):
    env = gymnasium.make(id)
    env.reset(seed=0)
    first = np.asarray(env.unwrapped.state, float)
    still, moved = rendering.DRAWINGS[id](first), rendering.DRAWINGS[id](first + 0.3)
    assert still.shape == moved.shape == (rendering.HEIGHT, rendering.WIDTH, 3)
    assert (still != moved).any()
    assert (still == 255).mean() > 0.8  # on white


def test_mujocos_twin_has_the_clients_body():
    pytest.importorskip("mujoco")
    config = fedrl.configure(
        "momentum/halfcheetah", world={"length_spread": 0.3}, federation={"clients": 2}
    )
    world = build_world(config)
    twin = world.rendered(1)
    np.testing.assert_allclose(
        twin.env.unwrapped.model.body_pos, world.models[1].body_pos, atol=1e-12
    )
    assert not np.allclose(world.models[0].body_pos, world.models[1].body_pos)
