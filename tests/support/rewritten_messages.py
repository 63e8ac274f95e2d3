"""Messages of secure sums, changed on their way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")
from fedrl.core.types import Tensors
from fedrl.engines.flower import framing, messages, protocol
from fedrl.engines.flower.link import Arrived


def rewritten(change: Callable[[Tensors], Tensors]) -> Callable[[Arrived], Arrived]:
    """The answer with other tensors beside it, under a checksum that fits."""

    def edit(arrived: Arrived) -> Arrived:
        assert arrived.content is not None
        text, pieces = messages.opened(arrived.content)
        if not pieces:  # a refusal
            return arrived
        data = framing.pack(change(framing.unpack(b"".join(pieces))))
        told = replace(protocol.read(text, protocol.Answer), digest=framing.checksum([data]))
        content = messages.content(protocol.write(told), messages.body([data]))
        return arrived._replace(content=content)

    return edit
