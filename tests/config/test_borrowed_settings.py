"""A flag names another method: what the recipe had chosen for its own is kept, and said so."""

from __future__ import annotations

import pytest

from fedrl.config.build import notes
from fedrl.config.loading import as_dict, find_recipe, read_recipe, resolve, to_toml
from fedrl.runs.grid import digest
from fedrl.runs.resume_rules import kept_settings

pytest.importorskip("jax", reason="needs the extra classic")


def recipe() -> dict:
    return read_recipe(find_recipe("momentum/cartpole"))


def test_what_was_chosen_for_another_method_is_named():
    config = resolve(recipe(), ["--algorithm.name", "fedhapg-m"])
    assert config.algorithm.lr == 0.004  # as ever: only the note is new
    assert config.borrowed == (
        "fedsvrpg-m:lr", "fedsvrpg-m:standardize", "fedsvrpg-m:weight_clip",
    )  # fmt: skip
    (line,) = notes(config)
    assert "fedhapg-m runs with the recipe's lr, weight_clip" in line  # tuned, unlike a switch
    assert "chosen for fedsvrpg-m" in line


def test_what_a_method_does_not_read_is_not_borrowed():
    """β = 1 weights no gradient: PAvg with a clip is PAvg without."""
    flags = ["--algorithm.name", "pavg", "--algorithm.lr", "0.01"]
    assert resolve(recipe(), flags).borrowed == ("fedsvrpg-m:standardize",)
    assert notes(resolve(recipe(), flags)) == []
    hapg = ["--algorithm.name", "fedhapg-m", "--algorithm.beta", "1"]  # weights them all the same
    assert "fedsvrpg-m:weight_clip" in resolve(recipe(), hapg).borrowed


def test_what_is_said_anew_or_preset_is_the_methods_own():
    flags = ["--algorithm.name", "pavg", "--algorithm.lr", "0.01", "--algorithm.weight_clip", "0"]
    config = resolve(recipe(), flags)
    assert config.borrowed == ("fedsvrpg-m:standardize",)  # and not beta, which PAvg presets
    assert resolve(recipe(), [*flags, "--algorithm.standardize=false"]).borrowed == ()
    settings = {"algorithm": {"name": "pavg", "lr": 0.01}}
    assert "fedsvrpg-m:lr" not in resolve(recipe(), (), settings).borrowed


@pytest.mark.parametrize("flags", [[], ["--algorithm.name", "fedsvrpg-m"], ["--rounds", "3"]])
def test_a_recipes_own_method_borrows_nothing(flags):
    config = resolve(recipe(), flags)
    assert config.borrowed == ()
    assert notes(config) == []


def test_it_is_remembered_and_can_be_given_back():
    config = resolve(recipe(), ["--algorithm.name", "fedhapg-m"])
    again = resolve(as_dict(config))
    assert again == config
    assert "fedsvrpg-m:lr" in to_toml(again)
    tuned = resolve(as_dict(config), ["--algorithm.lr", "0.02"])
    assert "fedsvrpg-m:lr" not in tuned.borrowed


def test_no_number_and_no_folder_depends_on_it():
    config = resolve(recipe(), ["--algorithm.name", "fedhapg-m"])
    tables = as_dict(config)
    del tables["borrowed"]
    alike = resolve(tables)
    assert alike.borrowed == ()
    assert digest(alike) == digest(config)
    assert kept_settings(alike) == kept_settings(config)
