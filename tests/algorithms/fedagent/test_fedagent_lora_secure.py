"""FedAgent's adapters in secure sums: nodes tell masked vectors, and the run is the same one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="FedAgent needs the extra llm")
pytest.importorskip("transformers", reason="FedAgent needs the extra llm")
pytest.importorskip("peft", reason="LoRA needs peft (fedrl[llm])")
pytest.importorskip("flwr", reason="secure sums over nodes need the extra flower")

from support.agent_runs import recipe
from support.secure_nodes import SecretNet, over, rehearsed

from fedrl.config.build import build_algorithm
from fedrl.core import tree

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("easier_game")]

CLIENTS = 3
ALGORITHM = {"lora_rank": 4, "lora_alpha": 8, "lr": 1e-2, "tasks": 6, "group": 4, "eval_tasks": 4}
ROUNDS = {"clients": CLIENTS, "rounds": 2}


def test_adapters_add_up_secretly_as_they_do_in_one_process(model: Path, tmp_path: Path):
    federation = {"clients": CLIENTS, "cohort": CLIENTS}
    config = recipe(model, algorithm=ALGORITHM, federation=federation)
    algorithm = build_algorithm(config)
    net = SecretNet(algorithm, tmp_path, CLIENTS)
    there, here = over(net, **ROUNDS), rehearsed(algorithm, net.settings, **ROUNDS)
    first = tree.flatten(algorithm.init(3))
    found, expected = (tree.flatten(s.last.states[0]) for s in (there, here))
    assert set(found) == set(expected) == set(first)
    moved = [name for name in found if not np.array_equal(found[name], first[name])]
    assert any("lora_B" in name for name in moved)
    for name, value in found.items():
        np.testing.assert_array_equal(value, expected[name], err_msg=name)

    # Of every client came one vector, as long as its adapter, that tells nothing of it.
    masked = [seen for seen in net.answers_seen if seen.step == "mask"]
    assert len(masked) == 2 * CLIENTS
    broadcast = algorithm.broadcast(algorithm.init(3), 1)
    adapter = sum(int(np.prod(s.shape)) for s in algorithm.declare(broadcast).values())
    for seen in masked:
        (words,) = (value for value in seen.tensors.values() if isinstance(value, np.ndarray))
        assert adapter <= words.size <= adapter + 2
        top = words >> np.array(words.dtype.itemsize * 8 - 1, words.dtype)
        assert 0.45 < top.mean() < 0.55  # uniform: a change of weights has small numbers
