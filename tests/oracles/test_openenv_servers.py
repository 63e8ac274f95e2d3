"""OpenEnv's adapter against servers of the real package, where that is installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("openenv.core", reason="openenv-core is not installed (docs/environments.md)")

from support.openenv_server import stand_in
from support.repository import ROOT

from fedrl.envs.batch import Batch
from fedrl.envs.openenv.world import Settings, World
from fedrl.envs.text import Turn

pytestmark = pytest.mark.slow

ECHO = """
from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app


class Say(Action):
    text: str
    loud: bool = False


class Heard(Observation):
    heard: str
    times: int


class Echo(Environment[Say, Heard, State]):
    def __init__(self):
        super().__init__()
        self.count = 0

    def reset(self, seed=None, episode_id=None):
        self.count = 0
        return Heard(heard="", times=0, done=False)

    def step(self, action, timeout_s=None):
        self.count += 1
        heard = action.text.upper() if action.loud else action.text
        return Heard(heard=heard, times=self.count, reward=0.25, done=self.count == 4)

    @property
    def state(self):
        return State()


app = create_fastapi_app(Echo, Say, Heard, max_concurrent_envs=1)
"""


@pytest.fixture(scope="module")
def game() -> Iterator[World]:
    app = f"{ROOT / 'tests' / 'support' / 'openenv_number_game.py'}:app"
    world = World(Settings(serve=app, unseen=7, train=21, max_steps=5))
    yield world
    world.close()


@pytest.fixture(scope="module")
def echo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    file = tmp_path_factory.mktemp("echo") / "echo_env.py"
    file.write_text(ECHO)
    return file


def test_the_stand_in_answers_as_the_real_server_does(game: World) -> None:
    """Every observation, reward, end and error of every game, word for word."""
    guesses = [["4", "2", "1"], ["7", "7", "7"], ["9", "x", "3"], ["6", "1", "2"]]
    with stand_in() as server:
        other = World(Settings(url=server.url, unseen=7, train=21, max_steps=5))
        for task in [f"train/{seed}" for seed in range(7, 14)]:
            for plan in guesses:
                (mine, first), (theirs, told) = other.start(task), game.start(task)
                assert first == told
                assert mine.goal == theirs.goal
                for guess in plan:
                    ours, real = mine.step(guess), theirs.step(guess)
                    if real.observation.startswith("Error"):
                        ours = ours._replace(observation=real.observation)  # its own words
                    assert ours == real
                    if real.done:
                        break


def halved(game: World, split: str) -> list[Turn]:
    """The last turns of a player who halves what is left."""
    batch = Batch(game)
    turns = batch.reset([task.id for task in game.tasks(split)])
    while batch.running:
        words = [turn.observation.rstrip(".").split() for turn in turns]
        turns = batch.step([str((int(w[-3]) + int(w[-1])) // 2) for w in words])
    return turns


def test_halving_always_wins_on_the_real_server(game: World) -> None:
    assert all(turn.info["won"] for turn in halved(game, "train"))


def test_the_example_has_every_game_in_both_splits_and_halving_wins_them_all() -> None:
    app = f"{ROOT / 'examples' / 'environments' / 'higher_lower.py'}:app"
    world = World(Settings(serve=app, unseen=98, train=98, max_steps=3))
    try:
        for split in ("unseen", "train"):
            assert all(turn.info["won"] for turn in halved(world, split))
            batch = Batch(world)
            firsts = batch.reset([task.id for task in world.tasks(split)])
            assert len({turn.observation for turn in firsts}) == 14
    finally:
        world.close()


def test_the_real_servers_error_is_told_to_the_agent(game: World) -> None:
    episode, _ = game.start("train/7")
    assert episode.step("12").observation == "Error: guess a number from 1 to 7"
    assert episode.step("1").info["won"]


def test_an_echo_of_several_fields(echo: Path) -> None:
    world = World(Settings(serve=f"{echo}:app", win=0.5))
    try:
        episode, turn = world.start("train/60")
        assert turn.observation == "heard: \ntimes: 0"
        assert episode.step("hello").observation == "heard: hello\ntimes: 1"
        turns = [episode.step("again") for _ in range(3)]
        assert [turn.done for turn in turns] == [False, False, True]
        assert turns[-1].info["won"]
        del episode  # its session is the server's only one
        assert world.start("train/61")[0].step("new").observation == "heard: new\ntimes: 1"
    finally:
        world.close()


def test_a_real_server_that_is_full_says_so(echo: Path) -> None:
    world = World(Settings(serve=f"{echo}:app", observation=("heard",), action="text"))
    try:
        with pytest.raises(Exception, match="takes 1 sessions at once"):
            Batch(world).reset(["train/60", "train/61"])
    finally:
        world.close()
