"""Words of the generated catalogue (vocabulary.toml), read for drawing products from them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from fedrl.core.package_files import package_toml
from fedrl.core.types import Json

Words = tuple[str, ...]


class Kind(NamedTuple):
    department: str
    noun: str  # "garden trowel"
    query: str  # "hand tools": what one would look for
    path: str
    low: float
    high: float
    options: tuple[tuple[str, Words], ...]  # a name and the values to choose from
    features: Words  # follow "with"
    purposes: Words  # follow "for"
    qualities: Words  # stand before the noun


class Vocabulary(NamedTuple):
    """All that products are made of."""

    kinds: tuple[Kind, ...]
    names: Mapping[str, Words]  # parts of a brand (starts, middles, ends), and series
    sentences: Mapping[str, Words]  # of a description (openings, middles), and bullets
    closings: Mapping[str, Words]  # department: the last sentence of a description


@cache
def vocabulary() -> Vocabulary:
    """The words, read when the first product is made."""
    tables = package_toml(__package__, "vocabulary.toml")
    pools = {name: tuple(values.split(", ")) for name, values in tables["pools"].items()}
    departments = tables["departments"]
    return Vocabulary(
        tuple(
            _kind(department, table, line, pools)
            for department, table in departments.items()
            for line in table["kinds"].strip().splitlines()
        ),
        names={name: tuple(words.split()) for name, words in tables["names"].items()},
        sentences={name: tuple(texts) for name, texts in tables["sentences"].items()},
        closings={name: tuple(table["closings"]) for name, table in departments.items()},
    )


def _kind(department: str, table: Json, line: str, pools: Mapping[str, Words]) -> Kind:
    noun, query, aisle, prices, options, features, purposes, own = map(str.strip, line.split("|"))
    low, high = map(float, prices.split("-"))
    named = (option.rsplit(" ", 1) for option in options.split(", "))
    shared = () if own.startswith("only ") else table["qualities"].split(", ")
    return Kind(
        department,
        noun,
        query,
        f"{table['name']} › {aisle} › {query.capitalize()} › {noun.capitalize()}",
        low,
        high,
        tuple((name, pools[pool]) for name, pool in named),
        tuple(features.split(", ")),
        tuple(purposes.split(", ")),
        (*own.removeprefix("only ").split(", "), *shared),
    )
