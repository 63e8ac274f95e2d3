"""The adapter against environments of the real package, where that is installed."""

from __future__ import annotations

import asyncio
import gc
import json
import pickle
import signal
from pathlib import Path
from typing import Any

import pytest

vf = pytest.importorskip("verifiers", reason="verifiers is not installed (docs/environments.md)")
if not hasattr(vf, "load_environment"):
    pytest.skip("verifiers 0.4 has another interface", allow_module_level=True)

from support.repository import ROOT

from fedrl.core.registry import only_packages
from fedrl.core.types import Shareable, UserError
from fedrl.envs.batch import Batch
from fedrl.envs.verifiers.rollout import EnvironmentFailed
from fedrl.envs.verifiers.world import Settings, World, read_arguments

pytestmark = pytest.mark.slow

GAME = f"{ROOT / 'examples' / 'environments' / 'word_hints.py'}:load_environment"
CODE = '''
import asyncio
import verifiers as vf
from datasets import Dataset

ROWS = Dataset.from_list([{"question": f"double {i}", "answer": str(2 * i)} for i in range(20)])


def right(completion, answer):
    return float(completion[-1].content.strip() == answer)


def double(n: int) -> int:
    """Twice a number.

    Args:
        n: the number
    """
    if n > 15:
        raise ValueError("too large")
    return 2 * n


def tools():
    return vf.ToolEnv(dataset=ROWS, tools=[double], rubric=vf.Rubric(funcs=[right]), max_turns=4,
                      system_prompt="Use the tool.")


def single(weight: float = 1.0, level: str = ""):
    rubric = vf.Rubric(funcs=[right], weights=[weight])
    return vf.SingleTurnEnv(dataset=ROWS, rubric=rubric, system_prompt=level or None)


class Odd(vf.MultiTurnEnv):
    kind = ""

    async def env_response(self, messages, state):
        if self.kind == "raise":
            raise KeyError("a secret of the environment")
        if self.kind == "error":
            raise vf.ToolError("broken")
        if self.kind == "hang":
            await asyncio.sleep(60)
        return [vf.UserMessage(content="go on")]


def odd(kind: str = ""):
    env = Odd(dataset=ROWS, rubric=vf.Rubric(funcs=[right]), max_turns=-1)
    env.kind = kind
    return env


def nan():
    def bad(completion):
        return float("nan")

    return vf.SingleTurnEnv(dataset=ROWS, rubric=vf.Rubric(funcs=[bad]))


def group():
    def rank(completions, **kwargs):
        return [0.0] * len(completions)

    return vf.SingleTurnEnv(dataset=ROWS, rubric=vf.Rubric(funcs=[rank]))


def overlap():
    return vf.SingleTurnEnv(dataset=ROWS, eval_dataset=ROWS, rubric=vf.Rubric(funcs=[right]))


def broken():
    raise RuntimeError("no key")


def nothing():
    return 3
'''


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("environments") / "own_environments.py"
    place.write_text(CODE)
    return place


def world(file: Path, function: str, **settings: Any) -> World:
    return World(Settings(environment=f"{file}:{function}", **settings))


class Scripted(vf.Client):
    """An independent client of verifiers that says what it was given."""

    def __init__(self, answers: list[str]) -> None:
        super().__init__(None)
        self.answers, self.prompts = list(answers), []

    async def get_response(self, prompt, model, sampling_args, tools=None, **more):
        from verifiers.types import Response, ResponseMessage, ToolCall

        self.prompts.append([m.model_dump(exclude_none=True) for m in prompt])
        said = self.answers.pop(0)
        calls = None
        if said.startswith("<tool_call>"):
            call = json.loads(said.removeprefix("<tool_call>").removesuffix("</tool_call>"))
            arguments = json.dumps(call["arguments"])
            calls, said = [ToolCall(id="1", name=call["name"], arguments=arguments)], ""
        message = ResponseMessage(
            role="assistant", content=said, tool_calls=calls, finish_reason="stop",
            is_truncated=False,
        )  # fmt: skip
        return Response(id="1", created=0, model=model, message=message)

    def setup_client(self, config): ...
    async def to_native_tool(self, tool): ...
    async def to_native_prompt(self, messages): ...
    async def get_native_response(self, *a, **k): ...
    async def raise_from_native_response(self, response): ...
    async def from_native_response(self, response): ...
    async def close(self): ...


@pytest.mark.parametrize(
    "guesses", [["cat", "but"], ["hat", "hit", "hut"], ["zzz", "bat", "bat"], ["bat"]]
)
def test_the_same_answers_get_the_same_turns_and_reward_as_in_verifiers(guesses) -> None:
    here = World(Settings(environment=GAME))
    for task in here.tasks("train")[:8]:
        client = Scripted(guesses)
        row = here._rows[task.id]
        try:
            output = asyncio.run(here.environment.run_rollout(row, client, "m", {}))
        except Exception:  # noqa: BLE001 - the script ran out: so does ours
            output = None
        episode, turn = here.start(task.id)
        seen = []
        for guess in guesses:
            seen.append(turn.info["messages"])
            turn = episode.step(guess)
            if turn.done:
                break
        contents = [[(m["role"], m["content"]) for m in prompt] for prompt in client.prompts]
        assert contents[: len(seen)] == [[(m["role"], m["content"]) for m in s] for s in seen]
        if turn.done and output is not None:
            assert turn.reward == output["reward"]
            assert turn.info["rewards"] == output["metrics"]


