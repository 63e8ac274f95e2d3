"""Whether two run folders hold the same."""

from __future__ import annotations

import numpy as np

from fedrl.core import tree


def equal(a, b):
    flat_a, flat_b = tree.flatten(a), tree.flatten(b)
    assert flat_a.keys() == flat_b.keys()
    for name in flat_a:
        assert type(flat_a[name]) is type(flat_b[name])
        np.testing.assert_array_equal(flat_a[name], flat_b[name])
        if isinstance(flat_a[name], np.ndarray):
            assert flat_a[name].dtype == flat_b[name].dtype
            assert flat_a[name].shape == flat_b[name].shape
