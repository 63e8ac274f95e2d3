"""Code of others on a node: installed, allowed by its owner, and the same as the driver's."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")
pytest.importorskip("jax", reason="needs the extra classic")

from support.packages import METHOD, install

from fedrl.config.build import packages
from fedrl.config.loading import resolve, to_toml
from fedrl.core.registry import load, only_packages
from fedrl.core.types import UserError
from fedrl.engines.flower.node_plan import Refused
from fedrl.engines.flower.node_recipes import build, configuration, plan

NAME = "fedrl-doubled"


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a driver sends that has the package."""
    monkeypatch.syspath_prepend(install(tmp_path / "site", NAME, METHOD))
    tables = {
        "algorithm": {"name": "fedrl_doubled:Doubled"},
        "world": {"name": "random_mdp"},
        "federation": {"clients": 2},
    }
    config = resolve(tables)
    sent = to_toml(resolve(tables | {"packages": list(packages(config))}))
    yield sent
    sys.modules.pop("fedrl_doubled", None)


def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another machine, without the driver's packages."""
    sys.modules.pop("fedrl_doubled", None)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p != str(tmp_path / "site")])


@pytest.mark.slow
def test_an_allowed_package_of_the_same_code_is_built(recipe: str, tmp_path: Path):
    assert configuration(recipe, (), {NAME}).algorithm.factor == 2.0
    algorithm = build(recipe, str(tmp_path), "", (), False, frozenset({NAME}))
    assert type(algorithm).__name__ == "Doubled"


@pytest.mark.slow
def test_a_package_that_is_not_allowed_is_not_imported(recipe: str):
    sys.modules.pop("fedrl_doubled")
    line = r"the run needs fedrl-doubled 0.1, which this node's owner has not allowed \(--allow-p"
    with pytest.raises(Refused, match=line):
        configuration(recipe, ())
    # A driver that does not say which packages it has gets no further.
    silent = "\n".join(x for x in recipe.splitlines() if "fedrl-doubled:" not in x)
    silent = silent.replace("packages = [\n]", "packages = []")
    with pytest.raises(UserError, match="has not allowed"):
        configuration(silent, ())
    assert "fedrl_doubled" not in sys.modules


@pytest.mark.slow
def test_a_package_that_is_missing_is_named(recipe: str, tmp_path: Path, monkeypatch):
    elsewhere(tmp_path, monkeypatch)
    with pytest.raises(Refused, match=r"needs fedrl-doubled 0.1, which is not installed on this"):
        configuration(recipe, (), {NAME})


@pytest.mark.slow
def test_another_version_is_named(recipe: str, tmp_path: Path, monkeypatch):
    elsewhere(tmp_path, monkeypatch)
    monkeypatch.syspath_prepend(install(tmp_path / "other", NAME, METHOD, version="0.2"))
    with pytest.raises(Refused, match=r"the run has fedrl-doubled 0.1, and this node 0.2"):
        configuration(recipe, (), {NAME})


def test_everything_that_is_wrong_with_packages_is_told_at_once(tmp_path: Path, monkeypatch):
    """Its owner would else restart the node once for each."""
    monkeypatch.syspath_prepend(install(tmp_path / "site", NAME, METHOD))
    wanted = [f"{NAME}:0.3:0", "gone-a:1.0:0", "gone-b:2.0:0", "their-a:1:0", "their-b:2:0"]
    with pytest.raises(Refused) as told:
        configuration(f"packages = {wanted}", (), {NAME, "gone-a", "gone-b"})
    assert str(told.value) == (
        "packages: the run needs their-a 1, their-b 2, which this node's owner has not allowed "
        "(--allow-package their-a --allow-package their-b); the run needs gone-a 1.0, gone-b 2.0, "
        "which are not installed on this node; the run has fedrl-doubled 0.3, and this node 0.1: "
        "install the same"
    )


WRAPPER = """
import gymnasium


class Halved(gymnasium.RewardWrapper):
    def reward(self, reward):
        return reward / 2
"""


@pytest.fixture
def gym_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    pytest.importorskip("gymnasium")
    monkeypatch.syspath_prepend(install(tmp_path / "own", "own-wrappers", WRAPPER))
    tables = {
        "algorithm": {"name": "pavg"},
        "world": {"name": "gymnasium", "id": "CartPole-v1"},
        "federation": {"clients": 2},
    }
    yield to_toml(resolve(tables))
    sys.modules.pop("own_wrappers", None)


