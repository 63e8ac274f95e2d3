"""Prompts as a world: splits that share nothing, episodes of one answer, people's mistakes."""

from __future__ import annotations

import json
import os
import pickle
import tracemalloc
from pathlib import Path

import pytest
from support.prompt_files import ROWS, prompts, write_rewards, write_rows

from fedrl.core.types import Shareable, UserError
from fedrl.envs.batch import Batch
from fedrl.envs.prompts.settings import Settings
from fedrl.partition import Settings as Partition
from fedrl.partition import partition


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "sums.jsonl")


def ids(world, split: str) -> set[str]:
    return {task.id for task in world.tasks(split)}


# Splits


def test_a_file_is_split_by_the_shares_and_the_seed(file: Path):
    world = prompts(file, test=0.2, public=0.1)
    assert [len(world.tasks(split)) for split in world.splits] == [70, 20, 10]
    assert ids(world, "train") | ids(world, "test") | ids(world, "public") == {
        f"row-{i:07d}" for i in range(100)
    }
    same = prompts(file, test=0.2, public=0.1)
    assert ids(same, "test") == ids(world, "test")
    assert ids(prompts(file, test=0.2, split_seed=1), "test") != ids(world, "test")


def test_all_rows_of_one_prompt_are_in_one_split(tmp_path: Path):
    rows = [{"prompt": f"p{i % 10}", "answer": str(i)} for i in range(200)]
    world = prompts(write_rows(tmp_path / "twice.jsonl", rows), test=0.3, public=0.3)
    seen = {
        split: {world.row(task.id)["prompt"] for task in world.tasks(split)}
        for split in world.splits
    }
    assert [len(world.tasks(split)) for split in world.splits] == [80, 60, 60]
    assert not seen["train"] & seen["test"]
    assert not (seen["train"] | seen["test"]) & seen["public"]


def test_a_folder_has_a_file_or_a_folder_of_files_per_split(tmp_path: Path):
    write_rows(tmp_path / "train.jsonl", ROWS[:50])
    write_rows(tmp_path / "test" / "a.jsonl", ROWS[50:60])
    write_rows(tmp_path / "test" / "b.jsonl", ROWS[60:75])
    world = prompts(tmp_path, test=0.5, public=0.1)
    assert [len(world.tasks(split)) for split in world.splits] == [45, 25, 5]
    assert world.row("test-0000012")["prompt"] == ROWS[62]["prompt"]
    assert world.row("train-0000012")["prompt"] == ROWS[12]["prompt"]


def test_a_prompt_in_two_files_is_named(tmp_path: Path):
    write_rows(tmp_path / "train.jsonl", ROWS[:50])
    write_rows(tmp_path / "test.jsonl", ROWS[49:60])
    with pytest.raises(UserError, match=r"1 prompts are in train and in test, such as .*train.jsonl"
                       r", line 50 and .*test.jsonl, line 1:"):  # fmt: skip
        prompts(tmp_path)


@pytest.mark.slow
def test_a_hugging_face_dataset_is_read_from_its_folder(tmp_path: Path):
    datasets = pytest.importorskip("datasets")
    table = datasets.DatasetDict(
        train=datasets.Dataset.from_list(ROWS[:80]), test=datasets.Dataset.from_list(ROWS[80:])
    )
    table.save_to_disk(str(tmp_path / "hub"))
    world = prompts(tmp_path / "hub", category="kind")
    assert [len(world.tasks(split)) for split in world.splits] == [80, 20, 0]
    assert world.row("test-0000003") == ROWS[83]
    before = world.settings.pinned().digest
    datasets.DatasetDict(train=table["train"].select(range(40)), test=table["test"]).save_to_disk(
        str(tmp_path / "other")
    )
    assert prompts(tmp_path / "other").settings.pinned().digest != before
    datasets.DatasetDict(valid=table["train"]).save_to_disk(str(tmp_path / "odd"))
    with pytest.raises(UserError, match=r"world.source: .* has no split train; it has valid"):
        prompts(tmp_path / "odd")


# Episodes


def test_one_answer_is_the_whole_episode(file: Path):
    world = prompts(file, category="kind", answer="answer")
    episode, turn = world.start("row-0000034")
    assert episode.goal == turn.observation == "3+4="
    assert world.demonstrate("row-0000034") == ["7"]
    done = episode.step(" 7 ")
    assert (done.reward, done.done, done.info["won"]) == (1.0, True, True)
    assert done.info["rewards"] == {"exact_match": 1.0}
    with pytest.raises(UserError, match="answered once"):
        episode.step("7")


