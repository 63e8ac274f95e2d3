"""Numbers in words: prefixes, digits that an interval can carry, plurals, ranges."""

from __future__ import annotations

import math

import pytest

from fedrl.core.number_format import counted, data_size, number_ranges, plus_minus, si


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.0123, "", "0.0123"),
        (9000, "", "9000"),
        (1.2e6, "", "1.2M"),
        (999_999, "", "1M"),
        (3.4e6, "B", "3.4 MB"),
        (12, "B", "12 B"),
        (float("nan"), "", "NaN"),
    ],
)
def test_si(value: float, unit: str, text: str) -> None:
    assert si(value, unit) == text


@pytest.mark.parametrize(
    ("mean", "half", "percent", "text"),
    [
        (478.2, 12.3, False, "478 ± 12"),
        (12_345.6, 1_234.5, False, "12,346 ± 1,234"),
        (0.51, 0.0123, False, "0.510 ± 0.012"),
        (75.0, math.nan, True, "75.0%"),
        (47.84, 1.2, True, "48 ± 1%"),
        (478.26, math.nan, False, "478.3"),
        (3.0, 0.0, False, "3 ± 0"),
        (math.nan, 1.0, False, "NaN"),
    ],
)
def test_plus_minus(mean: float, half: float, percent: bool, text: str) -> None:
    assert plus_minus(mean, half, percent) == text


def test_counted_things() -> None:
    assert [counted(n, "step") for n in (0, 1, 2)] == ["0 steps", "1 step", "2 steps"]


def test_sizes_of_data() -> None:
    sizes = [data_size(n) for n in (7840, 986_624, 1_000_000, 19_732_480, 40_960_000_000)]
    assert sizes == ["7,840 bytes", "986,624 bytes", "1 MB", "19.7 MB", "41 GB"]


def test_ranges_of_numbers() -> None:
    assert number_ranges([3, 7, 8, 9, 12]) == "3, 7–9, 12"
    assert number_ranges([]) == ""
