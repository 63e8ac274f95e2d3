"""What a node takes from recipes: every setting of every method and world is thought of."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")

from fedrl.algorithms import METHODS
from fedrl.config.flag_parsing import fields
from fedrl.config.loading import find_recipe, read_recipe, recipes_folder, resolve
from fedrl.config.schema import SECTIONS, Config
from fedrl.core.registry import load
from fedrl.core.types import (
    Address,
    Assignment,
    CodeCall,
    CodeName,
    FilePath,
    ModelName,
    Word,
)
from fedrl.engines.flower.node_plan import Refused
from fedrl.engines.flower.policy import Policy
from fedrl.engines.flower.policy_check import Node, check, fetches, readable, refusals
from fedrl.envs import WORLDS

RECIPES = sorted(str(p.relative_to(recipes_folder())) for p in recipes_folder().glob("*/*.toml"))


def texts() -> Iterator[tuple[str, Any]]:
    """Every setting that is a text, or a list of them, and how its field is annotated."""
    classes = [(f"algorithm {n}", load(e, "algorithm", n).Settings) for n, e in METHODS.items()]
    classes += [(f"world {n}", load(e, "world", n).Settings) for n, e in WORLDS.items()]
    classes += [(cls.__module__, cls) for cls in (*SECTIONS, Config)]
    for name, cls in classes:
        hints = typing.get_type_hints(cls, include_extras=True)
        for key, kind in fields(cls).items():
            if kind is str or str in typing.get_args(kind):
                yield f"{name}.{key}", hints[key]


def test_every_text_says_what_it_names():
    """Else nodes take no other value of it than its default, and its users wonder why."""
    single = (Word, Address, Assignment, CodeName, CodeCall, FilePath, ModelName)
    known = (*single, *(tuple[hint, ...] for hint in single))
    assert len(list(texts())) >= 25
    assert [key for key, hint in texts() if hint not in known] == []


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_that_come_with_fedrl_are_taken(name: str, tmp_path: Path):
    """With their models where they say, in the node's folder."""
    config = resolve(read_recipe(find_recipe(name)), ["--engine", "workers"])
    if model := getattr(config.algorithm, "model", ""):
        (tmp_path / model).mkdir(parents=True)
    check(config, Policy(), Node(tmp_path))


@dataclass(frozen=True)
class Newer:
    """Settings of a method that nobody has told this module of."""

    name: str = "newer"
    reward_model: str = "none"
    shards: tuple[str, ...] = ()
    anything: Any = None
    seed: int = 0


@pytest.mark.parametrize(
    ("key", "value"),
    [("reward_model", "gpt2"), ("shards", ("a",)), ("anything", "x"), ("name", "other")],
)
def test_a_text_that_says_nothing_is_only_taken_as_it_is_by_default(key, value, tmp_path: Path):
    config = resolve({"algorithm": {"name": "pavg"}, "world": {"name": "random_mdp"}})
    check(dataclasses.replace(config, algorithm=Newer(seed=2**60)), Policy(), Node(tmp_path))
    changed = dataclasses.replace(config, algorithm=Newer(**{key: value}))
    with pytest.raises(Refused, match=rf"^algorithm\.{key}: this node does not know"):
        check(changed, Policy(), Node(tmp_path))
    check(changed, Policy(allow=("algorithm",)), Node(tmp_path))


# Policies -----------------------------------------------------------------------------------------

BASE = {
    "algorithm": {"name": "pavg"},
    "world": {"name": "random_mdp"},
    "federation": {"clients": 9, "quorum": 1.0},
}
LOCAL = {"clip": 1.0, "noise": 4.0, "where": "local"}
SUM = {"clip": 1.0, "noise": 4.0, "secure": True, "threshold": 0.6}  # six of nine must stay
PEERS = Node(Path(), peers=True)
ALONE = Node(Path())


def refused(policy: Policy, privacy: dict[str, Any], node: Node = ALONE) -> list[str]:
    """The settings that are refused of a recipe with these, as far as floors go."""
    config = resolve(BASE | {"privacy": privacy})
    return [line.split(":")[0].split(" ")[0] for line in refusals(config, policy, node)]


