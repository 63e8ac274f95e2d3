"""Readers: the same records from every form that a data set comes in."""

from __future__ import annotations

import csv
import gzip
import io
import json
import lzma
import os
import random
import tarfile
import tempfile
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrl.core.types import UserError
from fedrl.datasets import alfworld, imdb, movielens

DATA = os.environ.get("FEDRL_DATA")


def realdata(test):
    absent = pytest.mark.skipif(not DATA, reason="set FEDRL_DATA to the folder with the real data")
    return pytest.mark.realdata(absent(test))


TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)


# ALFWorld

GRAMMAR = """grammar :: \"\"\"
    {{
        "intro": [ {{ "rhs": "#look.feedback#\\n\\n#task#" }} ],
        "task": [
            {{
                "rhs": {task}
            }}
        ],
        "Go.feedback": [ {{ "rhs": "You arrive." }} ]
    }}
\"\"\";
"""
HELP = 'action help {\n    template :: "help";\n}\n'


def record(
    trial: str, task: str = "put a mug in desk.", generation: str = "2.1.1", room: int = 301
) -> alfworld.GameRecord:
    folder = f"pick_and_place_simple-Mug-None-Desk-{room}"
    return alfworld.GameRecord(
        f"train/{folder}/{trial}",
        "pick_and_place_simple",
        f"Your task is to: {task}",
        f"FloorPlan{room}",
        f"(define (problem {trial}))",
        generation,
    )


def published(game: alfworld.GameRecord, **changes: object) -> bytes:
    grammar = GRAMMAR.format(task=json.dumps(game.task, ensure_ascii=False))
    if game.generation == "2.1.2":
        grammar += HELP
    content = {
        "pddl_domain": "(define (domain alfred))",
        "grammar": grammar,
        "pddl_problem": game.pddl_problem,
        "solvable": True,
        "walkthrough": ["look"],
    }
    return json.dumps(content | changes).encode()


def as_lines(folder: Path, games: list[alfworld.GameRecord]) -> None:
    with lzma.open(folder / "train.jsonl.xz", "wt", encoding="utf-8") as file:
        for game in games:
            file.write(json.dumps(game._asdict()) + "\n")


def as_tree(folder: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        path = folder / "json_2.1.1" / name / "game.tw-pddl"
        path.parent.mkdir(parents=True)
        path.write_bytes(data)


def as_archive(folder: Path, files: dict[str, bytes]) -> None:
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / "json_2.1.2_tw-pddl.zip", "w") as archive:
        for name, data in files.items():
            archive.writestr(f"json_2.1.1/{name}/game.tw-pddl", data)


@settings(max_examples=25, deadline=None)
@given(st.dictionaries(st.integers(1, 99), TEXT, min_size=1, max_size=5), st.randoms())
def test_alfworld_reads_all_forms_alike(tasks: dict[int, str], shuffler: random.Random):
    """Whatever the sentence holds, and in the order of ids whatever the order of files."""
    # Trials 9 and 10, rooms 4 and 301: the order of ids is not the order of numbers.
    games = [record(f"trial_{n}", task, room=301 if n % 2 else 4) for n, task in tasks.items()]
    files = {game.id: published(game) for game in games}
    shuffled = sorted(files, key=lambda _: shuffler.random())
    games.sort()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        as_lines(folder, games)
        as_tree(folder / "tree", {id: files[id] for id in shuffled})
        as_archive(folder / "archive", {id: files[id] for id in shuffled})
        for place in (folder, folder / "tree", folder / "tree" / "json_2.1.1", folder / "archive"):
            assert list(alfworld.games(place, "train")) == games


def test_alfworld_leaves_out_what_alfworld_leaves_out(tmp_path):
    kept = record("trial_1", generation="2.1.2")
    files = {
        kept.id: published(kept),
        record("trial_2").id: published(record("trial_2"), solvable=False),
        "train/pick_and_place_simple-AppleSliced-None-Desk-3/trial_3": published(kept),
        "train/pick_and_place_with_movable_recep-Mug-Bowl-Desk-3/trial_4": published(kept),
        kept.id.replace("train/", "valid_seen/"): published(kept),
    }
    as_tree(tmp_path / "tree", files)
    as_archive(tmp_path / "archive", files)
    for folder in (tmp_path / "tree", tmp_path / "archive"):
        assert list(alfworld.games(folder, "train")) == [kept]
        assert [g.id.split("/")[0] for g in alfworld.games(folder, "valid_seen")] == ["valid_seen"]


