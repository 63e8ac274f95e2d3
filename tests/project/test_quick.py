"""`make quick` covers every layer, leaves heavy packages alone, and is a part of `make test`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from support.collection import left_out, markers_of_file
from support.repository import ROOT, TESTS

# Tests of whole programs, of others' engines, and what no layer is: slow by nature.
NO_LAYER = {"examples", "oracles", "support"}
MATHEMATICS = [
    "tests/aggregation/test_robust.py",
    "tests/aggregation/test_server_optimizers.py",
    "tests/algorithms/fedrlhf/test_fedrlhf.py",
    "tests/algorithms/momentum/test_gradient_estimators.py",
    "tests/algorithms/momentum/test_momentum.py",
    "tests/algorithms/qhd/test_fedqhd.py",
    "tests/algorithms/qhd/test_ridge.py",
    "tests/llm/rl/test_advantages.py",
    "tests/llm/rl/test_policy_gradient.py",
    "tests/partition/test_partition.py",
    "tests/privacy/test_privacy_accounting.py",
    "tests/privacy/test_secure_shares.py",
    "tests/privacy/test_secure_sum.py",
]
COLLECT = """
import json, sys, pytest
class Seen:
    def pytest_collection_finish(self, session):
        ids = [item.nodeid for item in session.items]
        with open(sys.argv[2], "w") as file:
            json.dump({"ids": ids, "modules": sorted(sys.modules)}, file)
sys.exit(pytest.main(["--collect-only", "-qq", "-m", sys.argv[1]], plugins=[Seen()]))
"""


def expression(target: str) -> str:
    """What the Makefile gives to `-m` there."""
    lines = re.search(rf"^{target}:.*\n(?:\t.*\n)+", (ROOT / "Makefile").read_text(), re.M)
    assert lines
    return re.search(r'pytest .*?-m "([^"]+)"', lines[0])[1]


@pytest.fixture(scope="module")
def quick(tmp_path_factory) -> dict[str, list[str]]:
    pytest.importorskip("torch", reason="some of the mathematics needs torch (fedrl[llm])")
    told = tmp_path_factory.mktemp("quick") / "collected.json"
    command = [sys.executable, "-c", COLLECT, expression("quick"), str(told)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(told.read_text())


@pytest.mark.slow
def test_quick_has_tests_of_every_layer_and_of_the_mathematics(quick):
    files = Counter(name.split("::")[0] for name in quick["ids"])
    folders = Counter(name.split("/")[1] for name in quick["ids"])
    layers = {path.name for path in TESTS.iterdir() if any(path.glob("**/test_*.py"))} - NO_LAYER
    few = {layer: folders[layer] for layer in layers if folders[layer] < 10}
    assert not few
    assert [file for file in MATHEMATICS if files[file] < 5] == []
    for family in ("fedagent", "fedrlhf", "momentum", "qhd"):
        assert sum(n for file, n in files.items() if f"/algorithms/{family}/" in file) >= 30, family
    assert len(quick["ids"]) > 6000


@pytest.mark.slow
def test_quick_collects_without_heavy_packages(quick):
    """A few seconds each, in every worker, for tests that are left out anyway."""
    assert not {"peft", "trl", "playwright"} & set(quick["modules"])


def test_quick_leaves_out_by_markers_that_make_test_runs():
    assert left_out(expression("quick")) == {"slow", "machines"}
    assert left_out(expression("test")) == {"machines"}


@pytest.mark.parametrize(
    ("asked", "markers"),
    [
        ("", set()),
        ("slow", set()),
        ("not slow", {"slow"}),
        ("not slow and realdata and not machines", {"slow", "machines"}),
        ("not slow or realdata", set()),
        ("not (slow and realdata)", set()),
        ("slow or realdata and not machines", set()),
    ],
)
def test_only_a_marker_that_no_test_may_have_is_left_out(asked, markers):
    assert left_out(asked) == markers


@pytest.mark.parametrize(
    ("text", "markers"),
    [
        ("pytestmark = pytest.mark.slow\n", {"slow"}),
        (
            "pytestmark = [\n    pytest.mark.slow,\n    pytest.mark.machines,\n]\n",
            {"slow", "machines"},
        ),
        ("@pytest.mark.slow\ndef test_this():\n    pass\n", set()),
        ("class TestThat:\n    pytestmark = pytest.mark.slow\n", set()),
    ],
)
def test_only_a_marker_of_all_tests_is_one_of_the_file(tmp_path: Path, text, markers):
    path = tmp_path / "test_this.py"
    path.write_text(text)
    assert markers_of_file(path) == markers


def test_a_file_is_left_out_only_if_all_its_tests_are(request):
    """Of all files that were collected with this one: its text says what pytest found."""
    items = request.session.items
    said = {path: markers_of_file(path) & {"slow", "machines"} for path in {i.path for i in items}}
    for item in items:
        assert said[item.path] <= {marker.name for marker in item.iter_markers()}, item.nodeid
