"""Recipes by a coordinator that lies against policies of all kinds: does one slip past?

What a policy promises is said here a second time, without the check's own words: of whatever it
lets through, files lie where they may, names are among those that are named, no floor is undercut.
"""

from __future__ import annotations

import dataclasses
import math
import os
import random
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")

from fedrl.config.loading import resolve
from fedrl.config.schema import Config
from fedrl.core.types import UserError
from fedrl.engines.flower.policy import Policy
from fedrl.engines.flower.policy_check import Node, refusals

pytestmark = pytest.mark.slow  # of many policies, drawn at random

METHODS = [
    ({"name": "pavg"}, {"name": "random_mdp"}),
    ({"name": "fedqhd", "encoders": "own"}, {"name": "cartpole-v1"}),
    ({"name": "fedrlhf"}, {"name": "movielens"}),
    ({"name": "fedrlhf-text"}, {"name": "imdb"}),
]
PATHS = ["", "in/labels.json", "in", "../out/x", "/etc/passwd", "{out}/x", "{home}/in/x", "link/x",
         "{out}", "{out}/../x", "key", "sub/my.key", "sub", "policy.toml", "audit.jsonl", "~/x",
         "{key}", "{out}/link/x", ".", "recipes/approved/x", "in/../../out/x"]  # fmt: skip
MODELS = ["in/model", "org/model", "gpt2", "../out/model", "{out}/model", "any", "in/none"]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("machine")
    for folder in ("home/in/model", "home/sub", "out/model", "beside"):
        (place / folder).mkdir(parents=True)
    (place / "home" / "link").symlink_to(place / "beside")
    (place / "out" / "link").symlink_to(place / "beside")
    for file in ("home/sub/my.key", "home/key", "out/x"):
        (place / file).write_text("{}")
    return place


def filled(text: str, machine: Path) -> str:
    key = machine / "home" / "sub" / "my.key"
    return text.format(out=machine / "out", home=machine / "home", key=key)


def drawn_recipe(draw: random.Random, machine: Path) -> dict[str, Any]:
    method, world = map(dict, draw.choice(METHODS))
    noise = draw.choice([0.0, 0.5, 1.0, 4.0])
    privacy: dict[str, Any] = {"clip": draw.choice([0.0, 0.5, 1.0, 3.0])}
    if privacy["clip"]:
        privacy |= {"noise": noise, "secure": draw.random() < 0.4}
        if not privacy["secure"]:
            privacy["where"] = draw.choice(["central", "local"])
    if noise and privacy["clip"]:
        privacy |= {"seeded": draw.random() < 0.2, "epsilon": draw.choice([0.0, 1e6])}
    privacy["reports"] = draw.random() < 0.2
    clients = draw.choice([1, 3, 4, 9])
    federation = {"clients": clients, "cohort": draw.choice([0, 0, min(3, clients)])}
    recipe = {"algorithm": method, "world": world, "privacy": privacy, "federation": federation}
    path = filled(draw.choice(PATHS), machine)
    if draw.random() < 0.4:
        recipe["partition"] = {"labels": path}
    if method["name"] == "fedrlhf" and draw.random() < 0.5:
        method |= {"feedback": "logged", "feedback_file": path or "x"}
    if method["name"] == "fedrlhf-text":
        method["model"] = filled(draw.choice(MODELS), machine)
    if method["name"] == "pavg" and draw.random() < 0.3:
        method["client_steps"] = draw.choice([[5, 1, 1], [2, 2]])
    if draw.random() < 0.15:
        recipe["attack"] = {"share": 0.3} if draw.random() < 0.5 else {"clients": [0]}
    if draw.random() < 0.15:
        recipe["faults"] = {"clients": [0]}
    return recipe


def drawn_policy(draw: random.Random, machine: Path) -> Policy:
    def some(*values: Any) -> tuple[Any, ...]:
        return tuple(value for value in values if draw.random() < 0.5)

    strict = {
        "coordinators": ("a" * 64,),
        "methods": some("pavg", "fedqhd", "fedrlhf", "fedrlhf-text"),
        "worlds": some("random_mdp", "cartpole-v1", "movielens", "imdb"),
        "models": draw.choice([some("in/model", "org/model"), ("any", "org/model")]),
        "folders": (str(machine / "out"),),
        "allow": some("attack", "faults.clients", "privacy.reports", "privacy"),
        "least_clients": draw.choice([3, 5]),
        "secure": True,
        "clip": 1.0,
        "noise": draw.choice([1.0, 2.0]),
        "epsilon": 8.0,
    }
    return Policy(**{key: value for key, value in strict.items() if draw.random() < 0.25})


