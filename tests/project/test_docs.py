"""The code in the documentation runs."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from support.repository import DOCS

from fedrl.algorithms.fedagent.settings import Settings
from fedrl.config.loading import find_recipe, read_recipe, resolve
from fedrl.envs.gymnasium.settings import Settings as GymnasiumSettings
from fedrl.envs.interfaces import HostWorld
from fedrl.envs.simulated import repeats

PAGE = (DOCS / "worlds.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


AGENTS = (DOCS / "agents.md").read_text(encoding="utf-8")


def test_the_agents_page_names_what_there_is():
    recipes = re.findall(r"`(fedagent/\w+)`", AGENTS)
    assert len(recipes) > 2
    for recipe in recipes:
        assert resolve(read_recipe(find_recipe(recipe))).algorithm.name == "fedagent"
    fields = {field.name for field in dataclasses.fields(Settings)}
    options = re.search(r"## Options\n(.*?)\n## ", AGENTS, re.DOTALL)[1]
    named = [
        w
        for line in re.findall(r"^\| (`.*?) \|", options, re.M)
        for w in re.findall(r"`(\w+)`", line)
    ]
    assert len(named) > 5
    assert set(named) <= fields


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_every_block_of_the_page_runs(number):
    exec(compile(BLOCKS[number], f"docs/worlds.md, block {number}", "exec"), {})


@pytest.mark.filterwarnings("ignore:.*Not able to test alternative render modes")
def test_the_example_of_a_world_is_a_whole_one():
    example = PAGE.split("<!-- example -->")[1]
    code = re.search(r"```python\n(.*?)```", example, re.DOTALL)[1]
    names: dict = {}
    exec(compile(code, "docs/worlds.md", "exec"), names)
    check_env(names["env"])
    batch = names["batch"]
    batch.reset(["secret-3", "secret-7"])
    assert [turn.observation for turn in batch.step(["5", "5"])] == ["lower", "higher"]
    assert [turn.done for turn in batch.step(["3", "6"])] == [True, False]
    classes = code.split("class Guess:")[1].split("env = ")[0]
    assert len([line for line in classes.splitlines() if line.strip()]) <= 30


def test_the_example_of_a_gymnasium_world_plays_with_both_families():
    page = (DOCS / "gymnasium.md").read_text(encoding="utf-8")
    code = re.search(r"```python\n(.*?)```", page.split("<!-- example -->")[1], re.DOTALL)[1]
    names: dict = {"__name__": "__main__"}
    exec(compile(code, "docs/gymnasium.md", "exec"), names)
    world = names["Corridors"](names["Settings"](length=5), 3, 0)
    assert isinstance(world, HostWorld)
    assert repeats(world, 0)
    played = world.rollout(
        lambda seen, noise, alive: (noise < 0.5).astype(int),
        {"client": np.arange(3)[:, None]},
        np.arange(3, dtype=np.uint64),
    )
    assert played.mask.sum() > 3
    simulator = world.simulator([world.own])
    simulator.reset([0])
    assert len(simulator.step_alone(1)) == 4
    assert len([line for line in code.splitlines() if line.strip()]) < 50
    settings = {field.name for field in dataclasses.fields(GymnasiumSettings)}
    table = page.split("## Any id")[1].split("## ")[0]
    rows = [row for line in re.findall(r"^\| (.*?) \|", table, re.M) for row in line.split(", ")]
    named = {row.strip("`") for row in rows if row.startswith("`")}
    assert named == settings - {"name", "id"}


EXPLAINED = [
    (page, number, block)
    for folder in ("concepts", "explain", "worlds")
    for page in sorted((DOCS / folder).glob("*.md"))
    for number, block in enumerate(
        re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    )
]


@pytest.mark.parametrize(
    ("page", "number", "block"), EXPLAINED, ids=[f"{p.stem}-{n}" for p, n, _ in EXPLAINED]
)
def test_a_block_of_a_page_that_explains_runs(page, number, block):
    exec(compile(block, f"{page.name}, block {number}", "exec"), {})


def test_the_page_about_grpo_needs_no_pytorch():
    """Students install no `[llm]`."""
    [block] = re.findall(r"```python\n(.*?)```", (DOCS / "explain" / "grpo.md").read_text(), re.S)
    without = f"import sys\nsys.modules['torch'] = None\n{block}"
    done = subprocess.run([sys.executable, "-c", without], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


PYTHON = re.findall(r"```python\n(.*?)```", (DOCS / "python.md").read_text("utf-8"), re.DOTALL)


@pytest.mark.slow
def test_the_page_about_python_runs_from_top_to_bottom(tmp_path, monkeypatch):
    """Each block after the other, as in a notebook; only shorter."""
    import matplotlib

    matplotlib.use("Agg")
    monkeypatch.chdir(tmp_path)
    names: dict = {"__name__": "__main__"}
    assert len(PYTHON) >= 3
    for number, block in enumerate(PYTHON):
        shorter = re.sub(r"rounds=(\d+)", lambda found: f"rounds={int(found[1]) // 10}", block)
        exec(compile(shorter, f"docs/python.md, block {number}", "exec"), names)
    assert names["run"].status in ("stopped", "finished")
    assert names["runs"].whole
    assert len(names["runs"]) == 6
    assert {page.name for page in tmp_path.glob("*.html")} == {"compared.html", "sweep.html"}


def test_every_paragraph_of_the_glossary_explains_a_term():
    text = (DOCS / "glossary.md").read_text(encoding="utf-8")
    _, *paragraphs = text.split("\n\n")
    terms = [one for one in paragraphs if one.startswith("**")]
    assert len(terms) > 60
    assert paragraphs[paragraphs.index(terms[0]) :][: len(terms)] == terms
