"""docs/prompts.md's recipe for data of one's own, from its files to an exported model."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="language models need torch (fedrl[llm])")

from support.repository import DOCS

from fedrl.cli import call
from fedrl.runs.read import load

SECTION = (DOCS / "prompts.md").read_text("utf-8").partition("## Thirty prompts, two clients")[2]
SECTION = SECTION.partition("\n## ")[0]


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", SECTION, re.DOTALL)
    return found


@pytest.mark.slow
def test_thirty_prompts_and_two_clients_end_in_a_model(tmp_path: Path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    exec(compile(block("python"), "prepare.py", "exec"), {})
    assert sum(len(file.read_text().splitlines()) for file in Path("data").rglob("*")
               if file.is_file()) == 30  # fmt: skip
    Path("tickets.toml").write_text(block("toml"))
    commands = re.findall(r"^ {4}fedrl (.*)$", SECTION, re.M)
    called = [line.split()[0] for line in commands]
    assert called == ["warmstart", "partition", "run", "run", "report", "eval", "export", "serve"]
    for line in commands[:-1]:  # a server goes on: test_serve_page.py asks one
        words = [
            str(found)
            for word in shlex.split(line)
            for found in (sorted(tmp_path.glob(word)) if "*" in word else [word])
        ]
        assert call(words) == 0, (line, capfd.readouterr().err)
    (path,) = tmp_path.glob("runs/tickets/*")
    run = load(path)
    assert run.status == "finished"
    assert run.meta["evaluated_tasks"] == 4
    assert (path / "report.html").is_file()
    assert Path("models/better/config.json").is_file()
    said = capfd.readouterr()
    assert "evaluated on 4 tasks: one task is 25 points" in said.err
    for line in ("client 0 (north): 10 tasks, 6 trained on", "public: 6 train, 4 test"):
        assert line in said.err  # of the run
        assert line in said.out  # of the looks before it
