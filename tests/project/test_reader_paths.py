"""The paths of `docs/start/` are walked: every command, top to bottom, in an empty folder, with
fewer rounds and steps. What is not run is named with the reason."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.repository import DOCS, ROOT

pytestmark = pytest.mark.slow

SKIPPED = {
    "python3 -m venv": "the tests' own environment",
    "pip install -c": "the tests' own environment",
    "fedrl serve": "tests/project/test_serve_page.py",
    "fedrl reproduce": "tests/reproductions/",
    "fedrl flower up": "tests/engines/flower/ and the notebook of three",
    "--engine flower": "tests/engines/flower/test_flower_namespaces.py follows deploy.md",
    "fedagent/household": "needs ALFWorld's games; tests/algorithms/fedagent/test_card_recipes.py",
}
NEEDS = {"researcher": ("jax",), "student": ("jax", "dp_accounting"), "agents": ("torch",),
         "organisation": ("torch",)}  # fmt: skip
SHORTER = '''#!{python}
"""fedrl, with fewer rounds, steps and tasks."""
import sys
from fedrl.cli import call
words = sys.argv[1:]
def set_(flag, value):
    if flag in words:
        words[words.index(flag) + 1] = value
    else:
        words.extend([flag, value])
if words[:1] == ["run"] and not {{"--help", "--dry-run", "--resume"}} & set(words):
    set_("--rounds", "1")
    if words[1].startswith(("fedagent/", "prompts/")):
        for flag in ("--algorithm.local_epochs", "--checkpoint_every", "--eval_every"):
            set_(flag, "1")
        set_("--algorithm.tasks", "2")
        set_("--algorithm.eval_tasks", "4")
if words[:1] == ["warmstart"]:
    set_("--steps", "3")
if words[:1] == ["sweep"]:
    words = [word if word != "0-4" else "0" for word in words]
    set_("--rounds", "1")
if __name__ == "__main__":  # workers import this file, too
    print("$ fedrl", *words, flush=True)
    sys.exit(call(words))
'''


INSTALL = '''#!{python}
"""pip install -e FOLDER, as far as entry points go: the environment of the tests stays as it is."""
import pathlib, sys, tomllib
folder = pathlib.Path(sys.argv[3])
project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
info = pathlib.Path("site", project["name"] + "-0.1.dist-info")
info.mkdir(parents=True)
head = f"Metadata-Version: 2.1\\nName: {{project['name']}}\\nVersion: 0.1\\n"
(info / "METADATA").write_text(head)
lines = []
for group, points in project["entry-points"].items():
    lines += [f"[{{group}}]", *(f"{{name}} = {{target}}" for name, target in points.items())]
(info / "entry_points.txt").write_text("\\n".join(lines))
'''
MODULES = {"python": "", "pytest": "-m pytest -p no:cacheprovider"}


def commands(page: str) -> list[str]:
    """Lines of indented blocks, without their comments."""
    text = (DOCS / "start" / f"{page}.md").read_text("utf-8")
    found = re.findall(r"^ {4}(\S.*)$", re.sub(r"```.*?```", "", text, flags=re.S), re.M)
    return [line.split("  #")[0].rstrip() for line in found]


def followed(page: str) -> list[str]:
    """Those that are run here."""
    return [line for line in commands(page) if not any(why in line for why in SKIPPED)]


@pytest.mark.parametrize("page", NEEDS)
def test_a_reader_gets_to_the_end(page: str, tmp_path: Path):
    for package in NEEDS[page]:
        pytest.importorskip(package, reason=f"the page needs {package}")
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "fedrl").write_text(SHORTER.format(python=sys.executable))
    (tools / "pip").write_text(INSTALL.format(python=sys.executable))
    for name, module in MODULES.items():
        (tools / name).write_text(f'#!/bin/sh\nexec {sys.executable} {module} "$@"\n')
    for tool in tools.iterdir():
        tool.chmod(0o755)
    text = (DOCS / "start" / f"{page}.md").read_text("utf-8")
    for name, block in re.findall(r"```toml\n(?:# (\w+\.toml)\n)?(.*?)```", text, re.S):
        (tmp_path / (name or "SWEEP.toml")).write_text(block)
    for name, block in re.findall(r"```python\n# (\w+\.py)\n(.*?)```", text, re.S):
        (tmp_path / name).write_text(block)
    lines = followed(page)
    assert len(lines) > 3
    script = "set -e\n" + "\n".join(lines).replace("--seeds 0-2", "--seeds 0")
    paths = [ROOT / "src", ROOT / "examples" / "sort_digits" / "src"]
    paths += [tmp_path / "mymethod" / "src", tmp_path / "site"]
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env=os.environ | {
            "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
        },
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    assert "Traceback" not in done.stderr


def test_what_is_skipped_is_on_some_page():
    text = "\n".join((DOCS / "start" / f"{page}.md").read_text("utf-8") for page in NEEDS)
    assert [words for words in SKIPPED if words not in text] == []


def test_the_readmes_python_runs(tmp_path: Path, monkeypatch):
    for package in ("jax", "pandas"):
        pytest.importorskip(package, reason=f"the README's Python needs {package}")
    readme = (ROOT / "README.md").read_text("utf-8")
    block = re.search(r"^ {4}import fedrl\n(?: {4}.*\n)+", readme, re.M)[0]
    code = "".join(line[4:] for line in block.splitlines(keepends=True))
    assert "rounds=50" in code
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    exec(compile(code.replace("rounds=50", "rounds=2"), "README.md", "exec"), {})
    assert (tmp_path / "page.html").is_file()
