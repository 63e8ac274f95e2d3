"""The geometric median against what is known of it."""

from __future__ import annotations

import numpy as np
import pytest
from fedrl_geometric_median import geometric_median

from fedrl.core.types import TooFew


def points(*rows: list[float]) -> list[tuple[dict[str, np.ndarray], float]]:
    return [({"a": np.array(row[:1]), "b": {"c": np.array(row[1:])}}, 1.0) for row in rows]


def joined(update: dict) -> np.ndarray:
    return np.concatenate([update["a"], update["b"]["c"]])


def test_on_a_line_it_is_the_median():
    found = geometric_median(points([0.0, 0.0], [1.0, 0.0], [9.0, 0.0]), iterations=2000)
    np.testing.assert_allclose(joined(found), [1.0, 0.0], atol=1e-2)


def test_of_an_equilateral_triangle_it_is_the_centre():
    angles = 2 * np.pi * np.arange(3) / 3
    corners = np.stack([np.cos(angles), np.sin(angles)], 1) + 5
    found = geometric_median(points(*corners.tolist()))
    np.testing.assert_allclose(joined(found), [5.0, 5.0], atol=1e-9)


def test_pulls_of_unit_length_cancel_out():
    """Where it lies, the unit vectors to all points add up to nothing."""
    random = np.random.default_rng(0).standard_normal((9, 4))
    found = joined(geometric_median(points(*random.tolist()), iterations=500))
    away = random - found
    pulls = away / np.linalg.norm(away, axis=1, keepdims=True)
    np.testing.assert_allclose(pulls.sum(0), 0, atol=1e-6)


def test_a_liar_hardly_moves_it_and_moves_the_mean():
    honest = np.random.default_rng(1).standard_normal((6, 3))
    far = np.vstack([honest, [[1e6, 1e6, 1e6]]])
    found = joined(geometric_median(points(*far.tolist()), iterations=200))
    assert np.linalg.norm(found - honest.mean(0)) < 2


def test_of_two_there_is_no_middle():
    with pytest.raises(TooFew):
        geometric_median(points([0.0, 0.0], [1.0, 0.0]))
