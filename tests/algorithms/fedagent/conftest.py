"""What the tests of FedAgent share: a small model, and a game that it wins now and then."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.agent_runs import make_model, won_by_walking

from fedrl.envs.household.game import Game


@pytest.fixture(scope="session")
def model(tmp_path_factory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def easier_game(monkeypatch) -> None:
    monkeypatch.setattr(Game, "_goal_holds", won_by_walking)
