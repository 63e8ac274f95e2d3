"""Raw records become products by the original loader's rules, whatever the layout of the files."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from support.realdata import data

from fedrl.core.types import UserError
from fedrl.envs.webshop import catalogue
from fedrl.envs.webshop.product import DEPARTMENTS, indexed_text


def raw(asin: str = "A1", **fields) -> dict:
    return {
        "asin": asin,
        "name": "Round Table",
        "full_description": "A table.",
        "small_description": ["Oak ", "Four legs"],
        "pricing": "$19.99",
        "customization_options": "",
        "product_category": "Home › Tables",
        "category": "garden",
        "query": " Round TABLES ",
        "images": ["https://example.org/1.jpg", "https://example.org/2.jpg"],
        **fields,
    }


def only(**fields):
    (product,) = catalogue.clean([raw(**fields)], {})
    return product


@pytest.mark.parametrize(
    "pricing, expected",
    [
        ("$19.99", (19.99,)),
        ("$19.99$27.99", (19.99, 27.99)),
        ("$1,019.99", (1019.99,)),
        ("$1$2$3", (1.0, 2.0)),
        ("", ()),
        (None, ()),
        ("$", ()),
        ("free", ()),
        ([100.0], (100.0,)),
        ([5.0, 7.0], (5.0, 7.0)),
    ],
)
def test_prices(pricing, expected):
    assert only(pricing=pricing).pricing == expected


def test_options_are_lower_case_and_stripped_and_empty_ones_are_left_out():
    options = {"Color": [{"value": " Navy/Red "}, {"value": "BLUE"}], "Size": None}
    assert only(customization_options=options).options == {"color": ("navy | red", "blue")}


def test_a_text_instead_of_a_list_is_one_bullet():
    assert only(small_description="One thing").bullets == ("One thing",)
    assert only(small_description=["a", "b"]).bullets == ("a", "b")


def test_the_query_is_normalised():
    assert only().query == "round tables"


def test_ids_that_are_missing_too_long_or_seen_are_skipped():
    records = [raw("A1"), raw("nan"), raw("A" * 11), raw("A1", name="Again"), raw("A2")]
    products = catalogue.clean(records, {})
    assert [(product.asin, product.title) for product in products] == [
        ("A1", "Round Table"),
        ("A2", "Round Table"),
    ]


def test_instructions_are_joined_by_id():
    wanted = {"instruction": "Find me oak tables", "instruction_attributes": ["oak"]}
    products = catalogue.clean(
        [raw("A1"), raw("A2")], {"A1": {"attributes": ["oak", "round"], **wanted}}
    )
    assert products[0].attributes == ("oak", "round")
    assert products[0].instruction == "Find me oak tables"
    assert products[0].instruction_attributes == ("oak",)
    assert products[1].instruction == ""
    assert products[1].attributes == ()


@pytest.fixture
def records() -> list[dict]:
    return [raw(f"A{i}", name=f"Table, no. {i} ]") for i in range(30)]


@pytest.fixture
def instructions() -> dict:
    return {"A0": {"attributes": ["oak"]}}


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("packed", [False, True])
def test_both_layouts_give_the_same_products(
    tmp_path: Path, records, instructions, indent, packed, monkeypatch
):
    monkeypatch.setattr(catalogue, "CHUNK", 100)  # records span chunks
    lines = "\n".join(json.dumps({"id": r["asin"], "product": r}) for r in records)
    texts = {
        "published": ("items_shuffle_1000.json", json.dumps(records, indent=indent)),
        "repacked": ("documents_1k.jsonl", lines),
    }
    loaded = []
    for layout, (name, text) in texts.items():
        folder = tmp_path / layout
        folder.mkdir()
        for file, content in (
            (name, text),
            ("items_ins_v2_1000.json", json.dumps(instructions)),
        ):
            if packed:
                (folder / f"{file}.gz").write_bytes(gzip.compress(content.encode()))
            else:
                (folder / file).write_text(content)
        loaded.append(catalogue.load(folder))
    assert loaded[0] == loaded[1] == catalogue.clean(records, instructions)


def test_the_limit_counts_records(tmp_path: Path, records, instructions):
    (tmp_path / "items_shuffle.json").write_text(json.dumps(records))
    (tmp_path / "items_ins_v2.json").write_text(json.dumps(instructions))
    assert len(catalogue.load(tmp_path, 7)) == 7
    with pytest.raises(UserError, match=r"world.products is 31; .* has only 30"):
        catalogue.load(tmp_path, 31)


def test_a_broken_file_is_not_a_short_one(tmp_path: Path, records, instructions):
    (tmp_path / "items_shuffle.json").write_text(json.dumps(records)[:-50])
    (tmp_path / "items_ins_v2.json").write_text(json.dumps(instructions))
    with pytest.raises(UserError, match="damaged"):
        catalogue.load(tmp_path)


def test_a_folder_without_a_catalogue_is_the_users_mistake(tmp_path: Path):
    with pytest.raises(UserError, match="name the folder of a WebShop catalogue"):
        catalogue.load(tmp_path)


@pytest.mark.realdata
def test_the_genuine_catalogue():
    folder = data("webshop")
    products = catalogue.load(folder)
    assert len(products) == 1000
    assert sum(bool(product.instruction) for product in products) == 415
    assert sum(len(product.pricing) == 2 for product in products) == 93
    assert {product.category for product in products} == set(DEPARTMENTS)
    with gzip.open(folder / "documents_1k.jsonl.gz", "rt", encoding="utf-8") as lines:
        contents = [json.loads(line)["contents"] for line in lines]
    assert [indexed_text(product) for product in products] == contents


@pytest.mark.realdata
@pytest.mark.parametrize("kind, count", [("color", 286), ("price_color", 286), ("size", 268)])
def test_lookalikes_are_products_that_are_no_goals(kind, count):
    lookalikes = catalogue.load_lookalikes(data("webshop") / f"lookalike_v_{kind}.json.gz")
    genuine = catalogue.load(data("webshop"))
    assert len(lookalikes) == count
    assert not {product.asin for product in lookalikes} & {product.asin for product in genuine}
    assert {product.title for product in lookalikes} <= {product.title for product in genuine}
    assert all(product.options and not product.instruction for product in lookalikes)
