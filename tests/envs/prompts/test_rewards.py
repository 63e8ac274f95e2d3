"""Reward functions: called as TRL calls them, with the same rewards; what is wrong is one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.prompt_files import ROWS, prompts, write_rewards, write_rows

from fedrl.core.registry import only_packages
from fedrl.core.types import Shareable, UserError
from fedrl.engines.in_process import reason
from fedrl.envs.batch import Batch
from fedrl.envs.prompts.builtin_rewards import contains_answer, exact_match, number_match
from fedrl.envs.prompts.rewards import Answer, Rewards

TASKS = ("row-0000034", "row-0000034", "row-0000099", "row-0000001")
SAID = ("7", "17", "", "1")


def played(folder: Path, *names: str, weights=(), rows=ROWS) -> list:
    """Turns of four answers, two of them to one prompt."""
    code = write_rewards(folder)
    file = write_rows(folder / "sums.jsonl", rows)
    reward = tuple(f"{code}:{name}" for name in names)
    batch = Batch(prompts(file, reward, weights=weights))
    batch.reset(TASKS)
    return batch.step(SAID, [[1]] * 4)


def trl_rewards(folder: Path, names: tuple[str, ...], rows: list[dict], chat: bool):
    """[answers, functions] by GRPOTrainer's own computation, NaN where a function said None."""
    trl = pytest.importorskip("trl")
    torch = pytest.importorskip("torch")
    from transformers import TrainerState

    space: dict = {}
    exec((folder / "my_rewards.py").read_text(), space)
    functions = [space[name] for name in names]

    class Stub:
        """What `_calculate_rewards` reads of a trainer."""

        reward_funcs, reward_processing_classes = functions, [None] * len(functions)
        reward_func_names, environments, state = list(names), None, TrainerState()

        class accelerator:
            device = torch.device("cpu")
            num_processes, is_main_process = 1, True

        def _log_completion_extra(self, *_):
            """Nothing is logged."""

        _log_metric = _log_completion_extra

    inputs = [rows[int(task.rpartition("-")[2])] for task in TASKS]
    said = [[{"role": "assistant", "content": s}] if chat else s for s in SAID]
    import asyncio
    import threading
    from unittest.mock import patch

    stub = Stub()
    stub.async_loop = asyncio.new_event_loop()
    threading.Thread(target=stub.async_loop.run_forever, daemon=True).start()
    function = trl.GRPOTrainer._calculate_rewards
    module = function.__wrapped__.__globals__ if hasattr(function, "__wrapped__") else None
    bare = getattr(function, "__wrapped__", function)
    from contextlib import nullcontext

    with patch.dict(
        module or bare.__globals__,
        {"gather": lambda x: x, "profiling_context": lambda *_: nullcontext()},
    ):
        table = bare(stub, inputs, [row["prompt"] for row in inputs], said, [[1]] * 4)
    stub.async_loop.call_soon_threadsafe(stub.async_loop.stop)
    return table


CASES = [
    (("correct",), ()),
    (("correct", "length"), (1.0, 0.5)),
    (("length", "some"), (2.0, 3.0)),
    (("awaited", "correct"), (0.1, 1.0)),
    (("none", "length"), (1.0, 1.0)),
]


@pytest.mark.slow
@pytest.mark.parametrize(("names", "weights"), CASES)
def test_the_rewards_are_those_of_trl(tmp_path: Path, names, weights):
    import torch

    turns = played(tmp_path, *names, weights=weights)
    table = trl_rewards(tmp_path, names, ROWS, chat=False)
    of_trl = (table * torch.tensor(weights or (1.0,) * len(names))).nansum(1).tolist()
    assert [turn.reward for turn in turns] == pytest.approx(of_trl, abs=1e-6)
    for i, name in enumerate(names):
        for turn, theirs in zip(turns, table[:, i].tolist()):
            ours = turn.info["rewards"][name]
            assert theirs != theirs if ours is None else ours == pytest.approx(theirs, abs=1e-6)


@pytest.mark.slow
def test_chat_prompts_get_chat_completions_as_in_trl(tmp_path: Path):
    code = tmp_path / "my_rewards.py"
    rows = [r | {"prompt": [{"role": "user", "content": r["prompt"]}]} for r in ROWS]
    source = (
        "def reward(prompts, completions, answer, **columns):\n"
        "    assert [set(c[0]) for c in completions] == [{'role', 'content'}] * len(completions)\n"
        "    assert prompts[0][0]['role'] == 'user'\n"
        "    return [float(c[0]['content'] == right) for c, right in zip(completions, answer)]\n"
    )
    code.write_text(source)
    batch = Batch(prompts(write_rows(tmp_path / "chat.jsonl", rows), f"{code}:reward"))
    turns = batch.reset(TASKS)
    assert turns[0].observation == "user: 3+4="
    assert turns[0].info["prompt"] == [{"role": "user", "content": "3+4="}]
    ours = [turn.reward for turn in batch.step(SAID)]
    assert ours == trl_rewards(tmp_path, ("reward",), rows, chat=True)[:, 0].tolist()
    assert ours == [1.0, 0.0, 0.0, 1.0]


