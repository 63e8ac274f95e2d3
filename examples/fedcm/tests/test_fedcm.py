"""FedCM is PAvg at α = 1, and on a table it moves as the formula says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from fedrl_fedcm import FedCM

import fedrl
from fedrl.config.build import build_algorithm
from fedrl.core.types import Job, UserError

SMALL = {
    "rounds": 3,
    "federation": {"clients": 3},
    "world": {"name": "cartpole", "horizon": 30},
}


def test_with_alpha_1_it_is_pavg(tmp_path: Path):
    mine = fedrl.run(SMALL | {"algorithm": {"name": "fedcm", "alpha": 1.0}}, out=tmp_path / "a")
    pavg = fedrl.run(SMALL | {"algorithm": {"name": "pavg"}}, out=tmp_path / "b")
    for number, metrics in pavg.rounds.items():
        same = [key for key in metrics if not key.startswith("comm/")]  # Δ_r travels, unread
        assert [mine.rounds[number][key] for key in same] == [metrics[key] for key in same]


def test_a_step_leans_towards_the_last_direction():
    """With Δ_r in hand, one local step is α times the gradient's and (1 − α) η Δ_r."""
    tables = SMALL | {"world": {"name": "random_mdp", "horizon": 20}}
    own = {"local_steps": 1, "lr": 0.1}
    mine = build_algorithm(
        fedrl.configure(tables | {"algorithm": {"name": "fedcm", "alpha": 0.25, **own}})
    )
    pavg = build_algorithm(
        fedrl.configure(tables | {"algorithm": {"name": "fedcm", "alpha": 1.0, **own}})
    )
    assert isinstance(mine, FedCM)
    state = mine.init(0)
    last = {name: np.full_like(leaf, 3.0) for name, leaf in state["theta"].items()}
    sent = mine.broadcast({**state, "last": last}, 1)
    leaning = mine.local(Job(1, sent, None, 5)).update
    alone = pavg.local(Job(1, sent, None, 5)).update
    for name, change in leaning.items():
        np.testing.assert_allclose(change, 0.25 * alone[name] + 0.75 * 0.1 * 3.0, rtol=1e-4)


def test_an_impossible_share_is_one_line():
    with pytest.raises(UserError, match=r"algorithm\.alpha is 0\.0; it must lie in"):
        fedrl.configure(SMALL | {"algorithm": {"name": "fedcm", "alpha": 0.0}})
