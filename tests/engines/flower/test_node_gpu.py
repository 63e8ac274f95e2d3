"""A node whose GPU is full: what the coordinator hears of it, and what its owner does."""

from __future__ import annotations

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")

from fedrl.core.abilities import GpuBusy, GpuUse
from fedrl.core.types import UserError
from fedrl.engines.flower import node_recipes
from fedrl.engines.in_process import shareable

WORDS = "GPU 0 has no room for 60.0 GB beside 70.0 GB that 3 other processes have reserved, of 80.0"


class Crowded:
    def take_gpu(self, use: GpuUse) -> None:
        raise GpuBusy(WORDS)


def test_what_else_runs_on_a_nodes_gpu_stays_with_its_owner(capsys):
    with pytest.raises(UserError) as found:
        node_recipes.take_gpu(Crowded())
    assert shareable(found.value)
    assert str(found.value) == "no room on this node's GPU within 300 s"
    assert WORDS in capsys.readouterr().err
