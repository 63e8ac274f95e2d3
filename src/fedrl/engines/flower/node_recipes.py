"""What a node makes of a recipe that came over the network: its algorithm, and how it sends.

Paths in it, and FEDRL_DATA, mean the node's own: a node reads it in its own folder, and its flags
go over it. What a node refuses is in `node_policy.py`.
"""

from __future__ import annotations

import contextlib
import os
import re
import tomllib
from collections.abc import Collection, Sequence
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from fedrl.config.build import build_clients, packages, terms
from fedrl.config.flag_parsing import split_flags
from fedrl.config.loading import resolve
from fedrl.config.schema import Config
from fedrl.core.registry import normal, only_packages
from fedrl.core.types import Algorithm, UserError
from fedrl.engines.flower import node_policy
from fedrl.engines.flower.adapter.records import Content
from fedrl.engines.flower.node import NodeClient, Plan, Refused
from fedrl.engines.flower.node_policy import Policy
from fedrl.privacy import accounting, secure_aggregation
from fedrl.privacy.client_ledger import Budget
from fedrl.privacy.secure_aggregation.protocol import ProtocolError

if TYPE_CHECKING:
    from fedrl.engines.flower.adapter.node import ClientApp

PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]{0,99}")
"""A package's name or version, as far as a node repeats it."""


def configuration(
    recipe: str, flags: Sequence[str], allowed: Collection[str] = frozenset()
) -> Config:
    """A recipe that came over the network, with the node's own flags over it.

    Code of others is only taken from the `allowed` packages that are installed here, and if it is
    the driver's.
    """
    try:
        tables = tomllib.loads(recipe)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"the recipe that was sent is not TOML: {error}") from error
    _require_packages(tables.get("packages"), allowed)
    with only_packages(allowed):
        config = resolve(tables, flags)
        here = packages(config)
    if here != config.packages:
        raise Refused(
            f"packages: the run has {_listed(config.packages)}, and this node "
            f"{_listed(here)}: other code under the same version"
        )
    return config


def _require_packages(asked: object, allowed: Collection[str]) -> None:
    """Say which of the run's packages this node lacks, has in another version, or may not run."""
    for text in asked if isinstance(asked, list) else ():
        package, _, rest = str(text).partition(":")
        wanted = rest.partition(":")[0]
        if not PACKAGE.fullmatch(package) or not PACKAGE.fullmatch(wanted):
            raise Refused("packages: names no package")
        if normal(package) not in set(map(normal, allowed)):
            raise Refused(
                f"packages: the run needs {package} {wanted}, which this node's owner has not "
                f"allowed (--allow-package {package})"
            )
        try:
            version = metadata.version(package)
        except metadata.PackageNotFoundError as error:
            raise Refused(
                f"packages: the run needs {package} {wanted}, which is not installed on this node"
            ) from error
        if version != wanted:
            raise Refused(
                f"packages: the run has {package} {wanted}, and this node {version}: install the "
                "same"
            )


def _listed(found: Sequence[str]) -> str:
    return ", ".join(found) or "none"


def build(
    recipe: str,
    folder: str,
    data: str,
    flags: tuple[str, ...],
    fetch: bool = True,
    allowed: frozenset[str] = frozenset(),
) -> Algorithm:
    """In the node's worker process: the recipe's paths are relative to the node's folder.

    Without `fetch` no library gets a model from elsewhere, whatever a model's own files name.
    """
    os.chdir(folder)
    if not fetch:
        os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    if data:
        os.environ["FEDRL_DATA"] = data
    with only_packages(allowed):
        return build_clients(configuration(recipe, flags, allowed), masked=True)


def plan(
    recipe: str, folder: Path, data: str, flags: tuple[str, ...], policy: Policy | None = None
) -> Plan:
    policy = policy or Policy(folder, own_keys(flags))
    config = configuration(recipe, flags, policy.packages)
    node_policy.check(config, policy)
    _insist(config, flags)
    fetch = any(map(policy.trusts, node_policy.models(config)))
    make = partial(build, recipe, str(folder), data, flags, fetch, policy.packages)
    sent = config.flower
    budget = _budget(config, flags)
    reports = config.privacy.reports and not policy.trusts("privacy.reports")
    piece = int(sent.piece_mb * 1e6)
    return Plan(
        make, sent.half, piece, sent.warm, terms(config), budget, reports, config.seed
    )  # fmt: skip


def _budget(config: Config, flags: Sequence[str]) -> Budget | None:
    """A node's own ε. Its δ is its own, too: a recipe's could make any ε small."""
    own, chosen, common = dict(split_flags(flags)), config.privacy, terms(config)
    if not chosen.epsilon or "privacy.epsilon" not in own:
        return None
    delta = chosen.delta if "privacy.delta" in own else 0.0
    needed = 1 if common is None else common.needed
    return Budget(
        chosen.epsilon, delta or accounting.default_delta(1), chosen.noise,
        secure_aggregation.part(chosen.noise, needed),
    )  # fmt: skip


def own_keys(flags: Sequence[str]) -> frozenset[str]:
    return frozenset(key for key, _ in split_flags(flags))


def _insist(config: Config, flags: Sequence[str]) -> None:
    """A node whose own flags ask for privacy lets no recipe take it away again."""
    own, chosen = own_keys(flags), config.privacy
    noisy = bool(chosen.noise) and bool({"privacy.noise", "privacy.epsilon"} & own)
    asked = (chosen.secure and "privacy.secure" in own) or noisy
    if noisy and chosen.where == "central" and not chosen.secure and "privacy.where" not in own:
        raise ProtocolError(
            "its own settings ask for noise, which this recipe leaves to the server: the node "
            "needs privacy.where of its own, or the recipe privacy.secure"
        )
    for key in ("reports", "seeded"):
        if asked and getattr(chosen, key) and f"privacy.{key}" not in own:
            raise ProtocolError(f"its own settings do not allow privacy.{key} = true")


def client(
    number: int,
    folder: Path,
    data: str = "",
    flags: tuple[str, ...] = (),
    allowed: Sequence[str] = (),
    least: int = 1,
    packages: Sequence[str] = (),
) -> NodeClient:
    policy = Policy(folder, own_keys(flags), frozenset(allowed), least, frozenset(packages))
    made = partial(plan, folder=folder, data=data, flags=flags, policy=policy)
    return NodeClient(number, folder, made)


def client_app() -> ClientApp:
    """For SuperNodes that start ClientApps themselves: see `adapter.node.client_app`."""
    from fedrl.engines.flower.adapter import node as adapter

    def reply(number: int, folder: Path, data: str, content: Content) -> Content:
        with contextlib.closing(client(number, folder, data)) as here:
            return here.answer(content)

    return adapter.client_app(reply)
