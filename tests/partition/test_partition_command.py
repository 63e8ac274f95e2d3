"""`fedrl partition`: what it prints, where it draws, and what the figures show."""

from __future__ import annotations

import itertools
import os
import re
from pathlib import Path

import numpy as np
import pytest
from support.labelled_tasks import LABELS, TASKS, Task
from support.prompt_files import write_rows

from fedrl import api
from fedrl.analysis import figure_file, partition_figure
from fedrl.analysis.partition import deal, lines
from fedrl.api.figures import draw
from fedrl.cli import call
from fedrl.core.types import UserError
from fedrl.partition import Measures, Settings, measure, partition, write_labels


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "clients"),
    [
        *itertools.product(["uniform", "preference", "coverage", "hardness"], [1, 100, 250]),
        ("scenes", 1),
        ("scenes", 24),
    ],
)
def test_the_command_says_what_it_measured_and_draws(tmp_path: Path, strategy, clients):
    options = Settings(strategy=strategy, size=20)
    path = tmp_path / "figure.png"
    report = deal(TASKS, clients, options, 0, LABELS)
    told = lines(report.measures)
    assert draw(report, path) == path
    assert path.read_bytes()[:4] == b"\x89PNG"
    assert "pool        1,200 tasks in 6 categories and 24 scenes" in told
    assert any(line.startswith(f"clients     {clients:,} with 20") for line in told)
    assert any(line.startswith("success") for line in told)


def told_of(clients: int, settings: Settings) -> str:
    return "\n".join(lines(deal(TASKS, clients, settings, 0).measures))


def test_the_lines_count_no_more_tasks_than_there_are():
    """Clients that share tasks hold more together than the pool has; that number says nothing."""
    told = told_of(100, Settings(strategy="coverage", size=100))
    numbers = [int(word.replace(",", "")) for word in re.findall(r"\b\d[\d,]*\b(?!\.)", told)]
    assert max(numbers) == len(TASKS)
    assert "a task that is held lies with 8.33 clients" in told
    alone = told_of(12, Settings(strategy="scenes", size=20))
    assert "clients     12 with 20 tasks each\n" in alone
    assert "no task lies with two clients" in alone


def test_the_command_reads_the_label_file_of_the_settings(tmp_path: Path):
    path = tmp_path / "labels.json"
    write_labels(path, LABELS)
    options = Settings(strategy="hardness", size=20, labels=str(path))
    assert "\nsuccess" in told_of(5, options)
    assert "\nsuccess" not in told_of(5, Settings(size=20))


# Where the figure goes.


@pytest.mark.parametrize(
    ("plot", "told"),
    [
        ("", "--plot is empty"),
        (".", "--plot . is a folder"),
        ("folder.png", "--plot folder.png is a folder"),
        ("noext", "name a .png, .svg or .pdf file"),
        ("x.xyz", "name a .png, .svg or .pdf file"),
        (".png", "name a .png, .svg or .pdf file"),
        ("missing/x.png", "there is no folder missing"),
        ("file/x.png", "there is no folder file"),
        ("locked.png", "no file can be written there"),
    ],
)
def test_a_bad_place_for_the_figure_is_told_before_anything_is_computed(
    tmp_path: Path, monkeypatch, capsys, plot, told
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "locked.png").touch()
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "locked.png")
    monkeypatch.setattr(api, "partition_tasks", None)  # nothing that could be called
    before = sorted(tmp_path.rglob("*"))
    assert call(["partition", "household", "--plot", plot]) == 2
    err = capsys.readouterr().err
    assert told in err
    assert err.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="no folder that root cannot write to")
def test_a_folder_that_takes_no_files_is_told():
    """Permissions alone allow it to the superuser."""
    with pytest.raises(UserError, match=r"--plot /proc/x\.png: no file can be written there"):
        figure_file.figure_path("/proc/x.png")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a.png", "a.svg", "a.pdf", "A.PNG", "two.dots.png"])
def test_the_figure_is_the_file_that_was_named(tmp_path: Path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    assert draw(deal(TASKS, 3, Settings(size=20), 0), name) == Path(name)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    start = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[name[-3:].lower()]
    assert (tmp_path / name).read_bytes().startswith(start)


@pytest.mark.slow
def test_the_numbers_are_told_even_if_drawing_fails(tmp_path: Path, capsys):
    flags = ["partition", "household", "--clients", "3", "--size", "5", "--world.size", "tiny"]
    assert call(flags) == 0
    told = capsys.readouterr().out
    assert call([*flags, "--plot", str(tmp_path / f"{'a' * 300}.png")]) == 2
    out, err = capsys.readouterr()
    assert out == told
    assert re.search(r"--plot .*: cannot write it \(.+\)$", err, re.MULTILINE)


# What the figures show.


@pytest.mark.parametrize(
    ("strategy", "words"),
    [
        ("preference", ["ω = 0.5", "category divergence"]),
        ("coverage", ["ξ = 16", "30 ±"]),
        ("hardness", ["ξ′ = 16", "success rate"]),
        ("scenes", ["scene divergence"]),
    ],
)
def test_the_title_tells_the_knob_and_what_came_of_it(strategy, words):
    options = Settings(strategy=strategy, size=30)
    found: Measures = measure(partition(TASKS, 20, options, 0, LABELS), TASKS, LABELS)
    title = partition_figure.title(options, found)
    assert all(word in title for word in ["20 clients", *words]), title


def axes_of(tasks, rows, strategy, labels):
    options, found = Settings(strategy=strategy, size=20), measure(rows, tasks, labels)
    return partition_figure.figure(rows, tasks, options, found, labels).axes[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "clients"),
    [
        *itertools.product(["uniform", "coverage", "hardness"], [1, 2, 50, 51, 100, 200]),
        *itertools.product(["scenes"], [1, 2, 20]),
    ],
)
def test_every_tick_is_a_client(strategy, clients):
    rows = partition(TASKS, clients, Settings(strategy=strategy, size=20), 0, LABELS)
    axes = axes_of(TASKS, rows, strategy, LABELS)
    shown = [text.get_text() for text in axes.get_xticklabels()]
    assert [name for name in shown if name == "pool"] == (["pool"] if strategy == "uniform" else [])
    numbers = [int(name) for name in shown if name != "pool"]
    assert numbers[0] == 0
    assert numbers == sorted(set(numbers))
    assert numbers[-1] < clients


