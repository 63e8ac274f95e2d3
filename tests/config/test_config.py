"""Settings: strict, typed, and errors that name the key and the fix."""

from __future__ import annotations

import re
import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrl.cli import notes_printed
from fedrl.config.build import build_world
from fedrl.config.flag_parsing import fields
from fedrl.config.loading import (
    find_recipe,
    read_recipe,
    recipes_folder,
    require_names,
    resolve,
    to_toml,
)
from fedrl.core.types import UserError

RECIPES = sorted(recipes_folder().glob("*/*.toml"))


@pytest.mark.parametrize("path", RECIPES, ids=lambda p: p.stem)
def test_every_recipe_resolves_and_survives_a_round_trip(path):
    config = resolve(read_recipe(path))
    assert resolve(tomllib.loads(to_toml(config))) == config


@pytest.mark.parametrize("path", RECIPES, ids=lambda p: p.stem)
def test_recipes_say_only_what_differs_from_the_defaults(path):
    data = tomllib.loads(path.read_text())
    named = ("algorithm", "world", "aggregate")
    names = {k: {"name": data[k]["name"]} for k in named if "name" in data.get(k, {})}
    plain = resolve(names)
    for table, value in data.items():
        keys = value.items() if isinstance(value, dict) else [(None, value)]
        for key, chosen in keys:
            if key == "name":
                continue
            default = getattr(plain, table) if key is None else getattr(getattr(plain, table), key)
            assert chosen != default, f"{table}.{key} = {chosen} is the default"


@settings(max_examples=40, deadline=None)
@given(
    rounds=st.integers(1, 10**6),
    beta=st.floats(1e-6, 1.0),
    clients=st.integers(1, 10**5),
    standardize=st.booleans(),
)
def test_flags_and_recipes_mean_the_same(rounds, beta, clients, standardize):
    flags = resolve(
        {},
        [
            "--rounds",
            str(rounds),
            f"--algorithm.beta={beta!r}",
            "--federation.clients",
            str(clients),
            "--algorithm.standardize",
            str(standardize).lower(),
        ],
    )
    recipe = resolve(
        {
            "rounds": rounds,
            "algorithm": {"beta": beta, "standardize": standardize},
            "federation": {"clients": clients},
        }
    )
    assert flags == recipe
    assert resolve(tomllib.loads(to_toml(flags))) == flags


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (
            ["--algorithm.betta", "1"],
            "unknown key --algorithm.betta; did you mean 'algorithm.beta'",
        ),
        (["--ronds", "3"], "did you mean 'rounds'"),
        (["--beta", "0.5"], "did you mean 'algorithm.beta'"),
        (["--rounds", "3.5"], "rounds is 3.5; it must be a whole number"),
        (["--rounds", "true"], "rounds is True; it must be a whole number"),
        (["--rounds"], "--rounds needs a value"),
        (["--out", "--rounds", "3"], "--out needs a value"),
        (["--algorithm.lr", "nan"], "algorithm.lr is nan; it must be a finite number"),
        (["--name", "../x"], "name is '../x'"),
        (["--algorithm.standardize", "1"], "algorithm.standardize is 1; it must be true or false"),
        (["--federation.kind", "centralised"], "did you mean 'centralized'"),
        (["--algorithm.name", "fedsvrpg"], "did you mean 'fedsvrpg-m'"),
        (["--world.name", "cartpol"], "did you mean 'cartpole'"),
        (["--aggregate.name", "meen"], "did you mean 'mean'"),
        (["--world.kappa", "0.5"], "unknown key --world.kappa"),  # a random MDP's, not CartPole's
        (["--federation.deadline", "2"], "federation.deadline needs clients that can be stopped"),
        (["--workers", "2"], "needs engine"),
        (["--faults.clients", "[99]"], "faults.clients names clients outside 0 to 4"),
        (["rounds"], "unexpected argument 'rounds'"),
        (["--seed", "-1"], "seed is -1"),
    ],
)
def test_mistakes_in_flags(flags, words):
    with pytest.raises(UserError) as error:
        resolve({}, flags)
    assert words in str(error.value)
    assert len(str(error.value).splitlines()) <= 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ronds = 3", "unknown key ronds; did you mean 'rounds'"),
        ("[algorithm]\nbetta = 1", "unknown key algorithm.betta; did you mean 'algorithm.beta'"),
        ("[algoritm]\nbeta = 1", "unknown key algoritm; did you mean 'algorithm'"),
        ("rounds = '3'", "rounds is '3'; it must be a whole number"),
        ("federation = 3", "federation must be a table"),
        ("algorithm = 3", "algorithm must be a table"),
        ("rounds =", "not valid TOML"),
        ("[algorithm]\nname = 3", "algorithm.name is 3; it must be a text"),
        ("[algorithm]\nname = ['a']", "it must be a text"),
    ],
)
def test_mistakes_in_recipes(tmp_path, text, words):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(UserError) as error:
        resolve(read_recipe(path))
    assert words in str(error.value)