def test_alfworld_says_what_is_missing_or_damaged(tmp_path):
    with pytest.raises(UserError, match=r"`fedrl data alfworld`.*FEDRL_DATA"):
        alfworld.games(tmp_path, "train")
    with pytest.raises(UserError, match="'valid_seen'"):
        alfworld.games(tmp_path, "valid_seem")
    as_lines(tmp_path, [record("trial_2"), record("trial_1")])
    with pytest.raises(UserError, match="does not come after"):
        list(alfworld.games(tmp_path, "train"))
    packed = tmp_path / "train.jsonl.xz"
    packed.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(UserError, match=r"train\.jsonl\.xz is damaged"):
        list(alfworld.games(tmp_path, "train"))
    packed.unlink()
    as_tree(tmp_path, {record("trial_1").id: published(record("trial_1"), grammar="nothing")})
    with pytest.raises(UserError, match=r"game\.tw-pddl is damaged.*no task"):
        list(alfworld.games(tmp_path, "train"))
    (tmp_path / "json_2.1.1" / "valid_seen").mkdir()
    with pytest.raises(UserError, match="has no TASK/TRIAL"):
        alfworld.games(tmp_path, "valid_seen")
    (tmp_path / "zip").mkdir()
    (tmp_path / "zip" / "json_2.1.2_tw-pddl.zip").write_bytes(b"<html>")
    with pytest.raises(UserError, match=r"tw-pddl\.zip is damaged"):
        list(alfworld.games(tmp_path / "zip", "train"))


@pytest.mark.slow
@realdata
def test_alfworld_real_counts():
    folder = Path(DATA) / "alfworld"
    types = Counter(game.task_type for game in alfworld.games(folder, "train"))
    assert types == {
        "pick_and_place_simple": 790,
        "look_at_obj_in_light": 308,
        "pick_clean_then_place_in_recep": 650,
        "pick_heat_then_place_in_recep": 459,
        "pick_cool_then_place_in_recep": 533,
        "pick_two_obj_and_place": 813,
    }
    for split, count in (("valid_seen", 140), ("valid_unseen", 134), ("valid_train", 199)):
        games = list(alfworld.games(folder, split))
        assert len(games) == count
        for game in games:
            # What the reader of the published tree takes from the folder's name.
            task = game.id.split("/")[1]
            assert (game.task_type, game.floor_plan) == (
                task.split("-")[0],
                f"FloorPlan{task.split('-')[-1]}",
            )
            assert game.task.startswith("Your task is to: ")
            assert game.pddl_problem.lstrip().startswith("(define")


# MovieLens

MOVIES = st.lists(
    st.tuples(TEXT, st.lists(st.sampled_from(["Drama", "Comedy", "Sci-Fi"]), unique=True)),
    min_size=1,
    max_size=4,
)
RATINGS = st.lists(
    st.tuples(
        st.integers(1, 700), st.integers(1, 200_000), st.integers(1, 10), st.integers(1, 2**31)
    ),
    min_size=1,
    max_size=6,
)


def table(header: str, rows: list[tuple]) -> bytes:
    """As GroupLens writes it: CRLF, quotes where needed."""
    text = io.StringIO(newline="")
    csv.writer(text).writerows([header.split(","), *rows])
    return text.getvalue().encode()


