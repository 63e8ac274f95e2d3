"""Reads WebShop's files into products.

Two layouts: the publisher's (`items_shuffle*.json`, raw records as they were scraped) and the
repacked one (`documents_*.jsonl`, records that went through the original loader). Both are cleaned
by the same rules, those of the original: the first record of an id counts, ids that are "nan" or
longer than 10 characters are skipped, option values are stripped and in lower case with ` | ` for a
slash, of several prices the first two count.
"""

from __future__ import annotations

import gzip
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, cast

from fedrl.core.types import UserError
from fedrl.datasets.missing_data import readable
from fedrl.envs.webshop.goals import Wish
from fedrl.envs.webshop.product import Product, Record

SMALL = ("documents_1k.jsonl", "items_shuffle_1000.json")
WHOLE = ("items_shuffle.json",)
PEOPLES = ("items_human_ins.json",)
INSTRUCTIONS = ("items_ins_v2_1000.json", "items_ins_v2.json")
SMALL_SIZE = 1000
LONGEST_ID = 10
NEEDED = (
    "asin", "name", "full_description", "small_description", "category", "query", "product_category"
)  # fmt: skip
CHUNK = 1 << 20
BETWEEN = re.compile(r"[,\s]*")


def load(
    folder: Path | str, limit: int | None = None, name: str = "webshop"
) -> tuple[Product, ...]:
    """The products of the first `limit` records of the catalogue in `folder`, in its order.

    A folder may hold both of the publisher's catalogues: the whole one is for larger limits. `name`
    is empty for a catalogue of one's own, of which nothing can be got anew.
    """
    folder = Path(folder)
    whole = limit is not None and limit > SMALL_SIZE
    path = _find(folder, WHOLE + SMALL if whole else SMALL + WHOLE)
    beside = _find(folder, INSTRUCTIONS[::-1] if whole else INSTRUCTIONS)
    with readable(name, beside):
        instructions = json.loads(_text(beside))
    count = itertools.count()
    numbered = zip(itertools.islice(_records(path), limit), count)
    with readable(name, path):
        products = clean((record for record, _ in numbered), instructions)
    if limit is not None and (read := next(count)) < limit:
        raise UserError(f"world.products is {limit}; {path} has only {read}")
    return products


def load_lookalikes(path: Path | str) -> tuple[Product, ...]:
    """Raw records of distractors, whose ids are longer; they have no instruction, so no goals."""
    with readable("webshop", Path(path)):
        return clean(json.loads(_text(Path(path))), {}, longest_id=None)


def load_wishes(folder: Path | str) -> dict[str, tuple[Wish, ...]]:
    """What people wrote, by product: `{"id": [{"instruction", "instruction_attributes",
    "instruction_options"}, …]}`, as the publisher has it. Values of options are in lower case."""
    path = _find(Path(folder), PEOPLES)
    with readable("webshop", path):
        return {
            asin: tuple(
                Wish(
                    record["instruction"],
                    tuple(record["instruction_attributes"]),
                    tuple(value.strip().lower() for value in record["instruction_options"]),
                )
                for record in records
            )
            for asin, records in json.loads(_text(path)).items()
        }


def clean(
    records: Iterable[Record],
    instructions: Mapping[str, Record],
    longest_id: int | None = LONGEST_ID,
) -> tuple[Product, ...]:
    products: dict[str, Product] = {}
    for record in records:
        if lacking := [key for key in NEEDED if key not in record]:
            raise ValueError(f"product {record.get('asin', '?')} has no {lacking[0]!r}")
        asin = record["asin"]
        fits = longest_id is None or len(asin) <= longest_id
        if asin != "nan" and fits and asin not in products:
            products[asin] = _product(record, instructions.get(asin, {}))
    return tuple(products.values())


def _product(record: Record, instruction: Record) -> Product:
    bullets = record["small_description"]
    return Product(
        asin=record["asin"],
        title=record["name"],
        description=record["full_description"] or "",
        bullets=tuple(bullets) if isinstance(bullets, list) else (bullets or "",),
        options=_options(record.get("customization_options") or {}),
        pricing=_pricing(record.get("pricing")),
        category=record["category"],
        query=record["query"].lower().strip(),
        path=record["product_category"],
        attributes=tuple(instruction.get("attributes", record.get("Attributes", ()))),
        instruction=instruction.get("instruction") or "",
        instruction_attributes=tuple(instruction.get("instruction_attributes") or ()),
    )


def _options(raw: Mapping[str, list[Record] | None]) -> dict[str, tuple[str, ...]]:
    return {
        name.lower(): tuple(value["value"].strip().replace("/", " | ").lower() for value in values)
        for name, values in raw.items()
        if values is not None
    }


def _pricing(raw: str | list[float] | None) -> tuple[float, ...]:
    """ "$19.99$27.99" is a range; what holds no number is a missing price."""
    if not raw:
        return ()
    if not isinstance(raw, str):
        return tuple(raw[:2])
    digits = (re.sub(r"[^\d.]", "", part) for part in raw.split("$")[1:])
    return tuple(float(number) for number in digits if number.strip("."))[:2]


def _records(path: Path) -> Iterator[Record]:
    with _open(path) as file:
        if ".jsonl" in path.name:
            for line in file:
                yield json.loads(line)["product"]
        else:
            yield from _array(file)


def _array(file: IO[str]) -> Iterator[Record]:
    """The members of a JSON array, one by one: the whole catalogue has gigabytes."""
    decoder = json.JSONDecoder()
    text, position = file.read(CHUNK).lstrip().removeprefix("["), 0
    while True:
        position = BETWEEN.match(text, position).end()  # type: ignore[union-attr]
        if text.startswith("]", position):
            return
        try:
            record, position = decoder.raw_decode(text, position)
        except json.JSONDecodeError:
            more = file.read(CHUNK)
            if not more:
                raise
            text, position = text[position:] + more, 0
        else:
            yield record


def _find(folder: Path, names: tuple[str, ...]) -> Path:
    for name in names:
        for path in (folder / name, folder / f"{name}.gz"):
            if path.exists():
                return path
    raise UserError(
        f"world.source: {folder} holds none of {', '.join(names)} (plain or .gz); "
        "name the folder of a WebShop catalogue, or get the genuine one with `fedrl data webshop`"
    )


def _text(path: Path) -> str:
    with _open(path) as file:
        return file.read()


def _open(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return cast("IO[str]", gzip.open(path, "rt", encoding="utf-8"))
    return path.open(encoding="utf-8")
