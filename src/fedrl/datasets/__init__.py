"""Other people's data that fedrl can use: where it is published, its size, sha256 and terms.

fedrl ships none of it. `fedrl data NAME` downloads a data set from its publisher, checks the
sha256 below and keeps the file as it was published; the readers of this package take the
publisher's archive, its unpacked folder and a compact repacked form alike. Nothing is unpacked, so
no archive can write outside its own file.

Where the sums come from: IMDb's and MovieLens's are those that TensorFlow Datasets and many other
loaders pin. ALFWorld's and WebShop's authors publish none; these were recorded by projects that
downloaded the same release files.
"""

from __future__ import annotations

from dataclasses import dataclass


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


def _drive(id: str) -> str:
    """Google Drive's direct address; `confirm=t` skips the page about files too large to scan."""
    return f"https://drive.usercontent.google.com/download?id={id}&export=download&confirm=t"


_SHOP = "Yao et al., Princeton (princeton-nlp/WebShop)"
_SHOP_LICENCE = "MIT; the product data was scraped from a shop: for research use"
_HUMAN = File(
    "items_human_ins.json",
    _drive("14Kb5SPBk_jfdLZ_CDBNitW98QLDlKR5O"),
    5_137_548,
    "cf78667548a71786e1d9049c24b802e48e1084ad4bb021cae56ce1f6d96954a3",
)

DATASETS: dict[str, Dataset] = {
    "alfworld": Dataset(
        title="ALFWorld: 4,026 household text games in four splits",
        folder="alfworld",
        publisher="Shridhar et al. (github.com/alfworld/alfworld)",
        licence="MIT",
        files=(
            File(
                "json_2.1.2_tw-pddl.zip",
                "https://github.com/alfworld/alfworld/releases/download/0.4.0/"
                "json_2.1.2_tw-pddl.zip",
                36_493_542,
                "eea90499df27b9cb3147d1d1927264146d38194b575e25f70a82875545742dcb",
            ),
        ),
        layouts=(
            ("train.jsonl.xz", "valid_seen.jsonl.xz", "valid_unseen.jsonl.xz"),
            ("json_2.1.1/train", "json_2.1.1/valid_seen", "json_2.1.1/valid_unseen"),
            ("*tw-pddl.zip",),
        ),
    ),
    "webshop": Dataset(
        title="WebShop: the 1,000-product catalogue, attributes, human instructions",
        folder="webshop",
        publisher=_SHOP,
        licence=_SHOP_LICENCE,
        files=(
            File(
                "items_shuffle_1000.json",
                _drive("1EgHdxQ_YxqIQlvvq5iKlCrkEKR6-j0Ib"),
                4_467_013,
                "30a4765c3a327af72d9a9a95a6b2486d516f0fa1d3ecd83681901ce82a21b269",
            ),
            File(
                "items_ins_v2_1000.json",
                _drive("1IduG0xl544V_A_jv3tHXC0kyFi7PnyBu"),
                147_099,
                "f88a36314a397b53b3d9c3fa5878e5f7b26d35019a51ec83fbedeca61a948f6f",
            ),
            _HUMAN,
        ),
        layouts=(
            ("documents_1k.jsonl.gz", "items_ins_v2_1000.json.gz"),
            ("items_shuffle_1000.json", "items_ins_v2_1000.json", "items_human_ins.json"),
        ),
    ),
    "webshop-full": Dataset(
        title="WebShop: the whole catalogue of 1,181,436 products",
        folder="webshop",
        publisher=_SHOP,
        licence=_SHOP_LICENCE,
        files=(
            File(
                "items_shuffle.json",
                _drive("1A2whVgOO0euk5O13n2iYDM0bQRkkRduB"),
                5_479_720_229,
                "2ef591d65df3af89e972ab72468eb82cbf124d876552d9f3678667edd620a6c8",
            ),
            File(
                "items_ins_v2.json",
                _drive("1s2j6NgHljiZzQNL3veZaAiyW_qDEgBNi"),
                186_295_270,
                "1d36af476bdb8f82a5da62bd8acdabe54cd8de2fa84010d37da5c4890feb447e",
            ),
            _HUMAN,
        ),
        layouts=(("items_shuffle.json", "items_ins_v2.json", "items_human_ins.json"),),
    ),
    "movielens": Dataset(
        title="MovieLens latest-small: 100,836 ratings of 9,742 movies by 610 users",
        folder="movielens",
        publisher="GroupLens, University of Minnesota (grouplens.org)",
        licence="GroupLens: for research, cite Harper and Konstan 2015; commercial use by "
        "permission only (README.txt in the archive)",
        files=(
            File(
                "ml-latest-small.zip",
                "https://files.grouplens.org/datasets/movielens/ml-latest-small.zip",
                978_202,
                "696d65a3dfceac7c45750ad32df2c259311949efec81f0f144fdfb91ebc9e436",
            ),
        ),
        layouts=(
            ("ratings.csv.gz", "movies.csv.gz"),
            ("ratings.csv", "movies.csv"),
            ("ml-latest-small/ratings.csv", "ml-latest-small/movies.csv"),
            ("ml-latest-small.zip",),
        ),
    ),
    "imdb": Dataset(
        title="IMDb: 50,000 labelled movie reviews",
        folder="imdb",
        publisher="Maas et al., Stanford (ai.stanford.edu/~amaas/data/sentiment)",
        licence="for research; cite Maas et al. 2011 (README in the archive)",
        files=(
            File(
                "aclImdb_v1.tar.gz",
                "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
                84_125_825,
                "c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe",
            ),
        ),
        layouts=(
            ("train.jsonl.gz", "test.jsonl.gz"),
            ("aclImdb/train/pos", "aclImdb/train/neg", "aclImdb/test/pos", "aclImdb/test/neg"),
            ("train/pos", "train/neg", "test/pos", "test/neg"),
            ("aclImdb_v1.tar.gz",),
        ),
    ),
}
