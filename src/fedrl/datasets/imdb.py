"""The Large Movie Review Dataset: 25,000 labelled reviews for training, 25,000 for testing.

Read from `train.jsonl.gz` and `test.jsonl.gz`, from the unpacked folder `aclImdb/`, or from the
published archive as it is: unpacking it makes 100,000 small files.
"""

from __future__ import annotations

import gzip
import json
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple, cast

from fedrl.core.registry import suggestion
from fedrl.core.types import UserError
from fedrl.datasets.missing_data import missing, readable

SPLITS = ("train", "test")

_ARCHIVE = "aclImdb_v1.tar.gz"
_LABELS = {"neg": 0, "pos": 1}
_FILE = re.compile(r"(?:\./)?aclImdb/(train|test)/(neg|pos)/(\d+)_(\d+)\.txt")


class Review(NamedTuple):
    id: str  # SPLIT/neg/NUMBER or SPLIT/pos/NUMBER
    label: int  # 1 positive, 0 negative
    rating: int  # 1 to 4 or 7 to 10 stars
    text: str


def load(folder: Path, split: str) -> list[Review]:
    """The reviews of a split: the negative ones, then the positive ones, by number."""
    if split not in SPLITS:
        raise UserError(f"split is {split!r}; {suggestion(split, list(SPLITS))}")
    packed, archive = folder / f"{split}.jsonl.gz", folder / _ARCHIVE
    trees = [tree for tree in (folder / "aclImdb", folder) if (tree / split / "pos").is_dir()]
    if packed.is_file():
        with readable("imdb", packed):
            reviews = list(_from_lines(packed))
    elif trees:
        reviews = list(_from_tree(trees[0], split))
    elif archive.is_file():
        with readable("imdb", archive):
            reviews = list(_from_archive(archive, split))
    else:
        reviews = []
    if not reviews:
        raise missing("imdb", f"{packed.name}, aclImdb/{split}/ or {_ARCHIVE}", folder)
    return sorted(reviews, key=_place)


class OwnReviews(NamedTuple):
    """Of a folder of one's own: `test` is what lies apart there, as nobody's to train on."""

    reviews: list[Review]
    test: list[Review]


def load_own(source: Path) -> OwnReviews:
    """All reviews of a folder of one's own, or of a file, in the order of its files and lines."""
    names = [f"{name}.jsonl{end}" for name in ("reviews", *SPLITS) for end in ("", ".gz")]
    files = [source] if source.is_file() else [source / n for n in names if (source / n).is_file()]
    trees = [tree for tree in (source / "aclImdb", source) if (tree / "train" / "pos").is_dir()]
    if files:
        apart = [path for path in files if path.name.startswith("test.") and len(files) > 1]
        return OwnReviews(
            [review for path in files if path not in apart for review in _own_lines(path)],
            [review for path in apart for review in _own_lines(path)],
        )
    if trees:
        found = {
            split: sorted(_from_tree(trees[0], split), key=_place)
            for split in SPLITS
            if (trees[0] / split / "pos").is_dir()
        }
        return OwnReviews(found["train"], found.get("test", []))
    raise missing("", "reviews.jsonl, train.jsonl or train/pos/", source)


def _own_lines(path: Path) -> Iterator[Review]:
    """Columns `text` and `label`; `id` and `rating` where they are."""
    with readable("", path), _open(path) as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield _own_line(line, number, f"{path.name.split('.')[0]}/{number}")


def _own_line(line: str, number: int, id: str) -> Review:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise ValueError(f"line {number} is not JSON ({error})") from error
    if not isinstance(row, dict) or not {"text", "label"} <= row.keys():
        raise ValueError(f'line {number} is not {{"text": …, "label": 0 or 1}}')
    text, label = row["text"], row["label"]
    if not isinstance(text, str) or label not in (0, 1):
        raise ValueError(f"line {number}: text is no text, or label is neither 0 nor 1")
    return Review(str(row.get("id", id)), int(label), int(row.get("rating", 0)), text)


def _open(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return cast("IO[str]", gzip.open(path, "rt", encoding="utf-8"))
    return path.open(encoding="utf-8")


def _place(review: Review) -> tuple[int, int]:
    return review.label, int(review.id.rsplit("/", 1)[1])


def _from_lines(path: Path) -> Iterator[Review]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            yield Review(row["id"], row["label"], row["rating"], row["text"])


def _from_tree(tree: Path, split: str) -> Iterator[Review]:
    for sign in _LABELS:
        folder = tree / split / sign
        with readable("imdb", folder):
            paths = list(folder.iterdir())
        for path in paths:
            name = _FILE.fullmatch(f"aclImdb/{split}/{sign}/{path.name}")
            if name is not None:
                with readable("imdb", path):
                    review = _review(name, path.read_bytes())
                yield review


def _from_archive(path: Path, split: str) -> Iterator[Review]:
    # As a stream: a compressed archive has no table of contents, so each byte is read once.
    with tarfile.open(path, "r|gz") as archive:
        for member in archive:
            name = _FILE.fullmatch(member.name)
            if name is not None and name[1] == split and member.isfile():
                data = archive.extractfile(member)
                assert data is not None  # a regular file
                yield _review(name, data.read())


def _review(name: re.Match[str], data: bytes) -> Review:
    split, sign, number, rating = name.groups()
    return Review(f"{split}/{sign}/{number}", _LABELS[sign], int(rating), data.decode("utf-8"))
