"""What a model was shown stays known by its contents, through other tables and other worlds."""

from __future__ import annotations

import json
from pathlib import Path

from support.prompt_files import ROWS, prompts, write_rows

from fedrl.envs.household.world import Household, Settings
from fedrl.llm.warmstart_record import shown_among, shown_record, shown_tasks

HOME = Household(Settings(size="tiny", train=4, unseen=2, public=4))


def remember(folder: Path, record: dict) -> str:
    folder.mkdir()
    (folder / "warmstart.json").write_text(json.dumps(record))
    return str(folder)


def test_prompts_are_known_by_what_they_hold(tmp_path: Path):
    world = prompts(write_rows(tmp_path / "sums.jsonl"), public=0.4)
    shown = [task.id for task in world.tasks("public")]
    model = remember(tmp_path / "model", shown_record("builtin", world, shown))
    backwards = prompts(write_rows(tmp_path / "backwards.jsonl", ROWS[::-1]))
    everything = [task.id for split in ("train", "test") for task in backwards.tasks(split)]
    found = shown_among(model, backwards, everything)
    assert {backwards.row(task)["prompt"] for task in found} == {
        world.row(task)["prompt"] for task in shown
    }
    others = [row | {"prompt": "is " + row["prompt"]} for row in ROWS]
    other = prompts(write_rows(tmp_path / "other.jsonl", others), public=0.4)
    assert not shown_among(model, other, shown)


def test_a_second_warm_start_elsewhere_forgets_nothing_and_mixes_no_names(tmp_path: Path):
    world = prompts(write_rows(tmp_path / "sums.jsonl"), public=0.4)
    rows = [task.id for task in world.tasks("public")]
    games = [task.id for task in HOME.tasks("public")]
    first = remember(tmp_path / "first", shown_record("builtin", world, rows))
    second = remember(tmp_path / "second", shown_record(first, HOME, games))
    assert shown_tasks(second) == {*rows, *games}
    assert shown_among(second, world, rows) == set(rows)
    assert shown_among(second, HOME, [*games, *rows]) == set(games)


def test_names_decide_of_a_record_without_contents_in_the_same_data_alone(tmp_path: Path):
    world = prompts(write_rows(tmp_path / "sums.jsonl"), public=0.4)
    rows = [task.id for task in world.tasks("public")]
    for number, (then, known) in enumerate(
        [
            ({"name": "prompts", "source": world.settings.source}, rows),
            ({"name": "prompts", "source": "elsewhere.jsonl"}, []),
            ({"name": "household"}, []),
            ({}, rows),
        ]
    ):
        model = remember(tmp_path / str(number), {"tasks": rows, "world": then})
        assert shown_among(model, world, rows) == set(known)
