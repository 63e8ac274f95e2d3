"""Other people's data that fedrl can use: where it is published, its size, sha256 and terms.

fedrl ships none of it. `fedrl data NAME` downloads a data set from its publisher, checks the
sha256 that `published.toml` has and keeps the file as it was published; the readers of this package
take the publisher's archive, its unpacked folder and a compact repacked form alike. Nothing is
unpacked, so no archive can write outside its own file.

Where the sums come from: IMDb's and MovieLens's are those that TensorFlow Datasets and many other
loaders pin. ALFWorld's and WebShop's authors publish none; these were recorded by projects that
downloaded the same release files.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib import resources


@dataclass(frozen=True)
class File:
    """One published file. `size` is for people and for the free space that is asked for."""

    name: str
    url: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Dataset:
    """One data set; it lies in `folder` under FEDRL_DATA or the cache.

    `layouts` are the forms that the readers know, as patterns of paths: the data is there when
    every pattern of one has a match.
    """

    title: str
    folder: str
    publisher: str
    licence: str
    files: tuple[File, ...]
    layouts: tuple[tuple[str, ...], ...]

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


_PUBLISHED = resources.files(__package__).joinpath("published.toml")
DATASETS = {
    name: Dataset(
        **table
        | {
            "files": tuple(File(**file) for file in table["files"]),
            "layouts": tuple(map(tuple, table["layouts"])),
        }
    )
    for name, table in tomllib.loads(_PUBLISHED.read_text(encoding="utf-8")).items()
}
