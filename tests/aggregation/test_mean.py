"""Sums are made block by block, and come out as if they were made at once."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from fedrl.aggregation import mean as means
from fedrl.aggregation.mean import weighted


def at_once(updates: list[dict[str, np.ndarray]], weights: list[float]) -> dict[str, np.ndarray]:
    """What the sum means: double precision, in the order of the clients."""
    found = {}
    for name, first in updates[0].items():
        total = np.zeros(first.shape, np.float64)
        for update, weight in zip(updates, weights, strict=True):
            total += weight * update[name].astype(np.float64)
        found[name] = (total / sum(weights)).astype(first.dtype)
    return found


@pytest.mark.parametrize("weights", [[1.0, 1.0, 1.0], [2.0, 0.3, 7.0]])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_blocks_are_summed_to_the_bit_as_whole_arrays_are(monkeypatch, weights, dtype):
    monkeypatch.setattr(means, "BLOCK", 8)
    rng = np.random.default_rng(0)
    sizes = {"none": 0, "one": 1, "less": 7, "block": 8, "more": 17}
    updates = [
        {name: rng.normal(size=size).astype(dtype) for name, size in sizes.items()}
        | {
            "scalar": np.asarray(rng.normal(), dtype),
            "turned": rng.normal(size=(5, 6)).astype(dtype).T,  # not in the order of memory
            "zero": np.full(3, -0.0, dtype),
        }
        for _ in weights
    ]
    found = weighted(zip(updates, weights, strict=True))
    for name, expected in at_once(updates, weights).items():
        assert found[name].dtype == expected.dtype
        assert found[name].shape == expected.shape
        assert found[name].tobytes() == expected.tobytes(), name


def test_a_mean_needs_its_sums_and_no_second_copy_of_them():
    """Of float32, sums are twice as large; each goes when its mean is made."""
    update = {str(i): np.ones(1 << 18, np.float32) for i in range(16)}  # 16 MB
    size = sum(array.nbytes for array in update.values())
    tracemalloc.start()
    try:
        weighted([(update, 1.0), (update, 1.0)])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2.3 * size
