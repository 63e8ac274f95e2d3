"""Messages of secure sums, changed on their way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")
from fedrl.core import serialization
from fedrl.core.types import Tensors
from fedrl.engines.flower import messages
from fedrl.engines.flower.adapter import records
from fedrl.engines.flower.superlink_client import Arrived


def rewritten(change: Callable[[Tensors], Tensors]) -> Callable[[Arrived], Arrived]:
    """The answer with other tensors beside it, under a checksum that fits."""

    def edit(arrived: Arrived) -> Arrived:
        assert arrived.content is not None
        text, pieces = records.opened(arrived.content)
        if not pieces:  # a refusal
            return arrived
        data = serialization.pack(change(serialization.unpack(b"".join(pieces))))
        told = replace(
            messages.from_json(text, messages.Answer), digest=serialization.checksum([data])
        )
        content = records.content(messages.to_json(told), records.body([data]))
        return arrived._replace(content=content)

    return edit
