"""A recipe in words, for a person who decides whether it may run: what it does, and what leaves."""

from __future__ import annotations

import math
import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

from fedrl.config import parts
from fedrl.config.build import terms
from fedrl.config.schema import Config
from fedrl.core.types import CodeName, FilePath, ModelName
from fedrl.engines.flower import node_recipes
from fedrl.engines.flower.fewest_updates import fewest
from fedrl.engines.flower.policy import Policy
from fedrl.engines.flower.policy_check import Node, own_noise, settings
from fedrl.engines.flower.setting_classes import class_of
from fedrl.privacy import accounting


def in_words(config: Config, policy: Policy, node: Node) -> list[str]:
    """Paragraphs of a line or more each, the most important ones first."""
    return [
        *_does(config),
        "",
        "What will leave this node, in each round that it takes part in:",
        *_leaves(config, policy, node),
        "",
        "What it opens here:",
        *_opens(config),
        "",
        "All that differs from the defaults (* what your policy has a say in):",
        *_differs(config),
    ]


SHOWN = 12
"""Tensors that are named one by one."""


def declared(
    recipe: str, folder: Path, data: str, flags: Sequence[str], packages: Sequence[str]
) -> list[str]:
    """What the method of a recipe that the policy allows declares, by name and size."""
    asked = recipe, str(folder), data, tuple(flags), frozenset(packages)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as apart:
        tensors, metrics = apart.submit(node_recipes.outline, *asked).result()
    sizes = {n: math.prod(s.shape) * np.dtype(s.dtype).itemsize for n, s in tensors.items()}
    lines = [f"The update of a round: {len(tensors)} tensors, {sum(sizes.values()):,} bytes"]
    for name, spec in list(tensors.items())[:SHOWN]:
        lines.append(f"- {name}: {spec.dtype} {list(spec.shape)}")
    lines += [f"- and {len(tensors) - SHOWN} more"] if len(tensors) > SHOWN else []
    return [*lines, f"Metrics beside it: {', '.join(metrics) or 'none'}", ""]


def _does(config: Config) -> Iterator[str]:
    method, world = parts.method(config.algorithm.name), parts.world(config.world.name)
    federation = config.federation
    yield f"{method.name}: {method.entry.summary or 'of a package from outside'}"
    yield f"on {world.name}: {world.entry.summary or 'of a package from outside'}"
    yield (
        f"{_rounds(config)} with {federation.clients_per_round} of {federation.clients} "
        f"clients each, from seed {config.seed}"
    )
    for package in config.packages:
        yield f"with code of {' '.join(package.split(':')[:2])}"


def _rounds(config: Config) -> str:
    return f"{config.rounds:,} round{'s' * (config.rounds != 1)}"


def _leaves(config: Config, policy: Policy, node: Node) -> Iterator[str]:
    chosen, common = config.privacy, terms(config)
    if common is not None:
        yield (
            f"- an update of length at most {chosen.clip:g}, into a secure sum of at least "
            f"{common.needed} clients: the coordinator sees the sum"
        )
    elif chosen.clip:
        yield f"- an update of length at most {chosen.clip:g}: the coordinator sees it"
    else:
        yield "- an update, as it is: the coordinator sees it, and its weight"
    if common is None:
        yield _together(config)
    noise = own_noise(config, node.peers)
    if noise:
        yield f"- with noise of {noise:.4g} times that length, which this node can be sure of"
        epsilon = accounting.full_view(noise, config.rounds, policy.delta)
        yield f"  all {_rounds(config)}: ε = {epsilon:.4g} at δ = {policy.delta:g}"
    else:
        yield "- without noise of its own: nothing bounds what it tells (no ε)"
    yield (
        "- no metrics of its training"
        if chosen.silent
        else "- metrics of its training (train/…, env/… and, with held_out = clients, held/…)"
    )
    yield "- of an error its type; how long it takes, and whether it answers"
    yield "never: tasks, texts, trajectories, ratings, rewards of single examples, its state"


def _together(config: Config) -> str:
    count = fewest(config)
    if count == 1:
        return "  it alone may become the model, if the others' are missing (federation.quorum)"
    return f"  it becomes the model with others', {count} clients' at least (federation.quorum)"


def _opens(config: Config) -> Iterator[str]:
    own = config.partition.strategy == "own"
    yield (
        "- this client's own data, all of it (--data)"
        if own
        else "- what its settings name (data of the recipe is dealt out, or generated)"
    )
    for setting in settings(config):
        values = setting.value if isinstance(setting.value, tuple) else (setting.value,)
        named = str(setting.hint)
        kinds = {FilePath: "file", ModelName: "model", CodeName: "code"}
        for hint, what in kinds.items():
            if str(hint) in named and any(values) and class_of(setting.key) != "local":
                yield f"- {what} {setting.key} = {', '.join(map(repr, values))}"


def _differs(config: Config) -> Iterator[str]:
    for setting in settings(config):
        kind = class_of(setting.key)
        if setting.value != setting.default and kind != "local":
            yield f"  {'*' if kind != 'free' else ' '} {setting.key} = {setting.value!r}"