@settings(max_examples=50, deadline=None)
@given(RATINGS, MOVIES)
def test_movielens_reads_all_forms_alike(ratings, titles):
    movies = [movielens.Movie(i, title, tuple(genres)) for i, (title, genres) in enumerate(titles)]
    files = {
        "ratings.csv": table(
            "userId,movieId,rating,timestamp", [(u, m, r / 2, t) for u, m, r, t in ratings]
        ),
        "movies.csv": table(
            "movieId,title,genres",
            [(i, t, "|".join(g) or "(no genres listed)") for i, t, g in movies],
        ),
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        inner, packed, zipped = (folder / n for n in ("a/ml-latest-small", "b", "c"))
        for place in (inner, packed, zipped):
            place.mkdir(parents=True)
        with zipfile.ZipFile(zipped / "ml-latest-small.zip", "w") as archive:
            for file, data in files.items():
                (inner / file).write_bytes(data)
                (packed / f"{file}.gz").write_bytes(gzip.compress(data))
                archive.writestr(f"ml-latest-small/{file}", data)
        for place in (inner.parent, inner, packed, zipped):
            read = movielens.load(place)
            assert read.movies == tuple(movies)
            columns = (read.user, read.movie, read.rating * 2, read.timestamp)
            assert [tuple(row) for row in np.stack(columns, 1).astype(int)] == ratings


def test_movielens_says_what_is_missing_or_damaged(tmp_path):
    with pytest.raises(UserError, match=r"`fedrl data movielens`.*FEDRL_DATA"):
        movielens.load(tmp_path)
    (tmp_path / "ratings.csv").write_bytes(table("userId,movieId,rating,timestamp", [(1, 2, 3, 4)]))
    with pytest.raises(UserError, match=r"has no movies\.csv"):
        movielens.load(tmp_path)
    (tmp_path / "movies.csv").write_bytes(table("movieId,title", [(1, "One")]))
    with pytest.raises(UserError, match=r"movies\.csv is damaged"):
        movielens.load(tmp_path)
    (tmp_path / "ratings.csv").write_text("userId,movieId,rating,timestamp\n1,2,3\n")
    with pytest.raises(UserError, match=r"ratings\.csv is damaged"):
        movielens.load(tmp_path)
    (tmp_path / "ratings.csv.gz").write_bytes(gzip.compress(b"userId")[:-9])
    with pytest.raises(UserError, match=r"ratings\.csv\.gz is damaged"):
        movielens.load(tmp_path)


@pytest.mark.slow
@realdata
def test_movielens_real_counts():
    read = movielens.load(Path(DATA) / "movielens")
    assert len(read.user) == len(read.movie) == len(read.rating) == len(read.timestamp) == 100_836
    assert len(set(read.user.tolist())) == 610
    assert len({movie.id for movie in read.movies}) == 9_742
    assert set(read.rating.tolist()) == {i / 2 for i in range(1, 11)}
    assert set(read.movie.tolist()) <= {movie.id for movie in read.movies}


# IMDb

REVIEWS = [
    imdb.Review("train/neg/2", 0, 4, "Dull.<br />Really."),
    imdb.Review("train/neg/10", 0, 1, "Awful: née “bad”."),
    imdb.Review("train/pos/0", 1, 10, " Fine "),
    imdb.Review("train/pos/11", 1, 7, "Good\x85"),
]
TEST = imdb.Review("test/pos/3", 1, 8, "Held out")


def review_files() -> dict[str, bytes]:
    files = {f"aclImdb/{r.id}_{r.rating}.txt": r.text.encode() for r in [TEST, *REVIEWS[::-1]]}
    return files | {
        "aclImdb/train/unsup/5_0.txt": b"No label",
        "aclImdb/train/urls_pos.txt": b"http://",
        "aclImdb/train/pos/notes": b"not a review",
        "aclImdb/README": b"Terms",
    }


def test_imdb_reads_all_forms_alike(tmp_path):
    tree, packed, archived = (tmp_path / n for n in ("tree", "packed", "archived"))
    for name, data in review_files().items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    for folder in (packed, archived):
        folder.mkdir()
    for split, reviews in (("train", REVIEWS[::-1]), ("test", [TEST])):
        lines = "".join(json.dumps(review._asdict()) + "\n" for review in reviews)
        (packed / f"{split}.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    with tarfile.open(archived / "aclImdb_v1.tar.gz", "w:gz") as archive:
        for name, data in review_files().items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        link = tarfile.TarInfo("aclImdb/train/pos/9_9.txt")  # reads no file outside the archive
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
        archive.addfile(link)
    (tree / "aclImdb" / "test" / "neg").mkdir()
    for folder in (tree, tree / "aclImdb", packed, archived):
        assert imdb.load(folder, "train") == REVIEWS
        assert imdb.load(folder, "test") == [TEST]


def test_imdb_says_what_is_missing_or_damaged(tmp_path):
    with pytest.raises(UserError, match=r"`fedrl data imdb`.*FEDRL_DATA"):
        imdb.load(tmp_path, "train")
    with pytest.raises(UserError, match="'train'"):
        imdb.load(tmp_path, "trian")
    (tmp_path / "aclImdb_v1.tar.gz").write_bytes(gzip.compress(b"x" * 5000)[:-12])
    with pytest.raises(UserError, match=r"aclImdb_v1\.tar\.gz is damaged"):
        imdb.load(tmp_path, "train")
    (tmp_path / "train.jsonl.gz").write_bytes(gzip.compress(b'{"id": "train/neg/0"}\n'))
    with pytest.raises(UserError, match=r"train\.jsonl\.gz is damaged.*label"):
        imdb.load(tmp_path, "train")


@pytest.mark.slow
@realdata
def test_imdb_real_counts():
    for split in imdb.SPLITS:
        reviews = imdb.load(Path(DATA) / "imdb", split)
        assert [r.id for r in reviews] == [
            f"{split}/{sign}/{i}" for sign in ("neg", "pos") for i in range(12_500)
        ]
        assert all((r.rating >= 7) == (r.label == 1) and r.rating not in (5, 6) for r in reviews)