@pytest.mark.parametrize(
    ("policy", "privacy", "node", "keys"),
    [
        (Policy(clip=1.0), {}, ALONE, ["privacy.clip"]),
        (Policy(clip=1.0), {"clip": 1.5}, ALONE, ["privacy.clip"]),
        (Policy(clip=1.0), {"clip": 1.0}, ALONE, []),
        (Policy(clip=1.0), {"clip": 0.1}, ALONE, []),
        (Policy(secure=True), {"clip": 1.0}, ALONE, ["privacy.secure"]),
        (Policy(secure=True), SUM, ALONE, []),
        (Policy(secure=True), SUM | {"reports": True}, ALONE, ["privacy.reports"]),
        (Policy(noise=4.0), LOCAL, ALONE, []),
        (Policy(noise=4.1), LOCAL, ALONE, ["privacy.noise"]),
        (Policy(noise=4.0), LOCAL | {"where": "central"}, ALONE, ["privacy.noise"]),
        (Policy(noise=4.0), LOCAL | {"seeded": True}, ALONE, ["privacy.noise", "privacy.seeded"]),
        (Policy(noise=4.0), SUM, PEERS, []),
        (Policy(noise=4.0), SUM, ALONE, ["privacy.noise"]),  # the others' may be invented
        (Policy(noise=1.6), SUM, ALONE, []),  # 4/√6 is its own part
        (Policy(noise=1.7), SUM, ALONE, ["privacy.noise"]),
        (Policy(epsilon=8.0), {}, ALONE, ["privacy.noise"]),
        (Policy(epsilon=8.0), LOCAL | {"where": "central"}, PEERS, ["privacy.noise"]),
        (Policy(epsilon=8.0), LOCAL | {"reports": True}, ALONE, ["privacy.reports"]),
        (Policy(epsilon=8.0), LOCAL, ALONE, []),
        (Policy(least_clients=6), SUM, ALONE, []),
        (Policy(least_clients=7), SUM, ALONE, ["federation.clients"]),
        (Policy(least_clients=9), LOCAL, ALONE, []),
        (Policy(least_clients=10), LOCAL, ALONE, ["federation.clients"]),
        (Policy(clip=0.5, noise=9.0, secure=True, least_clients=10), {}, ALONE,
         ["federation.clients", "privacy.secure", "privacy.clip", "privacy.noise"]),
    ],
)  # fmt: skip
def test_no_recipe_goes_below_a_floor(policy, privacy, node, keys):
    assert refused(policy, privacy, node) == keys
    loose = dataclasses.replace(policy, allow=("privacy", "federation"))
    trusted = {"privacy.reports", "privacy.seeded"}
    assert refused(loose, privacy, node) == [key for key in keys if key not in trusted]
    own = dataclasses.replace(node, own=frozenset(f"privacy.{key}" for key in privacy))
    assert refused(policy, privacy, own) == [key for key in keys if key not in trusted]


def test_every_line_names_the_policys_key():
    policy = Policy(
        coordinators=("a" * 64,), methods=("fedqhd",), worlds=("cartpole",), clip=1.0, noise=1.0,
        secure=True, epsilon=1.0, least_clients=99,
    )  # fmt: skip
    config = resolve(BASE | {"privacy": {}})
    found = refusals(config, policy, Node(Path(), coordinator="b" * 64))
    named = ["coordinators", "methods", "worlds", "least_clients", "secure", "clip", "noise"]
    assert [line.rpartition("(")[2].rstrip(")") for line in found] == [*named, "epsilon"]
    assert all(len(line.splitlines()) == 1 and len(line) < 200 for line in found)


@pytest.mark.parametrize("key", ["methods", "worlds"])
def test_methods_and_worlds_are_those_that_are_named(key: str):
    config = resolve(BASE)
    name = {"methods": "pavg", "worlds": "random_mdp"}[key]
    assert refusals(config, Policy(**{key: (name,)}), ALONE) == []
    assert refusals(config, Policy(**{key: ("other", "any")}), ALONE) == []
    (line,) = refusals(config, Policy(**{key: ("other",)}), ALONE)
    assert f"({key})" in line
    assert "other" not in line
    with pytest.raises(Refused) as error:  # of both values: for the node's own logs
        check(config, Policy(**{key: ("other",)}), ALONE)
    assert str(error.value) == line
    assert error.value.own == f'recipe: {name}; policy: {key} = ["other"]'
    setting = {"methods": "algorithm.name", "worlds": "world.name"}[key]
    assert refusals(config, Policy(**{key: ()}), Node(Path(), frozenset({setting}))) == []


TEXTS = {"algorithm": {"name": "fedrlhf-text"}, "world": {"name": "imdb"}}


def test_models_are_those_that_are_named(tmp_path: Path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "other").mkdir()

    def lines(model: str, policy: Policy) -> list[str]:
        tables = {"algorithm": TEXTS["algorithm"] | {"model": model}, "world": TEXTS["world"]}
        return refusals(resolve(tables), policy, Node(tmp_path))

    assert lines("mine", Policy()) == lines("mine", Policy(models=("mine",))) == []
    assert "(models)" in lines("other", Policy(models=("mine",)))[0]
    assert lines("org/remote", Policy(models=("mine", "org/remote"))) == []
    assert lines("org/remote", Policy()) != []
    assert lines("any", Policy()) != []  # no model of that name


