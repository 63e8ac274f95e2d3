"""FedAgent's recipes: the paper's main setting, and every command that their comments show."""

from __future__ import annotations

import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest

from fedrl.config.flag_parsing import section, split_flags
from fedrl.config.loading import find_recipe, read_recipe, recipes_folder, resolve
from fedrl.config.schema import Config
from fedrl.runs.warmstart import Settings

RECIPES = sorted((recipes_folder() / "fedagent").glob("*.toml"))
COMMANDS = [
    (path.stem, shlex.split(command))
    for path in RECIPES
    for command in re.findall(
        r"^fedrl .*", re.sub(r"\\\n# +", "", path.read_text()).replace("#   fedrl", "fedrl"), re.M
    )
]
WORLDS = {"household": "alfworld", "webshop": "webshop"}


def of(words: list[str]) -> Config:
    return resolve(read_recipe(find_recipe(words[2])), words[3:])


@pytest.mark.parametrize(("recipe", "words"), COMMANDS, ids=lambda x: " ".join(x[1:])[:70])
def test_every_command_in_a_recipe_can_be_typed(recipe, words):
    if words[1] == "run":
        assert words[2] == f"fedagent/{recipe}"
        if words[3:] == ["--dry-run"]:  # no setting, and none is changed
            return
        assert of(words) != resolve(read_recipe(find_recipe(words[2])))
    elif words[1] == "warmstart":
        flags = [pair for pair in split_flags(words[3:]) if pair[0] != "out"]
        ours = [pair for pair in flags if not pair[0].startswith("world.")]
        settings = section(Settings, ours, "")
        theirs = [f"--{key}={value}" for key, value in flags if key.startswith("world.")]
        assert settings.tasks <= resolve({"world": {"name": words[2]}}, theirs).world.public
        assert "--out" in words
    else:
        assert words[1] in ("data", "sweep")


@pytest.mark.parametrize("recipe", WORLDS)
def test_the_main_setting_is_the_papers(recipe):
    config = of(["fedrl", "run", f"fedagent/{recipe}"])
    agent = config.algorithm
    assert (config.rounds, config.federation.clients, config.federation.cohort) == (70, 100, 2)
    assert (config.partition.strategy, config.partition.size) == ("uniform", 100)
    assert (agent.local_epochs, agent.tasks, agent.group) == (3, 8, 8)
    assert (agent.lr, agent.weight_decay, agent.max_grad_norm, agent.clip) == (1e-6, 0.01, 1.0, 0.2)
    assert (agent.kl, agent.entropy, agent.minibatch) == (0.01, 0.001, 64)
    assert (agent.temperature, agent.eval_temperature, agent.answer_tokens) == (1.0, 0.4, 512)
    assert (agent.format, agent.thinking, agent.estimator) == ("chat", True, "grpo")
    assert agent.invalid_penalty == 0.1 / 5  # 0.1 of 10, over a group's deviation of about 5
    assert config.world.source == WORLDS[recipe]
    shop = recipe == "webshop"
    assert agent.prompt_tokens == (4096 if shop else 2048)
    assert agent.eval_split == ("valid" if shop else "unseen")
    assert config.world.max_steps == (15 if shop else 50)


@pytest.mark.parametrize("recipe", WORLDS)
def test_baselines_and_settings_of_the_paper_are_shown(recipe):
    shown = [of(words) for name, words in COMMANDS if name == recipe and words[1] == "run"]
    kinds = [(c.federation.kind, c.federation.client) for c in shown]
    assert ("centralized", 0) in kinds
    assert [client for kind, client in kinds if kind == "local"] == [21, 42, 84]
    assert {c.partition.size for c in shown} == {100, 500, 1000}
    assert {c.federation.cohort for c in shown} == {0, 1, 2, 4}
    epochs = {(c.algorithm.local_epochs, c.rounds) for c in shown if c.algorithm.format == "chat"}
    assert epochs == {(1, 210), (3, 70), (5, 42)}
    assert all(a * b == 210 for a, b in epochs)
    scenes = {"scenes"} if recipe == "household" else set()
    assert {c.partition.strategy for c in shown} == scenes | {
        "uniform", "preference", "coverage", "hardness"
    }  # fmt: skip
    if recipe == "webshop":
        assert {kind for c in shown for kind in c.world.variants} == {
            "catalogue", "fields", "ranking", "lookalikes", "reranking"
        }  # fmt: skip


def test_a_setting_whose_reason_is_not_plain_has_a_comment_above():
    explained = {"rounds", "name", "model", "clients", "cohort", "source", "eval_split"}
    for recipe in WORLDS:
        lines = Path(find_recipe(f"fedagent/{recipe}")).read_text().splitlines()
        for above, line in pairwise(lines):
            key = line.partition(" = ")[0]
            if " = " in line and not line.startswith("#") and key not in explained:
                assert above.startswith("#"), line