def broken(config: Config, policy: Policy, node: Node, machine: Path) -> list[str]:
    """Promises of a policy that a recipe would break, said without the check's own functions."""
    p, found = config.privacy, []

    def allowed(key: str) -> bool:
        return key in policy.allow or key.split(".")[0] in policy.allow

    if policy.coordinators and node.coordinator not in policy.coordinators:
        found.append("coordinator")
    for name, names in (
        (config.algorithm.name, policy.methods),
        (config.world.name, policy.worlds),
    ):
        if "any" not in names and name not in names:
            found.append(f"{name} is not named")
    for key, value in (
        ("attack.share", config.attack.share),
        ("attack.clients", config.attack.clients),
        ("faults.clients", config.faults.clients),
    ):
        if value and not allowed(key):
            found.append(key)
    n = config.federation.cohort or config.federation.clients
    needed = max(math.ceil(p.threshold * n - 1e-9), 3)
    left = max(math.ceil(config.federation.quorum * n - 1e-9), 1)
    if (needed if p.secure else left) < policy.least_clients:
        found.append("few clients")
    if policy.secure and not p.secure:
        found.append("plain")
    if policy.clip and (p.clip == 0 or p.clip > policy.clip):
        found.append("long")
    mine = 0.0
    if p.noise and not p.seeded and (p.secure or p.where == "local"):
        mine = p.noise if not p.secure or node.peers else p.noise / math.sqrt(needed)
    if mine < policy.noise or (policy.epsilon and not mine):
        found.append("little noise")
    if (policy.secure or policy.noise or policy.epsilon) and p.reports:
        found += [] if allowed("privacy.reports") else ["reports"]
    steps = getattr(config.algorithm, "client_steps", ())
    if p.secure and len(set(steps)) > 1:
        found.append("steps of one client")
    for path in (
        config.partition.labels,
        getattr(config.algorithm, "feedback_file", ""),
    ):
        if path and not lies_right(path, policy, machine):
            found.append(f"file {path}")
    model = getattr(config.algorithm, "model", "")
    if model and (model == "any" or model not in policy.models):
        there = (machine / "home" / model).exists() and lies_right(model, policy, machine)
        if "any" not in policy.models or not there:
            found.append(f"model {model}")
    return found


def lies_right(path: str, policy: Policy, machine: Path) -> bool:
    home, key = machine / "home", machine / "home" / "sub" / "my.key"
    place = os.path.realpath(home / path)
    if ".." in path.split("/") or "~" in path or os.path.commonpath([place, key]) == place:
        return False
    if path.startswith("/"):
        return any(place == f or place.startswith(f + "/") for f in policy.folders)
    if not place.startswith(f"{home}/"):
        return False
    first = os.path.relpath(place, home).split("/")[0].split(".")[0]
    return first not in ("key", "policy", "audit", "recipes", "states", "secret", "")


def drawn_node(draw: random.Random, machine: Path) -> Node:
    return Node(
        machine / "home", peers=draw.random() < 0.5, coordinator=draw.choice(["a", "a", "b"]) * 64,
        private=(machine / "home" / "sub" / "my.key",),
    )  # fmt: skip


STRICTER: list[dict[str, Any]] = [
    {"secure": True}, {"clip": 0.1}, {"noise": 5.0}, {"epsilon": 1.0}, {"least_clients": 50},
    {"methods": ()}, {"worlds": ()}, {"models": ()}, {"folders": ()}, {"allow": ()},
]  # fmt: skip


def keys(lines: list[str]) -> set[str]:
    """Too few clients are too few whether a higher quorum would help or not."""
    named = {line.split(":")[0].split(" ")[0] for line in lines}
    return {"federation.clients" if key == "federation.quorum" else key for key in named}


@pytest.mark.parametrize("seed", range(60))
def test_nothing_slips_past_a_policy(machine: Path, seed: int):
    """Each recipe against 20 policies, and what each is with one key made stricter."""
    draw = random.Random(seed)
    try:
        config = resolve(drawn_recipe(draw, machine))
    except UserError:
        return  # no recipe at all
    for _ in range(20):
        policy, node = drawn_policy(draw, machine), drawn_node(draw, machine)
        lines, wrong = refusals(config, policy, node), broken(config, policy, node, machine)
        assert bool(lines) == bool(wrong), (lines, wrong)
        assert all(line.isprintable() and str(machine) not in line for line in lines)
        tighter = refusals(config, dataclasses.replace(policy, **draw.choice(STRICTER)), node)
        assert keys(lines) <= keys(tighter)


@pytest.mark.slow
def test_the_search_finds_both_kinds(machine: Path):
    """It would prove nothing if all were refused, or none."""
    found = []
    for seed in range(40):
        draw = random.Random(seed)
        try:
            config = resolve(drawn_recipe(draw, machine))
        except UserError:
            continue
        found += [
            not refusals(config, drawn_policy(draw, machine), drawn_node(draw, machine))
            for _ in range(20)
        ]
    assert len(found) > 400
    assert 0.03 < sum(found) / len(found) < 0.6
