"""The examples of docs/extend/language_agents.md, from files outside the tree."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="FedAgent needs the extra llm")
pytest.importorskip("transformers", reason="FedAgent needs the extra llm")

from support.agent_runs import last, recipe, train
from support.page_examples import saved_examples

PAGE = "extend/language_agents.md"
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("easier_game")]


def weights(path) -> dict[str, np.ndarray]:
    return last(path).states[0]["theta"]


@pytest.mark.parametrize("name", ["DrGRPO", "FedProxAgent"])
def test_it_trains_and_is_another_method(name, model, tmp_path):
    own = {"name": saved_examples(PAGE, tmp_path)[name], "group": 4, "local_epochs": 2}
    ours = train(recipe(model, rounds=1, algorithm=own), tmp_path / "a")
    plain = train(recipe(model, rounds=1, algorithm=own | {"name": "fedagent"}), tmp_path / "b")
    assert any((weights(plain)[p] != value).any() for p, value in weights(ours).items())


def test_a_pull_of_nothing_is_fedagent(model, tmp_path):
    own = {"name": saved_examples(PAGE, tmp_path)["FedProxAgent"], "group": 4, "mu": 0.0}
    ours = train(recipe(model, rounds=1, algorithm=own), tmp_path / "a")
    theirs = train(recipe(model, rounds=1, algorithm={"group": 4}), tmp_path / "b")
    for parameter, value in weights(ours).items():
        assert np.array_equal(value, weights(theirs)[parameter]), parameter