def test_functions_are_called_once_for_all_answers(tmp_path: Path, file: Path):
    code = tmp_path / "counting.py"
    code.write_text(
        "calls = []\n"
        "def reward(prompts, completions, completion_ids, **columns):\n"
        "    calls.append((prompts, completions, completion_ids, columns))\n"
        "    return [1.0] * len(prompts)\n"
    )
    world = prompts(file, f"{code}:reward")
    batch = Batch(world)
    batch.reset([f"row-{i:07d}" for i in (1, 1, 22)])
    batch.step(["1", "2", "3"], [[5, 6], [7], []])
    ((asked, said, tokens, columns),) = world.rewards.functions[0].__globals__["calls"]
    assert asked == ["0+1=", "0+1=", "2+2="]
    assert (said, tokens) == (["1", "2", "3"], [[5, 6], [7], []])
    assert columns["answer"] == ["1", "1", "4"]
    assert columns["kind"] == ["small"] * 3
    assert columns["trainer_state"] is None
    assert set(columns) == {"answer", "kind", "trainer_state", "log_extra", "log_metric"}
    assert not batch.running


def test_success_is_a_reward_above_the_threshold(tmp_path: Path, file: Path):
    code = write_rewards(tmp_path)
    world = prompts(file, (f"{code}:correct", f"{code}:length"), weights=(2.0, 1.0), success=2.1)
    for said, reward, won in (("7", 2.1, False), ("8", 0.1, False), ("77", 0.2, False)):
        turn = world.start("row-0000034")[0].step(said)
        assert turn.reward == pytest.approx(reward)
        assert turn.info["won"] is won
    assert prompts(file, f"{code}:correct").start("row-0000034")[0].step("7").info["won"]


def test_it_travels_to_another_process_as_its_settings(tmp_path: Path, file: Path):
    world = prompts(file, f"{write_rewards(tmp_path)}:correct")
    assert pickle.loads(pickle.dumps(world)).start("row-0000034")[0].step("7").reward == 1.0


@pytest.mark.parametrize(
    "settings",
    [
        {"strategy": "preference", "omega": 0.9},
        {"strategy": "coverage", "xi": 1.0},
        {"strategy": "hardness", "xi": 1.0},
    ],
)
def test_tasks_are_dealt_out_like_any_others(file: Path, settings: dict):
    world = prompts(file, category="kind")
    tasks = world.tasks("train")
    labels = {task.id: task.category == "small" for task in tasks}
    shares = partition(tasks, 5, Partition(size=10, **settings), 0, labels)
    assert {task for share in shares for task in share} <= ids(world, "train")
    assert len(shares) == 5
    assert {task.category for task in tasks} == {"small", "large"}


@pytest.mark.slow
def test_a_million_rows_take_some_megabytes(tmp_path: Path):
    """Sixteen times fewer here: what is kept per row is counted, not how fast it is read."""
    rows = 1 << 16
    path = tmp_path / "many.jsonl"
    with path.open("w") as out:
        for i in range(rows):
            out.write(f'{{"prompt": "{i}", "answer": "{"x" * 200}"}}\n')
    tracemalloc.start()
    world = prompts(path)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 40 * rows
    assert peak < 120 * rows
    assert world.row("row-0065535")["prompt"] == "65535"


# People's mistakes


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            {"prompt": "question"},
            r"world.prompt is 'question', which .*line 1 has not; choose from",
        ),
        ({"category": "kinds"}, r"world.category is 'kinds', .*did you mean 'kind'\?"),
        ({"answer": "anwser"}, r"world.answer is 'anwser', .*did you mean 'answer'\?"),
        ({"weights": (1.0, 2.0)}, "world.weights has 2 numbers for 1 functions"),
        ({"test": 0.6, "public": 0.5}, "world.test . world.public is 1.1: shares of the prompts"),
        ({"reward": ()}, "world.reward is empty; it names functions, such as"),
        (
            {"reward": ("exact_mach",)},
            r"world.reward is 'exact_mach'; did you mean 'exact_match'\?",
        ),
        ({"reward": ("./none.py:f",)}, r"there is no file ./none.py"),
        ({"source": ""}, "world.source is empty"),
        ({"source": "nowhere/train.jsonl"}, "there is no file or folder nowhere/train.jsonl"),
        ({"source": "../a/b/c"}, "there is no file or folder"),
    ],
)
def test_what_is_wrong_with_the_settings_is_one_line(file: Path, change: dict, why: str):
    with pytest.raises(UserError, match=why) as raised:
        prompts(**{"source": file, "reward": "exact_match"} | change)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", "line 3 is no JSON: "),
        ("[1]", "line 3 is no JSON object"),
        ('{"prompt": "x", "kind": "y"}', "line 3 has no column 'answer'"),
        ('{"prompt": "x", "kind": "y", "answer": 1, "b": 2}', "line 3 has one more column 'b'"),
        ('{"prompt": 3, "kind": "y", "answer": 1}', "neither a text nor chat messages"),
        ('{"prompt": [], "kind": "y", "answer": 1}', "neither a text nor chat messages"),
        ('{"prompt": [{"role": "user"}], "kind": "y", "answer": 1}', "neither a text nor chat"),
    ],
)
def test_a_line_that_is_wrong_is_named_when_the_file_is_opened(file: Path, line: str, why: str):
    lines = file.read_text().splitlines()
    file.write_text("\n".join([lines[0], "", line, *lines[1:]]))
    with pytest.raises(UserError, match=why):
        prompts(file)


