"""Secure sums over Flower: a recipe and a node's own flags, which go over it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")
pytest.importorskip("dp_accounting", reason="needs the extra privacy")

from fedrl import privacy
from fedrl.config import build
from fedrl.config.loading import resolve, to_toml
from fedrl.engines.flower import node_recipes
from fedrl.privacy.secure_aggregation import messages as secure_messages
from fedrl.privacy.secure_aggregation.protocol import ProtocolError

RECIPE = {
    "rounds": 2,
    "federation": {"clients": 4},
    "algorithm": {"name": "fedsvrpg-m", "local_steps": 2},
    "world": {"name": "random_mdp"},
}


def test_a_recipe_says_the_same_on_both_sides(tmp_path: Path):
    secret = {"clip": 0.7, "noise": 1.1, "secure": True, "threshold": 0.8}
    config = resolve(RECIPE | {"privacy": secret})
    text = to_toml(config)
    terms = build.terms(config)
    assert terms is not None
    assert node_recipes.plan(text, tmp_path, "", ()).terms == terms
    assert secure_messages.sendable(terms) == json.loads(
        json.dumps(secure_messages.sendable(terms))
    )
    plain = to_toml(resolve(RECIPE))
    assert node_recipes.plan(plain, tmp_path, "", ()).terms is None
    # An organisation can insist, whatever recipe comes.
    insists = ("--privacy.secure", "true", "--privacy.clip", "0.7")
    assert node_recipes.plan(plain, tmp_path, "", insists).terms is not None
    assert privacy.Settings(**secret).silent


@pytest.mark.parametrize("insists", [("secure",), ("noise",), ("secure", "noise")])
@pytest.mark.parametrize("key", ["reports", "seeded"])
def test_a_recipe_does_not_take_away_what_a_node_insists_on(
    insists: tuple[str, ...], key: str, tmp_path: Path
):
    """Metrics have no noise on them, and noise from a known seed can be subtracted."""
    sent = {"clip": 0.7, "noise": 1.1, "secure": True}
    recipe = to_toml(resolve(RECIPE | {"privacy": sent | {key: True}}))
    values = {"secure": "true", "noise": "1.1"}
    own = tuple(word for name in insists for word in (f"--privacy.{name}", values[name]))
    with pytest.raises(ProtocolError, match=f"do not allow privacy.{key} = true"):
        node_recipes.plan(recipe, tmp_path, "", own)
    for allowed in (
        (*own, f"--privacy.{key}", "true"),
        (*own, f"--privacy.{key}", "false"),  # goes over the recipe's
        ("--privacy.clip", "0.7"),
        (),
    ):
        assert node_recipes.plan(recipe, tmp_path, "", allowed).terms is not None
    quiet = to_toml(resolve(RECIPE | {"privacy": sent}))
    assert node_recipes.plan(quiet, tmp_path, "", own).terms is not None


def test_noise_that_a_node_insists_on_is_not_left_to_the_server(tmp_path: Path):
    def sent(**fields: object) -> str:
        return to_toml(resolve(RECIPE | {"privacy": fields}))

    own = ("--privacy.noise", "4", "--privacy.clip", "1")
    for recipe in (sent(), sent(clip=1.0, noise=1.0), sent(clip=1.0, noise=4.0, where="central")):
        with pytest.raises(ProtocolError, match="which this recipe leaves to the server"):
            node_recipes.plan(recipe, tmp_path, "", own)
        node_recipes.plan(recipe, tmp_path, "", (*own, "--privacy.where", "local"))
        node_recipes.plan(
            recipe, tmp_path, "", (*own, "--privacy.where", "central")
        )  # it says so itself
    node_recipes.plan(sent(clip=1.0, noise=1.0, where="local"), tmp_path, "", own)
    node_recipes.plan(sent(clip=1.0, noise=1.0, secure=True), tmp_path, "", own)
