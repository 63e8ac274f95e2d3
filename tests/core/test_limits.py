"""One sentence per rule, with the key as the user writes it; NaN passes no limit."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

from fedrl.core.limits import above_zero, at_least_one, not_negative
from fedrl.core.types import UserError


@pytest.mark.parametrize(
    ("check", "good", "bad", "rule"),
    [
        (at_least_one, 1, 0, "it must be at least 1"),
        (not_negative, 0.0, -1e-9, "it must not be negative"),
        (above_zero, 1e-9, 0.0, "it must be above 0"),
    ],
)
def test_a_limit_names_the_key_the_value_and_the_rule(check, good, bad, rule):
    check(SimpleNamespace(a=good, b=good), "world.", "a", "b")
    for wrong in (bad, math.nan):
        with pytest.raises(UserError) as caught:
            check(SimpleNamespace(a=good, b=wrong), "world.", "a", "b")
        assert str(caught.value) == f"world.b is {wrong}; {rule}"