def test_a_flag_that_names_another_method_brings_its_presets():
    recipe = {"algorithm": {"name": "fedsvrpg-m", "beta": 0.5, "lr": 0.004}}
    other = resolve(recipe, ["--algorithm.name", "pavg"])
    assert (other.algorithm.beta, other.algorithm.lr) == (1.0, 0.004)
    assert resolve(recipe, ["--algorithm.name", "fedsvrpg-m"]).algorithm.beta == 0.5


QHD_ONLY = {"bandwidth": 0.75, "encoders": "own", "ridge": 1e-6}
SHARED_BY_Q_LEARNERS = {"epsilon_decay": 0.9, "sync_steps": 70, "gradient_steps": 2, "huber": 0.5}


def test_recipes_to_choose_from_are_in_order():
    with pytest.raises(UserError) as told:
        find_recipe("zzz/qqq")
    names = str(told.value).partition("choose from ")[2].split(", ")
    assert len(names) > 20
    assert names == sorted(names)


@pytest.mark.parametrize("name", ["feddqn", "distill-dqn"])
def test_one_flag_changes_the_method_of_a_recipe(name, capsys):
    """What only the recipe's own method has is left out, and said; what both have stays."""
    recipe = {
        "algorithm": {"name": "fedqhd", **QHD_ONLY, **SHARED_BY_Q_LEARNERS},
        "world": {"name": "acrobot-v1"},
    }
    with notes_printed():
        chosen = resolve(recipe, ["--algorithm.name", name]).algorithm
    assert chosen == type(chosen)(name=name, **SHARED_BY_Q_LEARNERS)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said.startswith(f"note: algorithm.name is {name}, which has no bandwidth, encoders, ri")
    assert recipe["algorithm"]["bandwidth"] == 0.75  # the caller's table is not touched


@pytest.mark.parametrize(
    "path", [p for p in RECIPES if p.parent.name == "fedqhd"], ids=lambda p: p.stem
)
@pytest.mark.parametrize("name", ["fedqhd", "truncate-qhd", "feddqn", "distill-dqn"])
def test_every_recipe_of_the_family_takes_every_method(path, name):
    assert resolve(read_recipe(path), ["--algorithm.name", name]).algorithm.name == name


def test_nothing_is_said_where_nothing_is_left_out(capsys):
    with notes_printed():
        resolve({"algorithm": {"name": "fedqhd", "gamma": 0.9}}, ["--algorithm.name", "feddqn"])
        resolve({"algorithm": {"name": "fedqhd", **QHD_ONLY}}, ["--algorithm.name", "fedqhd"])
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("recipe", "flags", "words"),
    [
        ({"bandwidht": 0.75}, [], "unknown key algorithm.bandwidht"),
        ({}, ["--algorithm.bandwidth", "0.75"], "unknown key --algorithm.bandwidth"),
        ({"name": ["fedqhd"]}, [], None),
    ],
    ids=["a key that neither has", "a flag", "no name before"],
)
def test_a_changed_method_forgives_no_mistakes(recipe, flags, words):
    data = {"algorithm": {"name": "fedqhd", "bandwidth": 0.5} | recipe}
    with pytest.raises(UserError, match=words):
        resolve(data, ["--algorithm.name", "feddqn", *flags])


def test_an_old_name_is_told_the_new_one():
    told = r"algorithm\.updates_per_step is called algorithm\.gradient_steps now"
    with pytest.raises(UserError, match=told):
        resolve({"algorithm": {"name": "fedqhd", "updates_per_step": 3}})
    with pytest.raises(UserError, match="--" + told):
        resolve({"algorithm": {"name": "fedqhd"}}, ["--algorithm.updates_per_step", "3"])
    with pytest.raises(UserError, match=r"unknown key algorithm\.updates_per_step"):
        resolve({"algorithm": {"name": "pavg", "updates_per_step": 3}})  # never had it