def test_an_answer_without_any_opinion_is_not_scored(tmp_path: Path):
    turns = played(tmp_path, "some")
    assert [turn.info["scored"] for turn in turns] == [False, False, True, True]
    assert [turn.reward for turn in turns] == [0.0, 0.0, 0.25, 0.25]
    turns = played(tmp_path, "some", "length")
    assert all(turn.info["scored"] for turn in turns)
    assert turns[1].reward == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("raises", r"'raises' raised KeyError \(my_rewards.py, line 18\)"),
        ("leaves", r"'leaves' raised SystemExit \(my_rewards.py, line 21\)"),
        ("nan", "'nan' returned nan for 4 of 4 answers"),
        ("infinite", "'infinite' returned inf for 1 of 4 answers"),
        ("short", "'short' returned 3 rewards for 4 answers"),
        ("words", "'words' returned a str where a number belongs"),
        ("number", "'number' returned a float instead of a list of numbers"),
    ],
)
def test_what_a_function_does_wrong_is_one_line_without_the_text(tmp_path: Path, name, why):
    with pytest.raises(UserError, match=rf"world.reward {why}") as raised:
        played(tmp_path, "correct", name)
    assert isinstance(raised.value.args[0], Shareable)
    assert "3+4" not in reason(raised.value)
    assert why.split()[0] in reason(raised.value)


def test_a_column_that_a_function_cannot_do_without_is_asked_for_at_once(tmp_path: Path):
    line = r"world.reward 'missing' reads the column 'solution', which .*sums.jsonl, line 1 has not"
    with pytest.raises(UserError, match=line):
        played(tmp_path, "correct", "missing")


def test_a_function_that_cannot_be_called_is_refused_before_anything_is_played(tmp_path: Path):
    line = (
        r"world.reward 'single' takes no prompts, completion_ids, trainer_state, log_extra, "
        r"log_metric, answer, kind, which it is called with by name: end its arguments with "
        r"\*\*columns$"
    )
    source = write_rows(tmp_path / "sums.jsonl")
    with pytest.raises(UserError, match=line):
        prompts(source, f"{write_rewards(tmp_path)}:single")
    assert prompts(source, f"{write_rewards(tmp_path)}:every")  # each by its name


def test_what_is_no_function(tmp_path: Path):
    with pytest.raises(UserError, match="is no function"):
        played(tmp_path, "constant")
    with pytest.raises(UserError, match="has no nothing"):
        played(tmp_path, "nothing")
    with pytest.raises(UserError, match=r"has no corect; did you mean 'correct'\?"):
        played(tmp_path, "corect")


@pytest.mark.slow
def test_a_node_takes_no_file_and_no_package_that_was_not_allowed(tmp_path: Path):
    code = write_rewards(tmp_path)
    with only_packages(()):
        assert Rewards.find(["exact_match"], ()).names == ("exact_match",)
        with pytest.raises(UserError, match="a file: a node takes installed packages only"):
            Rewards.find([f"{code}:correct"], ())
        with pytest.raises(UserError, match="which this node's owner has not allowed"):
            Rewards.find(["numpy:mean"], ())


def test_the_built_in_functions():
    said, right = ["42", "the answer is 42.", "so 1,042 of them", "no"], ["42", "42", "1042", "no"]
    assert exact_match(completions=said, answer=right) == [1.0, 0.0, 0.0, 1.0]
    assert contains_answer(completions=said, answer=right) == [1.0, 1.0, 0.0, 1.0]
    assert number_match(completions=said, answer=right) == [1.0, 1.0, 1.0, 0.0]
    assert contains_answer(completions=["142"], answer=["42"]) == [0.0]
    assert number_match(completions=["-3", "3", "1e3", ".50"], answer=["-3", -3, 1000, 0.5]) == [
        1.0, 0.0, 1.0, 1.0
    ]  # fmt: skip
    chat = [[{"role": "assistant", "content": " 42 "}]]
    assert exact_match(completions=chat, answer=[42]) == [1.0]


def test_columns_that_the_call_has_already_are_not_handed_on():
    def reward(prompts, completions, **columns):
        assert set(columns) == {"answer", "completion_ids", "trainer_state", "log_extra",
                                "log_metric"}  # fmt: skip
        columns["log_extra"]("name", ["x"])
        columns["log_metric"]("name", 1.0)
        return [1.0]

    columns = {"answer": 1, "completion": "x", "prompts": "y", "completion_ids": [9]}
    (scored,) = Rewards((reward,), ("reward",), (0.5,))([Answer("p", "said", (), columns)])
    assert scored.reward == 0.5


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("raise type('zanzibar9', (Exception,), {})()", "raised an error of its own"),
        ("return type('zanzibar9', (), {})()", "returned something instead of a list"),
        ("return [type('zanzibar9', (), {})()] * len(completions)", "returned something where a"),
    ],
)
def test_names_that_a_function_makes_up_stay_where_it_runs(tmp_path: Path, body: str, line: str):
    """It reads the data: a type's name could be a prompt's text."""
    code = tmp_path / "mine.py"
    code.write_text(f"def telling(completions, **columns):\n    {body}\n")
    batch = Batch(prompts(write_rows(tmp_path / "sums.jsonl"), f"{code}:telling"))
    batch.reset(TASKS)
    with pytest.raises(UserError, match=line) as raised:
        batch.step(SAID, [[1]] * 4)
    assert "zanzibar9" not in reason(raised.value)
