"""Text worlds behind Gymnasium's interface and in batches; a third-party world plugs in."""

from __future__ import annotations

import subprocess
import sys

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env

from fedrl.core.types import UserError
from fedrl.envs.batch import Batch
from fedrl.envs.gymnasium.text_worlds import TextEnv
from fedrl.envs.household.world import Household, Settings
from fedrl.envs.text import Task, Turn

WORLDS = {
    "fedrl/Household-v0": {"size": "tiny", "train": 20, "seen": 5},
    "fedrl/WebShop-v0": {"products": 60, "validation": 20},
}


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.filterwarnings("error")
def test_gymnasiums_own_checker_passes(name):
    check_env(gymnasium.make(name, **WORLDS[name]).unwrapped, skip_render_check=False)


@pytest.mark.parametrize("name", WORLDS)
def test_the_expert_wins_through_gymnasium(name):
    env = gymnasium.make(name, **WORLDS[name])
    world = env.unwrapped.world
    for seed in range(5):
        observation, info = env.reset(seed=seed)
        assert info["goal"] in observation
        assert not info["won"]
        for command in world.demonstrate(info["task"]):
            assert info["admissible_commands"]
            observation, reward, terminated, truncated, info = env.step(command)
        assert reward == 1.0
        assert terminated
        assert not truncated
        assert info["won"]


@pytest.mark.parametrize("name", WORLDS)
def test_a_seed_decides_the_tasks(name):
    def drawn(seed: int) -> list[str]:
        env = gymnasium.make(name, **WORLDS[name])
        first = env.reset(seed=seed)[1]["task"]
        return [first, *(env.reset()[1]["task"] for _ in range(4))]

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


def test_an_episode_is_cut_at_the_step_limit():
    env = gymnasium.make("fedrl/Household-v0", **WORLDS["fedrl/Household-v0"], max_steps=3)
    env.reset(seed=0, options={"task": "train/00003"})
    ends = [env.step("look")[2:4] for _ in range(3)]
    assert ends == [(False, False), (False, False), (False, True)]


@pytest.mark.slow
def test_import_order_does_not_matter():
    for first, second in (("fedrl", "gymnasium"), ("gymnasium", "fedrl")):
        code = (
            f"import {first}, {second}; import gymnasium;"
            "print(gymnasium.make('fedrl/Household-v0', size='tiny').reset(seed=0)[1]['task'])"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.stdout.startswith("train/"), done.stderr


def test_importing_fedrl_imports_neither_gymnasium_nor_numpy():
    code = "import fedrl, sys; assert not {'gymnasium', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_unknown_split_names_the_choice():
    with pytest.raises(UserError, match="split is 'tset'"):
        TextEnv(Household(Settings(size="tiny", train=3)), "tset")


def test_mistakes_are_named():
    for name, keywords, told in (
        ("Household", {"siz": "tiny"}, "did you mean 'size'"),
        ("Household", {"size": "huge"}, "world.size is 'huge'"),
        ("Household", {"train": -4}, "world.train is -4"),
        ("Household", {"train": 0}, "no tasks"),
        ("WebShop", {"split": "public"}, "no tasks"),
    ):
        with pytest.raises(UserError, match=told):
            gymnasium.make(f"fedrl/{name}-v0", **keywords)
    with pytest.raises(UserError, match="max_steps is 0"):
        Household(Settings(max_steps=0))
    env = gymnasium.make("fedrl/Household-v0", **WORLDS["fedrl/Household-v0"])
    with pytest.raises(UserError, match="options has tsk"):
        env.reset(options={"tsk": "train/00001"})


@pytest.mark.parametrize("task", ["train/00020", "train/1", "train/999999999", "valid/00000", ""])
def test_a_task_that_is_not_in_the_world_is_refused_at_once(task):
    with pytest.raises(UserError, match="no game"):
        Household(Settings(size="tiny", train=20)).start(task)


def test_a_batch_takes_tasks_or_their_ids():
    world = Household(Settings(size="tiny", train=5))
    tasks = world.tasks("train")
    assert Batch(world).reset(tasks) == Batch(world).reset([task.id for task in tasks])
    with pytest.raises(UserError, match="a list of tasks"):
        Batch(world).reset("train/00001")


def test_a_batch_equals_its_episodes_one_by_one():
    world = Household(Settings(size="tiny", train=12))
    tasks = [task.id for task in world.tasks("train")] * 2
    batch = Batch(world, max_steps=6)
    batch.reset(tasks)
    alone = [world.start(task) for task in tasks]
    turns = [turn for _, turn in alone]
    done = [False] * len(tasks)
    for step in range(6):
        commands = [turn.admissible[(i + step) % len(turn.admissible)] if turn.admissible else ""
                    for i, turn in enumerate(turns)]  # fmt: skip
        for i, (episode, _) in enumerate(alone):
            if not done[i]:
                turns[i] = episode.step(commands[i])
                done[i] = turns[i].done
        assert batch.step(commands) == turns
    assert all(batch.over)
    assert batch.running == []
    assert batch.step([""] * len(tasks)) == turns  # what is over stays as it was
    with pytest.raises(UserError, match="2 commands for 24 episodes"):
        batch.step(["look", "look"])


class Counting:
    """A third-party world: count up to the number that the task names."""

    name, splits, max_steps = "counting", ("train",), 5

    def tasks(self, split: str) -> list[Task]:
        return [Task(f"to-{n}", "even" if n % 2 == 0 else "odd") for n in range(1, 5)]

    def start(self, task: str, seed: int = 0):
        episode = Count(int(task.removeprefix("to-")))
        return episode, episode.turn()

    def demonstrate(self, task: str, seed: int = 0) -> list[str]:
        return ["one more"] * int(task.removeprefix("to-"))


class Count:
    def __init__(self, target: int) -> None:
        self.target, self.count, self.goal = target, 0, f"count to {target}"

    def turn(self) -> Turn:
        won = self.count == self.target
        return Turn(f"{self.goal}: {self.count}", float(won), won, ("one more",), {"won": won})

    def step(self, command: str) -> Turn:
        self.count += command == "one more"
        return self.turn()


def test_a_third_party_world_plugs_in():
    check_env(TextEnv(Counting()))
    batch = Batch(Counting())
    batch.reset(["to-1", "to-3"])
    assert [turn.done for turn in batch.step(["one more", "one more"])] == [True, False]
    assert batch.running == [1]


def test_asking_whether_gymnasium_is_there_does_not_undo_the_registration():
    code = (
        "import fedrl, importlib.util; importlib.util.find_spec('gymnasium'); import gymnasium; "
        "print('fedrl/Household-v0' in gymnasium.registry)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == "True", done.stderr