def test_a_tool_environment_runs_its_own_tools(file: Path) -> None:
    here = world(file, "tools")
    task = here.tasks("train")[5].id
    episode, turn = here.start(task)
    assert [m["role"] for m in turn.info["messages"]] == ["system", "user"]
    assert turn.info["tools"][0]["function"]["name"] == "double"
    number = int(turn.info["messages"][-1]["content"].split()[-1])
    call = json.dumps({"name": "double", "arguments": {"n": number}})
    turn = episode.step(f"<tool_call>{call}</tool_call>")
    assert turn.observation == str(2 * number)
    last = turn.info["messages"][-2:]
    assert last[0]["tool_calls"][0]["function"] == {"name": "double", "arguments": {"n": number}}
    assert last[1]["role"] == "tool"
    turn = episode.step(str(2 * number))
    assert (turn.reward, turn.done, turn.info["won"]) == (1.0, True, True)


def test_errors_of_its_tools_are_told_to_the_agent(file: Path) -> None:
    episode, _ = world(file, "tools").start("train-0000001")
    turn = episode.step('<tool_call>{"name": "double", "arguments": {"n": 99}}</tool_call>')
    assert (turn.observation, turn.done) == ("too large", False)


def test_one_turn_with_arguments(file: Path) -> None:
    here = world(file, "single", arguments=("weight=0.25", "level=hard"), win=0.2)
    episode, turn = here.start(here.tasks("unseen")[1].id)
    assert turn.info["messages"][0] == {"role": "system", "content": "hard"}
    number = int(turn.info["messages"][-1]["content"].split()[-1])
    turn = episode.step(str(2 * number))
    assert (turn.reward, turn.info["won"]) == (0.25, True)
    assert here.max_steps == 1


def test_a_share_is_held_out_where_there_is_no_evaluation_dataset(file: Path) -> None:
    here = world(file, "single", held_out=0.25)
    assert (len(here.tasks("train")), len(here.tasks("unseen"))) == (15, 5)
    rows = [here._rows[task.id]["answer"] for split in here.splits for task in here.tasks(split)]
    assert len(set(rows)) == 20


def test_an_episode_that_uses_up_its_steps_is_scored(file: Path) -> None:
    here = world(file, "odd", max_steps=3)
    episode, turn = here.start("train-0000001")
    answer = here._rows["train-0000001"]["answer"]
    assert not episode.step("what?").done
    assert not episode.step("what?").done
    turn = episode.step(answer)
    assert turn.done
    assert "scored" in turn.info


@pytest.mark.parametrize(
    "function, kind, why",
    [
        ("odd", "raise", "raised KeyError"),
        ("odd", "hang", "did not answer within 0.5 s"),
        ("nan", "", "gave a reward that is no number"),
    ],
)
def test_an_environment_that_fails_is_one_line_that_may_be_shared(
    file: Path, function: str, kind: str, why: str
) -> None:
    arguments = (f"kind={kind}",) if kind else ()
    here = world(file, function, arguments=arguments, patience=0.5)
    batch = Batch(here)
    batch.reset(["train-0000001", "train-0000002"])
    with pytest.raises(EnvironmentFailed) as failed:
        batch.step(["a", "b"])
    assert str(failed.value) == f"the verifiers environment {why}"
    assert isinstance(failed.value.args[0], Shareable)


def test_a_rollout_that_verifiers_gives_up_is_not_scored(file: Path) -> None:
    episode, _ = world(file, "odd", arguments=("kind=error",)).start("train-0000001")
    turn = episode.step("a")
    assert (turn.done, turn.info["scored"], turn.info["won"]) == (True, False, False)


@pytest.mark.parametrize(
    "function, why",
    [
        ("group", "scores rollouts of a group together"),
        ("overlap", "20 rows of its evaluation dataset are in its dataset"),
        ("broken", "cannot be loaded: RuntimeError: no key"),
        ("nothing", "gives no Environment of verifiers"),
        ("absent", "has no absent"),
    ],
)
def test_environments_that_cannot_be_played_are_one_line(
    file: Path, function: str, why: str
) -> None:
    with pytest.raises(UserError, match=why):
        world(file, function)


def test_an_environment_leaves_ctrl_c_to_the_run(file: Path) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    world(file, "single")
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_a_node_loads_allowed_packages_alone(file: Path) -> None:
    with only_packages(["fedrl"]):
        for name in (f"{file}:single", "numpy", "no-such-environment"):
            with pytest.raises(UserError):
                World(Settings(environment=name))


def test_arguments_are_json_or_words() -> None:
    given = ["n=3", "x=-0.5", "on=true", "level=easy"]
    assert read_arguments(given) == {"n": 3, "x": -0.5, "on": True, "level": "easy"}
    with pytest.raises(UserError, match="is not name=value"):
        Settings(environment="a", arguments=("3",))


def test_episodes_that_nobody_plays_on_are_dropped(file: Path) -> None:
    here = world(file, "odd")
    episode, _ = here.start("train-0000001")
    work = episode.rollout.work
    del episode
    gc.collect()
    here.start("train-0000002")
    assert work.cancelled() or work.cancelling()


def test_a_world_goes_to_another_process_as_its_settings(file: Path) -> None:
    again = pickle.loads(pickle.dumps(world(file, "single")))
    assert len(again.tasks("train")) == 18