@pytest.mark.parametrize(
    ("recipe", "flags", "words"),
    [
        ({"buffer": {"size": 2}}, [], "^buffer is called async_buffer now"),
        ({}, ["--buffer.size", "2"], r"^--buffer\.size is called async_buffer\.size now"),
        ({"aggregate": {"attackers": 1}}, [], r"^aggregate\.attackers is called aggregate\.byz"),
    ],
)
def test_an_old_table_is_told_the_new_one(recipe, flags, words):
    with pytest.raises(UserError, match=words):
        resolve(recipe, flags)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("local_lr", "lr"),
        ("server", "server_optimizer"),
        ("opening_trajectories", "initial_trajectories"),
    ],
)
def test_the_momentum_methods_share_names_with_the_others(old, new):
    with pytest.raises(UserError, match=rf"algorithm\.{old} is called algorithm\.{new} now"):
        resolve({"algorithm": {"name": "fedsvrpg-m", old: 1}})


def test_the_walker_runs_the_best_row_of_its_method():
    """Recipe and result page cannot part: β and η are those of FedHAPG-M's best end there."""
    page = recipes_folder().parent / "docs" / "results" / "momentum.md"
    section = page.read_text(encoding="utf-8").split("## The curves behind Table 3: Walker2d")[1]
    rows = re.findall(
        r"\| FedHAPG-M β=(\S+) \| (\S+) \| \S+ ± \S+(?: †)? \| [^|]* \| (\S+) ±",
        section.split("\n## ")[0],
    )
    assert len(rows) == 3
    beta, lr, _ = max(rows, key=lambda row: float(row[2]))
    found = resolve(read_recipe(find_recipe("momentum/walker"))).algorithm
    assert (found.name, found.beta, found.lr) == ("fedhapg-m", float(beta), float(lr))


def test_none_restores_an_optional_setting():
    data = {"world": {"name": "hopper", "noise": 0.1}}
    assert resolve(data).world.noise == 0.1
    assert resolve(data, ["--world.noise", "none"]).world.noise is None


def test_a_recipe_names_its_method_and_world():
    with pytest.raises(UserError, match="names no algorithm"):
        require_names({"rounds": 3})
    with pytest.raises(UserError, match="names no world"):
        require_names({"algorithm": {"name": "pavg"}, "world": {}})


def test_a_methods_own_default_can_be_overridden():
    assert resolve({"algorithm": {"name": "pavg"}}).algorithm.beta == 1.0
    assert resolve({}, ["--algorithm.name", "fedhapg-m"]).algorithm.beta == 0.8
    both = resolve({}, ["--algorithm.name", "fedhapg-m", "--algorithm.beta", "0.5"])
    assert both.algorithm.beta == 0.5


def test_recipes_are_found_by_name_and_by_path():
    by_name = find_recipe("momentum/cartpole")
    assert find_recipe(str(by_name)) == by_name
    assert find_recipe("recipes/momentum/cartpole.toml").name == "cartpole.toml"
    with pytest.raises(UserError, match="did you mean 'momentum/cartpole'"):
        find_recipe("momentum/cartpol")


def test_lists_in_flags():
    config = resolve({}, ["--track", "tensorboard,trackio", "--faults.clients", "1,3"])
    assert config.track == ("tensorboard", "trackio")
    assert config.faults.clients == (1, 3)


def test_every_setting_has_a_meaning():
    """`fedrl run RECIPE --help` shows a comment for every key."""
    from fedrl.config.help import comments

    for path in RECIPES:
        config = resolve(read_recipe(path))
        for section in (config.federation, config.algorithm, config.world, config.faults):
            meaning = comments(type(section))
            for key in fields(type(section)):
                assert meaning.get(key) or key == "name", f"{type(section)}: {key}"


def test_a_share_that_cannot_be_dealt_names_the_flag():
    tables = {"name": "x", "world": {"name": "household", "size": "tiny", "train": 27},
              "algorithm": {"name": "fedagent"}, "federation": {"clients": 2},
              "partition": {"size": 100}}  # fmt: skip
    with pytest.raises(UserError, match=r"at most size = 27; .*--partition\.size"):
        build_world(resolve(tables))
