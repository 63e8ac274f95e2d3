"""OpenEnv and verifiers as they are published, each in an environment of its own.

They bring too much along for the environment of the other tests, where what needs them is skipped:
here it is run, from the adapters to an agent that is trained on two nodes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from support import environments
from support.repository import ROOT

pytest.importorskip("torch", reason="needs the extra llm")
pytest.importorskip("flwr", reason="needs the extra flower")

pytestmark = pytest.mark.slow


class Package(NamedTuple):
    requirement: str
    adapter: str
    example: str


PACKAGES = {
    "openenv": Package("openenv-core==0.3.0", "test_openenv_servers.py", "higher_lower"),
    "verifiers": Package("verifiers==0.3.1", "test_verifiers_environments.py", "word_hints"),
}
"""The versions that docs/environments.md says are tested."""


@pytest.mark.machines
@pytest.mark.network
@environments.needs_pip
@pytest.mark.parametrize("name", PACKAGES)
def test_what_is_skipped_elsewhere_passes_beside_the_real_package(name: str, tmp_path: Path):
    package = PACKAGES[name]
    folder = tmp_path / "environment"
    python = environments.make(folder)
    target = ["--target", str(environments.packages(folder))]
    installed = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", *target, package.requirement],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if installed.returncode:
        pytest.skip(f"pip finds no {package.requirement} here")
    examples = [
        f"tests/examples/{file}[{package.example}]"
        for file in (
            "test_environment_examples.py::test_an_agent_is_trained_in_each",
            "test_examples_on_nodes.py::test_two_nodes_compute_what_one_process_does",
        )
    ]
    done = subprocess.run(
        [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp",
         str(tmp_path / "inside"), f"tests/oracles/{package.adapter}", *examples],
        cwd=ROOT, capture_output=True, text=True, check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    assert "skipped" not in done.stdout.splitlines()[-1]


def test_the_page_names_the_versions_that_are_tested():
    page = (ROOT / "docs" / "environments.md").read_text(encoding="utf-8")
    for package in PACKAGES.values():
        assert package.requirement.split("==")[1] in page
