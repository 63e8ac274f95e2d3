"""The method on the page about policy gradients is a whole one, in a file outside the package."""

from __future__ import annotations

import re

import numpy as np
import pytest
from support.policy_gradients import make, played
from support.repository import DOCS

import fedrl
from fedrl.algorithms.classics.scaffold import Scaffold

pytestmark = pytest.mark.slow

PAGE = (DOCS / "policy_gradients.md").read_text(encoding="utf-8")
CODE = re.search(r"```python\n(.*?)```", PAGE.split("<!-- example -->")[1], re.DOTALL)[1]


def test_the_example_is_scaffold(tmp_path):
    """With all clients in every round; and it is short."""
    names: dict = {"__name__": "page"}
    exec(compile(CODE, "docs/policy_gradients.md", "exec", dont_inherit=True), names)
    mine, ours = (
        played(make(cls), rounds=3).last.states[0] for cls in (names["Scaffold"], Scaffold)
    )
    for name in ("theta", "control"):
        np.testing.assert_allclose(mine[name]["logits"], ours[name]["logits"], rtol=1e-3, atol=1e-5)
    assert len([line for line in CODE.splitlines() if line.strip()]) < 60


def test_the_example_is_named_by_its_file(tmp_path):
    file = tmp_path / "scaffold_pg.py"
    file.write_text(CODE, encoding="utf-8")
    own = {"name": f"{file}:Scaffold", "local_steps": 2, "strength": 0.5}
    tables = {"world": {"name": "random_mdp", "horizon": 6}, "federation": {"clients": 2}}
    run = fedrl.run(tables | {"algorithm": own}, rounds=1, out=tmp_path / "runs")
    assert run.status == "finished"
