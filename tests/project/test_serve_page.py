"""docs/serve.md runs from top to bottom, only shorter; its last block where a server is there."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="language models need torch (fedrl[llm])")
pytest.importorskip("transformers", reason="language models need transformers (fedrl[llm])")

from support.repository import DOCS

import fedrl
from fedrl.llm.pretrain import demonstrations
from fedrl.llm.pretrain.demonstrations import Expertise
from fedrl.llm.prompts.prompt_format import world_format
from fedrl.runs.serving import NEEDED

BLOCKS = re.findall(r"```python\n(.*?)```", (DOCS / "serve.md").read_text("utf-8"), re.DOTALL)
SHORTER = {
    "steps=300, batch=32": "steps=5, batch=8, width=16, layers=1, tasks=8",
    "rounds=10": "rounds=1",
    '"model": "models/household"': '"model": "models/household", "tasks": 2, "group": 2',
    '"max_steps": 20': '"max_steps": 3',
}


def test_the_prompt_that_the_page_shows_is_the_worlds_and_its_answer_the_experts():
    shown = BLOCKS[0]
    names: dict = {}
    (world,) = re.findall(r"^world = .*$", shown, re.M)
    (prompt,) = re.findall(r"^prompt = \(.*?^\)", shown, re.M | re.DOTALL)
    exec(f"{world}\n{prompt}", names)
    (answer,) = re.findall(r'^policy\.act\(prompt\)  # "(.*)"$', shown, re.M)
    home = fedrl.open_world(names["world"])
    format = world_format("compact", home, thinking=False)
    pairs = demonstrations.texts(home, format, ["unseen/00001"], Expertise(0.0, listed=True))
    assert (names["prompt"], answer) in list(pairs)


@pytest.mark.slow
def test_the_page_takes_a_run_to_an_answering_endpoint(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict = {"__name__": "__main__"}
    text = "\0".join(BLOCKS)
    for long, short in SHORTER.items():
        assert long in text
        text = text.replace(long, short)
    *blocks, last = text.split("\0")
    assert "run.serve()" in last
    for number, block in enumerate(blocks):
        exec(compile(block, f"docs/serve.md, block {number}", "exec"), names)
    agent, policy = names["agent"], names["policy"]
    assert isinstance(agent.said, str)
    assert 'license: "apache-2.0"' in Path("my-agent/README.md").read_text("utf-8")
    if all(map(importlib.util.find_spec, NEEDED["transformers"])):
        exec(compile(last, "docs/serve.md, the last block", "exec"), names)
        assert names["said"] == policy.act(agent.messages)