def test_the_owner_is_told_where_a_model_is_missing_and_the_coordinator_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """What has to be copied needs no loosening of the policy."""

    def refused(model: str, policy: Policy) -> str:
        tables = {"algorithm": TEXTS["algorithm"] | {"model": model}, "world": TEXTS["world"]}
        with pytest.raises(Refused) as error:
            check(resolve(tables), policy, Node(tmp_path))
        assert str(tmp_path) not in str(error.value)
        cure = "its owner copies the coordinator's model into it" in str(error.value)
        assert cure == ("any" in policy.models)
        assert cure != ("allow" in str(error.value))  # nobody is told to loosen the policy
        return capsys.readouterr().err

    here = f"there is no {tmp_path / 'model'}: copy the coordinator's model there"
    assert here in refused("model", Policy())
    assert "there is no" not in refused("/etc/model", Policy())
    assert "there is no" not in refused("model", Policy(models=("mine",)))


def test_what_is_fetched_is_what_the_owner_names(tmp_path: Path):
    tables = {"algorithm": TEXTS["algorithm"] | {"model": "mine"}, "world": TEXTS["world"]}
    config = resolve(tables)
    assert not fetches(config, Policy(), Node(tmp_path))
    assert fetches(config, Policy(models=("mine",)), Node(tmp_path))
    assert fetches(config, Policy(allow=("algorithm.model",)), Node(tmp_path))
    assert fetches(config, Policy(), Node(tmp_path, frozenset({"algorithm.model"})))


@pytest.mark.parametrize(
    ("privacy", "policy", "flags"),
    [
        ({}, Policy(secure=True), "--privacy.clip 1 --privacy.secure true"),
        ({"clip": 0.5}, Policy(secure=True), "with --privacy.secure true"),
        ({}, Policy(secure=True, clip=0.2), "--privacy.clip 0.2 --privacy.secure true"),
    ],
)
def test_who_asks_for_a_plain_update_is_told_what_would_do(privacy, policy, flags):
    line = refusals(resolve(BASE | {"privacy": privacy}), policy, ALONE)[0]
    assert line.startswith("privacy.secure: this node sends updates only into secure sums: run it")
    assert f"{flags} (secure)" in line
    words = [word for word in line.split() if word.startswith("--") or word in ("1", "0.2", "true")]
    assert refusals(resolve(BASE | {"privacy": privacy}, words), policy, ALONE) == []


def test_folders_that_the_owner_names_are_read_and_no_others(tmp_path: Path):
    home, shared = tmp_path / "node", tmp_path / "shared"
    for place in (home, shared / "deep", tmp_path / "shared2"):
        place.mkdir(parents=True)
    (shared / "out").symlink_to(tmp_path)
    policy, node = Policy(folders=(str(shared),)), Node(home, private=(shared / "key",))

    def may(path: object) -> bool:
        return readable(str(path), policy, node)

    assert may(shared / "labels.json")
    assert may(shared / "deep" / "x")
    assert may("labels.json")
    for path in (
        tmp_path / "x", tmp_path / "shared2" / "x", f"{shared}/../x", shared / "out" / "x",
        "../shared/x", shared / "key", home / "x", "/etc/passwd", f"//{shared}/x:y",
    ):  # fmt: skip
        assert not may(path), path
    assert not readable(str(shared / "x"), Policy(), node)


def test_a_key_of_another_name_in_the_folder_is_nobodys_to_read(tmp_path: Path):
    node = Node(tmp_path, private=(tmp_path / "secrets" / "north.key",))
    for path in ("secrets/north.key", "secrets"):
        assert not readable(path, Policy(), node)
    assert readable("secrets/other", Policy(), node)


@pytest.mark.parametrize("name", ["policy.toml", "audit.jsonl", "audit.head", "recipes/approved/x"])
def test_what_decides_is_no_recipes_file(name: str, tmp_path: Path):
    assert not readable(name, Policy(), Node(tmp_path))


def test_steps_of_one_client_alone_are_refused_in_secure_sums():
    """A million of its and one of everybody else's: the sum would be its direction."""
    lone = {"algorithm": {"name": "pavg", "client_steps": [900, 1, 1, 1, 1, 1, 1, 1, 1]}}
    line = "algorithm.client_steps: this node adds up only with clients that all do the same"
    (found,) = refusals(resolve(BASE | lone | {"privacy": SUM}), Policy(), PEERS)
    assert found.startswith(line)
    assert refusals(resolve(BASE | lone), Policy(), PEERS) == []
    alike = {"algorithm": {"name": "pavg", "client_steps": [3, 3]}}
    assert refusals(resolve(BASE | alike | {"privacy": SUM}), Policy(), PEERS) == []