def test_where_nobody_trains_any_of_the_files_is_enough(tmp_path: Path):
    """A warm start's: it asks for what is public, and for what is evaluated on."""
    (tmp_path / "a").mkdir()
    write_rows(tmp_path / "a" / "test.jsonl", ROWS[:5])
    write_rows(tmp_path / "a" / "public.jsonl", ROWS[5:12])
    for empty in (False, True):
        if empty:
            (tmp_path / "a" / "train.jsonl").write_text("\n")
        world = prompts(tmp_path / "a")
        assert (len(world.tasks("test")), len(world.tasks("public"))) == (5, 7)
        with pytest.raises(UserError, match=r"has no train\.jsonl with prompts"):
            world.tasks("train")
    write_rows(tmp_path / "b" / "train.jsonl", ROWS[:10])
    write_rows(tmp_path / "b" / "test.jsonl", ROWS[10:13])
    assert len(prompts(tmp_path / "b", public=1.0).tasks("public")) == 10  # no share is tested
    with pytest.raises(UserError, match="10 prompts, and none is left to train on"):
        prompts(tmp_path / "b", public=1.0).tasks("train")


def test_files_without_a_prompt(tmp_path: Path):
    (tmp_path / "empty.jsonl").write_text("\n\n")
    with pytest.raises(UserError, match="holds no prompts"):
        prompts(tmp_path / "empty.jsonl")
    (tmp_path / "bytes.jsonl").write_bytes(b'{"prompt": "\xff"}\n')
    with pytest.raises(UserError, match="line 1 is no JSON: it is not UTF-8"):
        prompts(tmp_path / "bytes.jsonl")
    with pytest.raises(UserError, match="1 prompts, and none is left to train on"):
        prompts(write_rows(tmp_path / "one.jsonl", ROWS[:1])).tasks("train")
    assert len(prompts(tmp_path / "one.jsonl", test=0.0).tasks("train")) == 1
    with pytest.raises(UserError, match=r"has no train\.jsonl"):
        prompts(tmp_path)
    for strange in ("row-1", "train-0000001", "row-9999999", "row-٣", "", "row--000001"):
        with pytest.raises(UserError, match="no prompt"):
            prompts(tmp_path / "one.jsonl", test=0.0).row(strange)


def test_data_that_changes_under_a_run_is_refused(file: Path):
    world = prompts(file)
    assert world.row("row-0000034")["answer"] == "7"
    text = file.read_text()
    os.utime(file, ns=(1, 1))  # touched: the same data
    assert world.row("row-0000034")["answer"] == "7"
    file.write_text(text.replace('"answer": "7"', '"answer": "8"'))
    with pytest.raises(UserError, match="the data has changed") as raised:
        world.start("row-0000000")
    assert isinstance(raised.value.args[0], Shareable)
    file.unlink()
    with pytest.raises(UserError, match="the data has changed"):
        world.start("row-0000000")
    file.write_text(text)  # put back
    assert world.row("row-0000034")["answer"] == "7"


def test_data_that_is_not_what_a_run_began_with_is_refused(file: Path):
    pinned = Settings(source=str(file), reward=("exact_match",)).pinned()
    assert len(pinned.digest) == 32
    prompts(file, digest=pinned.digest)
    write_rows(file, ROWS[1:])
    with pytest.raises(UserError, match="not what the run began with"):
        prompts(file, digest=pinned.digest)
    write_rows(file)
    assert json.loads(file.read_text().splitlines()[34]) == prompts(file, digest=pinned.digest).row(
        "row-0000034"
    )