@pytest.mark.parametrize("size", [1, 2, 9])
def test_there_are_no_parts_of_tasks(size):
    rows = partition(TASKS, 5, Settings(size=size), 0)
    ticks = axes_of(TASKS, rows, "uniform", None).get_yticks()
    assert all(float(tick).is_integer() for tick in ticks)


ROOMS = [
    Task(f"{room}/{scene}/{i}", "x", f"{room}-{scene}")
    for room, scenes in (("kitchen", 9), ("bath-room", 5))
    for scene in range(scenes)
    for i in range(10)
]


@pytest.mark.parametrize("clients", [3, 14])
def test_a_bar_of_scenes_has_a_band_for_each_in_the_colour_of_its_room(clients):
    rows = partition(ROOMS, clients, Settings(strategy="scenes", size=10), 0)
    axes = axes_of(ROOMS, rows, "scenes", None)
    scene = {task.id: task.scene for task in ROOMS}
    bands: dict[int, list] = {}
    for patch in axes.patches:
        bands.setdefault(round(patch.get_x() + patch.get_width() / 2), []).append(patch)
    for client, row in enumerate(rows):
        held = [scene[name] for name in row]
        pile = sorted(bands[client], key=lambda patch: patch.get_y())
        assert len(pile) == len(set(held))
        assert sorted(p.get_height() for p in pile) == sorted(map(held.count, set(held)))
        # They lie on each other without gaps, and neighbours can be told apart.
        tops = np.cumsum([patch.get_height() for patch in pile])
        assert [patch.get_y() for patch in pile[1:]] == tops[:-1].tolist()
        for one, other in itertools.pairwise(pile):
            assert one.get_facecolor() != other.get_facecolor()
    assert axes.get_legend_handles_labels()[1] == ["kitchen", "bath-room"]
    assert [text.get_text() for text in axes.texts] == [
        str(len({scene[name] for name in row})) for row in rows
    ]


def test_many_clients_with_scenes_are_a_histogram_of_how_many_they_hold():
    tasks = [Task(f"{i}", "x", f"room-{i // 2}") for i in range(1000)]
    rows = partition(tasks, 300, Settings(strategy="scenes", size=2), 0)
    axes = axes_of(tasks, rows, "scenes", None)
    held = [len({int(name) // 2 for name in row}) for row in rows]
    assert [p.get_height() for p in axes.patches] == [held.count(1), held.count(2)]
    assert "scenes" in axes.get_xlabel()


@pytest.mark.parametrize(
    ("scene", "kind"),
    [
        ("kitchen-12", "kitchen"),
        ("FloorPlan301", "FloorPlan"),
        ("bath-room-3", "bath-room"),
        ("attic", "attic"),
        ("42", "42"),
        ("", ""),
    ],
)
def test_the_kind_of_a_room_is_its_name_without_the_number(scene, kind):
    assert partition_figure.room_kind(scene) == kind


def own_prompts(place: Path, clients: int, *flags: str) -> list[str]:
    for client in range(clients):
        rows = [
            {"prompt": f"{client}+{i}=", "answer": "1", "kind": "ab"[i % 2]}
            for i in range(4 + client)
        ]
        write_rows(place / f"c{client}" / "x.jsonl", rows)
    write_rows(
        place / "public" / "x.jsonl",
        [{"prompt": f"p{i}", "answer": "1", "kind": "a"} for i in range(10)],
    )
    words = ["prompts", "--world.source", "x.jsonl", "--world.reward", "exact_match"]
    return ["partition", *words, "--strategy", "own", "--folder", str(place), *flags]


def test_where_clients_bring_their_own_it_says_what_each_folder_holds(
    tmp_path: Path, capsys: pytest.CaptureFixture
):
    said = own_prompts(tmp_path, 2, "--world.test", "0.4", "--world.category", "kind")
    assert call(said) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == [
        "client 0 (c0): 4 tasks, 2 trained on, held out 2 test; a 2, b 2",
        "client 1 (c1): 5 tasks, 3 trained on, held out 2 test; a 3, b 2",
        "public: 6 train, 4 test; nobody trains on them",
        "the run is evaluated on public alone: the 4 tasks that clients hold out are not trained "
        "on, and are played by `fedrl eval` and `fedrl joining`",
    ]
    assert "clients     2 with 2.5 ± 0.5 tasks (2 to 3, variance 0) each" in lines
    assert call([*said, "--held-out", "clients"]) == 0
    assert "evaluated on public" not in capsys.readouterr().out
    assert call([*said, "--clients", "3"]) == 2
    assert "federation.clients is 3" in capsys.readouterr().err
    (tmp_path / "c1" / "x.jsonl").write_text("{\n")
    assert call(said) == 2
    assert "error: client 1 (c1): world.source: " in capsys.readouterr().err


def test_of_many_folders_some_are_told_and_the_others_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture
):
    assert call(own_prompts(tmp_path, 23, "--world.test", "0")) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[19] == "client 19 (c19): 23 tasks, 23 trained on, held out none"
    assert lines[20] == "3 more clients: 24 to 26 tasks each are trained on, 0 held out in all"
