"""Prompts whose answers call functions, over several turns, scored in TRL's signature."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

pytest.importorskip("transformers", reason="the extra llm is not installed")

from fedrl.core.types import UserError
from fedrl.envs.batch import Batch
from fedrl.envs.tools.world import Settings, ToolWorld

CODE = '''
seen = []


def price(item: str) -> int:
    """What an item costs.

    Args:
        item: its name
    """
    return {"tea": 4, "milk": 2}[item]


def right(prompts, completions, cost, **columns):
    seen.append(completions)
    last = [c if isinstance(c, str) else c[-1]["content"] for c in completions]
    return [float(said.strip() == str(wanted)) for said, wanted in zip(last, cost)]
'''


def call(item: str) -> str:
    said = json.dumps({"name": "price", "arguments": {"item": item}})
    return f"<tool_call>{said}</tool_call>"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(CODE)
    for split in ("train", "test"):
        rows = [
            {
                "prompt": [{"role": "user", "content": f"{split}: {item}?"}],
                "text": f"{split}: {item}?",
                "cost": cost,
                "plan": [call(item), str(cost)],
            }
            for item, cost in (("tea", 4), ("milk", 2))
        ]
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / f"{split}.jsonl").write_text(lines)
    return tmp_path


def world(folder: Path, **more: object) -> ToolWorld:
    place = folder / "shop.py"
    given = {
        "source": str(folder), "tools": (f"{place}:price",), "reward": (f"{place}:right",),
        "max_steps": 4,
    }  # fmt: skip
    return ToolWorld(Settings(**(given | more)))


def test_a_call_gets_its_result_and_the_answer_its_reward(folder: Path) -> None:
    here = world(folder)
    episode, turn = here.start(here.tasks("train")[0].id)
    assert turn.info["tools"][0]["function"]["name"] == "price"
    turn = episode.step(call("tea"))
    assert (turn.observation, turn.reward, turn.done) == ("4", 0.0, False)
    roles = [message["role"] for message in turn.info["messages"]]
    assert roles == ["user", "assistant", "tool"]
    turn = episode.step("4")
    assert (turn.reward, turn.done, turn.info["won"]) == (1.0, True, True)


def test_reward_functions_get_the_whole_completion_of_a_chat(folder: Path) -> None:
    here = world(folder)
    episode, _ = here.start(here.tasks("train")[0].id)
    episode.step(call("tea"))
    episode.step("4")
    (completion,) = here.rewards.functions[0].__globals__["seen"][-1]
    assert [message["role"] for message in completion] == ["assistant", "tool", "assistant"]
    assert completion[0]["tool_calls"][0]["function"]["arguments"] == {"item": "tea"}
    assert completion[1] == {"role": "tool", "name": "price", "content": "4"}


def test_reward_functions_get_the_last_answer_to_a_text(folder: Path) -> None:
    here = world(folder, prompt="text")
    episode, turn = here.start(here.tasks("train")[0].id)
    assert turn.info["messages"] == ({"role": "user", "content": "train: tea?"},)
    episode.step(call("tea"))
    assert episode.step("4").info["won"]
    assert here.rewards.functions[0].__globals__["seen"][-1] == ["4"]


def test_mistakes_are_told_and_the_episode_goes_on(folder: Path) -> None:
    episode, _ = world(folder, max_steps=9).start("train-0000000")
    assert episode.step(call("gold")).observation == "Error: KeyError: 'gold'"
    assert episode.step("<tool_call>tea</tool_call>").observation.startswith("Error: a call must")
    assert episode.step("4").info["won"]


def test_the_last_answer_is_scored_even_if_it_calls(folder: Path) -> None:
    episode, _ = world(folder, max_steps=2).start("train-0000000")
    episode.step(call("tea"))
    turn = episode.step(call("tea"))
    assert (turn.done, turn.reward) == (True, 0.0)


def test_episodes_that_end_together_are_scored_in_one_call(folder: Path) -> None:
    here = world(folder)
    batch = Batch(here)
    batch.reset(["train-0000000", "train-0000001", "train-0000001"])
    batch.step([call("tea"), "2", call("milk")])
    turns = batch.step(["4", "", "2"])
    assert [turn.reward for turn in turns] == [1.0, 1.0, 1.0]
    assert [len(call) for call in here.rewards.functions[0].__globals__["seen"]] == [1, 2]


def test_demonstrations_may_have_several_answers(folder: Path) -> None:
    here = world(folder, answer="plan")
    episode, _ = here.start("train-0000001")
    turns = [episode.step(command) for command in here.demonstrate("train-0000001")]
    assert [turn.info["won"] for turn in turns] == [False, True]


def test_settings_that_lack_tools_and_pickling(folder: Path) -> None:
    with pytest.raises(UserError, match=r"world\.tools is empty"):
        world(folder, tools=())
    again = pickle.loads(pickle.dumps(world(folder)))
    assert again.max_steps == 4
