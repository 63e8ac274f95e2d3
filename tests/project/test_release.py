"""What a release needs is there: version, tag, changelog, types, the files that people look for."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib

import pytest
from support.repository import ROOT

import fedrl


def test_the_version_is_said_once_and_has_its_lines_in_the_changelog():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "version" in project["dynamic"]
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.M)
    assert headings[0] == fedrl.__version__


@pytest.mark.parametrize("name", ["CITATION.cff", "docs/citing.md"])
def test_whoever_cites_it_names_this_version(name):
    said = re.findall(r"^ *version(?::| =) \{?([\d.]+)", (ROOT / name).read_text("utf-8"), re.M)
    assert said == [fedrl.__version__]


def test_a_tag_says_the_version():
    asked = ["git", "tag", "--points-at", "HEAD"]
    told = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    tags = [tag for tag in told.stdout.split() if tag.startswith("v")]
    if not tags:
        pytest.skip("this commit is no release")
    assert tags == [f"v{fedrl.__version__}"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project.get("urls"), "a release says where its source, documentation and issues are"


@pytest.mark.parametrize(
    "name",
    ["LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "CODE_OF_CONDUCT.md", "src/fedrl/py.typed",
     ".github/pull_request_template.md", ".github/ISSUE_TEMPLATE/bug.md"],
)  # fmt: skip
def test_what_people_look_for_is_there(name):
    assert (ROOT / name).is_file()


def test_the_makefile_has_every_target_that_contributing_names():
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.M))
    named = set(re.findall(r"`make (\w+)", (ROOT / "CONTRIBUTING.md").read_text("utf-8")))
    assert len(named) > 5
    assert named <= targets


def test_the_readme_fits_its_first_promises():
    """The papers to cite, the platforms, the limits: what a reader decides by."""
    readme = (ROOT / "README.md").read_text("utf-8")
    assert len(re.findall(r"^@\w+\{\w+, title", readme, re.M)) >= 5
    first, _, rest = readme.partition("\n## ")
    for word in ("make demo", "make test", "demo.png", "| methods |", "Three stories",
                 "What it does not do", "Windows", "macOS"):  # fmt: skip
        assert word in first  # before any section: one screen
    assert len(first.splitlines()) < 35
    assert len(readme.partition("## Citing")[0].splitlines()) < 110
    assert "Apache-2.0" in rest
    papers = re.search(r"```bibtex\n.*?```", readme, re.S)[0]
    assert papers in (ROOT / "docs" / "citing.md").read_text("utf-8")


UNIX = {"fcntl", "grp", "pty", "pwd", "readline", "resource", "syslog", "termios", "tty"}


def test_nothing_that_only_unix_has_is_needed_to_import_a_module():
    """On Windows `fedrl list` must answer, and name WSL where it cannot."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno} {name}"
        for path in sorted((ROOT / "src").rglob("*.py"))
        for node in ast.parse(path.read_text("utf-8")).body
        for name in _imported(node)
        if name.partition(".")[0] in UNIX
    ]
    assert not found


def _imported(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else []


def test_a_package_that_is_missing_is_named(tmp_path):
    """Of an installation with --no-deps, say: one line, and not where numpy was imported."""
    (tmp_path / "numpy.py").write_text("raise ModuleNotFoundError(name='numpy')")
    asked = [sys.executable, "-c", "from fedrl.__main__ import main; main()", "list"]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    told = subprocess.run(asked, env=environment, capture_output=True, text=True, check=False)
    assert told.returncode == 1
    assert told.stderr == 'error: fedrl needs the package numpy: pip install "fedrl"\n'
