"""`fedrl record`: pictures of a policy at work."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
from support import gridworld

import fedrl
from fedrl.cli import call
from fedrl.config import parts
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


@pytest.mark.slow
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


@pytest.fixture(scope="module")
def grid_run(tmp_path_factory: pytest.TempPathFactory) -> fedrl.Run:
    """A run in a world of one's own, whose environments have no pictures."""
    folder = tmp_path_factory.mktemp("grid")
    (folder / "mine.py").write_text(Path(gridworld.__file__).read_text())
    return fedrl.run(
        {
            "world": {"name": f"{folder}/mine.py:Gridworld", "size": 4},
            "algorithm": {"name": "pavg", "local_steps": 1, "eval_episodes": 1},
            "federation": {"clients": 2}, "rounds": 1, "out": str(folder / "runs"),
        }
    )  # fmt: skip


def give(run: fedrl.Run, monkeypatch: pytest.MonkeyPatch, name: str, method) -> None:
    """Environments of the run's world get a method; the module has a name of its own."""
    module = sys.modules[parts.world(run.config["world"]["name"]).maker.__module__]
    monkeypatch.setattr(module, "Grid", type("Drawn", (vars(module)["Grid"],), {name: method}))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["render", "frame"])
def test_a_world_of_ones_own_is_drawn(name: str, grid_run: fedrl.Run, tmp_path: Path, monkeypatch):
    """Its fields are enlarged: a picture of 4 by 4 would be nothing to look at."""
    from PIL import Image

    def shown(self) -> np.ndarray:
        picture = np.full((self.size, self.size, 3), 255, np.uint8)
        picture[tuple(self.at)] = 0
        return picture

    give(grid_run, monkeypatch, name, shown)
    done = grid_run.record(tmp_path / "a.gif", client=1)
    with Image.open(done.path) as image:
        assert image.size == (rendering.HEIGHT, rendering.HEIGHT)
        pixels = np.asarray(image.convert("RGB"))[rendering.HEIGHT // 4 :]  # below the caption
        assert (pixels < 50).all(-1).sum() in (0, (rendering.HEIGHT // 4) ** 2)


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ("nothing", r"its environments need a method render\(\) or frame\(\), a picture"),
        (None, r"shows NoneType \[\] of object; a picture is \[height, width, 3\] of bytes"),
        (np.zeros((4, 4, 3)), r"shows ndarray \[4, 4, 3\] of float64; a picture is"),
    ],
)
def test_a_world_without_pictures_says_what_it_needs(
    given, line: str, grid_run: fedrl.Run, tmp_path: Path, monkeypatch
):
    if not isinstance(given, str):
        give(grid_run, monkeypatch, "render", lambda self: given)
    with pytest.raises(fedrl.UserError, match=line) as told:
        grid_run.record(tmp_path / "a.gif")
    assert "MuJoCo" not in str(told.value)


def test_an_environment_of_gymnasiums_class_draws_arrays():
    """Its render mode is None unless its maker said otherwise, and the class has a render."""

    class Own(gymnasium.Env):
        render_mode = None

        def render(self):
            return np.zeros((5, 5), np.uint8) if self.render_mode == "rgb_array" else None

    own, bare = Own(), gymnasium.Env()
    assert rendering.OwnPictures(own, own.render, "own").render().shape == (400, 400, 3)
    with pytest.raises(fedrl.UserError, match="the world bare has no pictures"):
        rendering.OwnPictures(bare, bare.render, "bare").render()


def test_what_cannot_be_drawn_here_is_one_line(run: fedrl.Run, tmp_path: Path, monkeypatch):
    def no_window(self: rendering.Twin) -> None:
        raise RuntimeError("no display")

    monkeypatch.setattr(rendering.Twin, "render", no_window)
    with pytest.raises(fedrl.UserError, match=r"cannot be drawn here: .*no display"):
        run.record(tmp_path / "a.gif")


@pytest.mark.slow
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