@pytest.mark.slow
def test_what_the_owner_names_himself_needs_no_leave(gym_recipe: str, tmp_path: Path):
    """A wrapper of the node's own, and a method: the flags are its owner's word."""
    flags = ("--world.wrappers", "own_wrappers:Halved")
    assert plan(gym_recipe, tmp_path, "", flags)
    built = build(gym_recipe, str(tmp_path), "", flags, False, frozenset())
    env = built.world.environment(0)
    env.reset(seed=0)
    assert env.step(0)[1] == 0.5
    said = gym_recipe.replace("wrappers = []", 'wrappers = ["own_wrappers:Halved"]')
    assert said != gym_recipe
    with pytest.raises(UserError, match="has not allowed"):  # not as a recipe's word
        configuration(said, flags)


@pytest.mark.slow
def test_a_method_that_the_owner_names_needs_no_leave(recipe: str, tmp_path: Path):
    plain = to_toml(resolve({"algorithm": {"name": "pavg"}, "world": {"name": "random_mdp"}}))
    flags = ("--algorithm.name", "fedrl_doubled:Doubled")
    built = build(plain, str(tmp_path), "", flags, False, frozenset())
    assert type(built).__name__ == "Doubled"
    with pytest.raises(Refused, match="has not allowed"):  # the recipe's own stays a recipe's
        configuration(recipe, flags)


@pytest.mark.slow
def test_other_code_under_the_same_version_is_refused(recipe: str, tmp_path: Path, monkeypatch):
    elsewhere(tmp_path, monkeypatch)
    monkeypatch.syspath_prepend(install(tmp_path / "other", NAME, METHOD + "\n# changed\n"))
    with pytest.raises(Refused, match="other code under the same version"):
        configuration(recipe, (), {NAME})


@pytest.mark.parametrize("name", ["./mine.py:Doubled", "/tmp/mine.py:Doubled"])
def test_a_file_is_never_opened(name: str, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("raise SystemExit('imported')")
    with pytest.raises(UserError, match="a node takes installed packages only"):
        configuration(f'[algorithm]\nname = "{name}"', (), {NAME})


@pytest.mark.parametrize("said", ['["../x:1:2"]', '["a b:1:2"]', '["x"]', '[["x"]]', "[1]", '"x"'])
def test_packages_that_are_none_are_refused(said: str):
    with pytest.raises((Refused, UserError)):
        configuration(f"packages = {said}", (), {NAME})


@pytest.mark.parametrize("key", ["reward", "tools"])
@pytest.mark.parametrize(
    "name",
    [
        "gymnasium.envs.registration:load_env_creator",  # imports what it is told to
        "gymnasium.envs:make",
        "fedrl.envs.prompts.records:Path.home",
        "fedrl.envs.prompts.builtin_rewards:exact_match",
        "gymnasium.wrappers:np.load",
    ],
)
def test_functions_that_a_model_calls_are_of_allowed_packages_alone(name: str, key: str):
    """What a tool gets is what a model wrote, and the model is the coordinator's."""
    from fedrl.envs.prompts.rewards import REWARDS
    from fedrl.envs.tools.functions import TOOLS

    table = REWARDS if key == "reward" else TOOLS
    with only_packages({NAME}), pytest.raises(UserError, match="packages that its owner allows"):
        table.find(name)
    assert table.find(name).module == name  # on one's own machine


@pytest.mark.slow
def test_what_an_allowed_package_imports_is_not_taken_by_its_name(tmp_path: Path, monkeypatch):
    from fedrl.envs.prompts.rewards import REWARDS, Rewards

    source = "from subprocess import run\n\ndef mine(completions, **columns):\n    return []\n"
    monkeypatch.syspath_prepend(install(tmp_path / "site", "fedrl-shells", source))
    with only_packages({"fedrl-shells"}):
        assert Rewards.find(["fedrl_shells:mine"], ()).names == ("fedrl_shells:mine",)
        with pytest.raises(UserError, match="is of subprocess"):
            load(REWARDS.find("fedrl_shells:run"), "world.reward", "fedrl_shells:run")
    sys.modules.pop("fedrl_shells")
