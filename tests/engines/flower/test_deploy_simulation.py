"""docs/deploy.md's first part, word for word: what the organisations try on one machine."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the extra llm")

from support.environments import EXAMPLES
from support.repository import DOCS

pytestmark = [pytest.mark.slow, pytest.mark.machines]


def commands() -> list[str]:
    """Those of the section, without the installation: the example's code goes on the path."""
    page = (DOCS / "deploy.md").read_text(encoding="utf-8")
    text = page.split("## First on one machine", 1)[1].split("```", 1)[0]
    lines = re.findall(r"^    (\S.*)$", text, re.M)
    assert lines[0].startswith("pip install ")
    return lines[1:]


def test_the_simulation_of_the_page_ends_in_what_joining_brings(tmp_path: Path):
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, words in (("fedrl", "-m fedrl"), ("python", "")):
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        (programs / name).chmod(0o755)
    code = [str(EXAMPLES / "sort_digits" / "src"), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(filter(None, code)),
        "HOME": str(tmp_path),
    }
    said = ""
    for command in commands():
        done = subprocess.run(
            ["bash", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True,
            timeout=1500, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        said = done.stdout
    (metrics,) = tmp_path.glob("runs/prompts-organisations/*/metrics.jsonl")
    rounds = [json.loads(line) for line in metrics.read_text().splitlines()]
    assert rounds[-1]["eval/success"] > rounds[0]["eval/success"] + 0.05
    assert "alone" in said
    assert "federat" in said
