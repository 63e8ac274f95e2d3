"""The generated catalogue: reproducible, in the schema, varied, and every goal can be found."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrl.envs.webshop.generate import generate, products
from fedrl.envs.webshop.goals import draw_goals
from fedrl.envs.webshop.nouns import plain
from fedrl.envs.webshop.product import DEPARTMENTS, Product, indexed_text
from fedrl.envs.webshop.reward import Rules, unwinnable
from fedrl.envs.webshop.search import Index
from fedrl.envs.webshop.vocabulary import vocabulary


@pytest.fixture(scope="module")
def catalogue() -> list[Product]:
    return generate(2500)


def digest(seed: int) -> str:
    return hashlib.sha256(repr(generate(1100, seed)).encode()).hexdigest()


@pytest.mark.slow
def test_a_larger_catalogue_begins_with_the_smaller(catalogue: list[Product]) -> None:
    assert generate(1300) == catalogue[:1300]
    assert list(islice(products(10**9), 5)) == catalogue[:5]
    assert generate(0) == []


def test_seeds_differ_and_repeat() -> None:
    assert generate(10, 1) == generate(10, 1)
    assert all(one != other for one, other in zip(generate(10, 1), generate(10, 2)))


@pytest.mark.slow
def test_another_process_makes_the_same_products() -> None:
    code = "from test_webshop_generate import digest; print(digest(3))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent,
        check=True,
    )
    assert done.stdout.strip() == digest(3)


@pytest.mark.slow
def test_asins_are_unique_and_in_the_genuine_style() -> None:
    found = {product.asin for product in products(20_000, 7)}
    assert len(found) == 20_000
    assert all(re.fullmatch(r"B0[0-9A-Z]{8}", asin) for asin in found)


def test_the_schema(catalogue: list[Product]) -> None:
    for product in catalogue:
        assert product.category in DEPARTMENTS
        assert " › " in product.path
        assert 6 <= len(product.title.split()) <= 30
        assert product.description
        assert "{" not in product.title + product.description + "".join(product.bullets)
        assert 3 <= len(product.bullets) <= 5
        assert len(product.pricing) <= 2
        assert all(0 < price < 1000 for price in product.pricing)
        assert list(product.pricing) == sorted(product.pricing)
        assert len(product.options) <= 3
        for name, values in product.options.items():
            assert name == name.lower()
            assert 2 <= len(values) == len(set(values))
            assert all(value == value.lower().strip() for value in values)
        assert len(set(product.attributes)) == len(product.attributes) >= 3
        assert set(product.instruction_attributes) <= set(product.attributes)
        assert bool(product.instruction) == bool(product.instruction_attributes)


def test_the_mix(catalogue: list[Product]) -> None:
    count = len(catalogue)
    departments = Counter(product.category for product in catalogue)
    assert min(departments.values()) > 0.1 * count
    assert {product.query for product in catalogue} == {kind.query for kind in vocabulary().kinds}
    assert 0.35 < sum(bool(product.instruction) for product in catalogue) / count < 0.55
    assert set(Counter(len(product.options) for product in catalogue)) == {0, 1, 2, 3}
    prices = Counter(len(product.pricing) for product in catalogue)
    assert 0 < prices[0] < prices[2] < prices[1]


def test_sisters_differ(catalogue: list[Product]) -> None:
    """Products of one brand, line and kind are never the same in all that a goal can ask for."""
    families: dict[str, list[Product]] = {}
    for product in catalogue:
        families.setdefault(" ".join(product.title.split()[:3]) + product.path, []).append(product)
    sisters = [family for family in families.values() if len(family) > 1]
    assert len(sisters) > 0.05 * len(catalogue)
    for family in sisters:
        told = {
            (product.attributes, tuple(product.options.items()), product.pricing)
            for product in family
        }
        assert len(told) == len(family)


def test_every_goal_can_be_found_and_won(catalogue: list[Product]) -> None:
    """The words of an instruction lead to its product within the five pages."""
    shelf = catalogue[:1000]
    index = Index.build([product.asin for product in shelf], map(indexed_text, shelf))
    for place, product in enumerate(shelf):
        if product.instruction:
            assert place in index.search(product.instruction)
            assert place in index.search(product.title, 10)
    drawn = draw_goals(shelf, 0)
    assert len(drawn.goals) > 1000
    by_asin = {product.asin: product for product in shelf}
    assert list(unwinnable(drawn.goals, by_asin, drawn.prices, Rules(False, plain))) == []


@given(st.integers(0, 2**31))
@settings(max_examples=15, deadline=None)
def test_any_seed(seed: int) -> None:
    for product in generate(40, seed):
        text = f"{indexed_text(product)} {' '.join(product.bullets)}".lower()
        assert all(attribute in text for attribute in product.attributes)
