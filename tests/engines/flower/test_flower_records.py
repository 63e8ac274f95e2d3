"""A heading and pieces in a Flower message, and back."""

from __future__ import annotations

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")

from flwr.app import ConfigRecord, RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects

from fedrl.core import serialization
from fedrl.engines.flower.adapter import records


def test_a_small_body_travels_in_few_objects():
    """Each is a request, from the driver to the SuperLink, to a SuperNode and to its executor."""
    small, large = [b"ab", b"c"], [bytes(records.SMALL), b"c"]
    assert len(get_all_nested_objects(records.content("x", records.body(small)))) == 2
    for pieces in (small, large, []):
        assert records.opened(records.content("x", records.body(pieces))) == ("x", pieces)


@pytest.mark.parametrize("beside", ["text", [1, 2], ["a"], 5, b"bytes"])
def test_a_body_in_the_heading_is_bytes_or_refused(beside):
    heading = ConfigRecord({"text": "x", records.BODY: beside})
    with pytest.raises(serialization.Damaged):
        records.opened(RecordDict({records.HEADING: heading}))


def test_a_message_has_one_body():
    both = records.content("x", records.body([bytes(records.SMALL + 1)]))
    both[records.HEADING] = ConfigRecord({"text": "x", records.BODY: [b"another"]})
    with pytest.raises(serialization.Damaged):
        records.opened(both)
