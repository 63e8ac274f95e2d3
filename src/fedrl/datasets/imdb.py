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
from typing import NamedTuple

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
