"""What a node makes of a recipe that came over the network: its algorithm, and how it sends.

Paths in it, and FEDRL_DATA, mean the node's own: a node reads it in its own folder, and its flags
go over it. Nothing is done with it before the node's policy was asked (`policy.py`): what the node
refuses is in `policy_check.py`, what waits for a person in `approval.py`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import re
import tomllib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fedrl.config.build import build_algorithm, build_clients, first_broadcast, packages, terms
from fedrl.config.flag_parsing import split_flags
from fedrl.config.loading import resolve
from fedrl.config.parts import TABLES, code_settings
from fedrl.config.schema import Config
from fedrl.core import agreement
from fedrl.core.abilities import GpuBusy, GpuUse, SharesGpu
from fedrl.core.own_data import Pins
from fedrl.core.registry import normal, only_packages
from fedrl.core.types import Algorithm, Shareable, Spec, UserError
from fedrl.engines.flower import approval, own_data_book, policy_check
from fedrl.engines.flower.adapter.records import Content
from fedrl.engines.flower.current_policy import Rules
from fedrl.engines.flower.node import NodeClient
from fedrl.engines.flower.node_audit import NodeAudit
from fedrl.engines.flower.node_plan import Plan, Refused
from fedrl.engines.flower.owner_log import say
from fedrl.engines.flower.policy import FILE, Flags, Policy
from fedrl.engines.flower.policy_check import Node
from fedrl.privacy import accounting, secure_aggregation
from fedrl.privacy.client_ledger import Budget
from fedrl.privacy.secure_aggregation.identity import Identity
from fedrl.privacy.secure_aggregation.identity import load as load_identity
from fedrl.privacy.secure_aggregation.protocol import ProtocolError

if TYPE_CHECKING:
    from fedrl.engines.flower.adapter.node import ClientApp

PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]{0,99}")
"""A package's name or version, as far as a node repeats it."""

GPU_SECONDS = 300.0
"""How long a node's worker waits for room on its GPU; it is taken for broken after twice that."""

NAMES = {
    "algorithm.name": "algorithm",
    "world.name": "world",
    "aggregate.name": "aggregate",
    "attack.kind": "attack",
}
"""Settings that name what may be of a package, and their tables."""


class Outline(NamedTuple):
    """What leaves a client in a round, as its method declares it, and the metrics that it tells."""

    tensors: dict[str, Spec]
    metrics: list[str]


def configuration(
    recipe: str, flags: Sequence[str], allowed: Collection[str] = frozenset()
) -> Config:
    """A recipe that came over the network, with the node's own flags over it.

    Code of others is only taken from the `allowed` packages that are installed here, and if it is
    the driver's; what the node's own flags name is its owner's word.
    """
    try:
        tables = tomllib.loads(recipe)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"the recipe that was sent is not TOML: {error}") from error
    _require_packages(tables.get("packages"), allowed)
    with only_packages(allowed):
        asked = resolve(tables)
        here = packages(asked)
    if here != asked.packages:
        raise Refused(
            f"packages: the run has {_listed(asked.packages)}, and this node "
            f"{_listed(here)}: other code under the same version"
        )
    with only_packages({*allowed, *_named(flags)}):
        config = resolve(tables, flags)
    # A digest in a recipe would let its writer find out whether a guess of the data is right.
    return replace(config, world=replace(config.world, digest="")) if _pinned(config) else config


def _pinned(config: Config) -> bool:
    return isinstance(config.world, Pins) and bool(config.world.digest)


def owners_packages(config: Config, flags: Sequence[str]) -> frozenset[str]:
    """Packages that the node's own flags name: its owner need not allow them a second time."""
    tables = (("algorithm.", config.algorithm), ("world.", config.world))
    own = own_keys(flags)
    coded = [entry for prefix, one in tables for entry in code_settings(one, prefix, own)]
    return _named(flags) | {entry.package for entry in coded if entry.outside}


def _named(flags: Sequence[str]) -> frozenset[str]:
    """Those of methods, worlds, rules and attacks."""
    asked = [(TABLES[NAMES[key]], key, name) for key, name in split_flags(flags) if key in NAMES]
    found = [table.find(name, key) for table, key, name in asked if name]
    return frozenset(entry.package for entry in found if entry.outside)


def _require_packages(asked: object, allowed: Collection[str]) -> None:
    """Say which of the run's packages this node lacks, has in another version, or may not run: all
    of them, so that its owner mends it once."""
    forbidden, absent, other = [], [], []
    for text in asked if isinstance(asked, list) else ():
        package, _, rest = str(text).partition(":")
        wanted = rest.partition(":")[0]
        if not PACKAGE.fullmatch(package) or not PACKAGE.fullmatch(wanted):
            raise Refused("packages: names no package")
        if normal(package) not in set(map(normal, allowed)):
            forbidden.append((package, wanted))
            continue  # what else is here is its owner's to tell
        try:
            version = metadata.version(package)
        except metadata.PackageNotFoundError:
            absent.append(f"{package} {wanted}")
        else:
            if version != wanted:
                other.append(f"{package} {wanted}, and this node {version}")
    why = []
    if forbidden:
        flags = " ".join(f"--allow-package {package}" for package, _ in forbidden)
        needed = ", ".join(map(" ".join, forbidden))
        why.append(f"the run needs {needed}, which this node's owner has not allowed ({flags})")
    if absent:
        one = "is" if len(absent) == 1 else "are"
        why.append(f"the run needs {', '.join(absent)}, which {one} not installed on this node")
    if other:
        why.append(f"the run has {'; '.join(other)}: install the same")
    if why:
        raise Refused(f"packages: {'; '.join(why)}")


def _listed(found: Sequence[str]) -> str:
    return ", ".join(found) or "none"


@contextlib.contextmanager
def method_of(
    recipe: str,
    folder: str,
    data: str,
    flags: tuple[str, ...],
    fetch: bool,
    allowed: frozenset[str],
) -> Iterator[tuple[Config, Algorithm]]:
    """A recipe's method here, with the settings in force; its paths are relative to the node's
    folder.

    Without `fetch` no library gets a model from elsewhere, whatever a model's own files name.
    """
    os.chdir(folder)
    if not fetch:
        os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    if data:
        os.environ["FEDRL_DATA"] = data
    config = configuration(recipe, flags, allowed)
    with only_packages(allowed | owners_packages(config, flags)):
        own = Path(data) if data else None
        if config.partition.strategy == "own" and own is None:
            raise UserError(Shareable("it was started without --data: there is nothing of its own"))
        with own_data_book.naming(own, config):
            algorithm = build_algorithm(config, own)
        yield config, algorithm


def build(
    recipe: str,
    folder: str,
    data: str,
    flags: tuple[str, ...],
    fetch: bool = True,
    allowed: frozenset[str] = frozenset(),
) -> Algorithm:
    """In the node's worker process."""
    with method_of(recipe, folder, data, flags, fetch, allowed) as (config, algorithm):
        if isinstance(algorithm, SharesGpu):
            take_gpu(algorithm)
        agreement.require(algorithm, config.agree, 0, "this node")
        return build_clients(config, algorithm, masked=True)


def take_gpu(algorithm: SharesGpu) -> None:
    """What else runs on the node's GPU is its owner's to know."""
    try:
        algorithm.take_gpu(GpuUse(learns=True, evaluates=False, patience=GPU_SECONDS))
    except GpuBusy as error:
        say(str(error))
        told = f"no room on this node's GPU within {GPU_SECONDS:.0f} s"
        raise UserError(Shareable(told)) from error


def outline(
    recipe: str, folder: str, data: str, flags: tuple[str, ...], allowed: frozenset[str]
) -> Outline:
    """In a process of its own, for a person who decides: nothing is computed, fetched or sent, and
    of a large model no weights are read."""
    with method_of(recipe, folder, data, flags, False, allowed) as (config, algorithm):
        broadcast, _ = first_broadcast(config, algorithm)
        client = build_clients(config, algorithm, masked=True)
        return Outline(dict(client.declare(broadcast)), sorted(client.reports))


def plan(
    recipe: str,
    folder: Path,
    data: str,
    flags: tuple[str, ...],
    policy: Policy | None = None,
    node: Node | None = None,
) -> Plan:
    """`Refused`, or another error, unless the policy allows all of the recipe and, where it asks
    for that, a person has approved it."""
    policy, node = policy or Policy(), node or Node(folder, own_keys(flags))
    if len(recipe) > policy_check.LONGEST:
        raise Refused(f"a recipe of more than {policy_check.LONGEST:,} characters")
    config = configuration(recipe, flags, policy.packages)
    policy_check.check(config, policy, node)
    _insist(config, flags)
    approval.require(folder, policy, recipe)
    fetch = policy_check.fetches(config, policy, node)
    make = partial(build, recipe, str(folder), data, flags, fetch, frozenset(policy.packages))
    sent = config.flower
    budget = _budget(config, flags, policy)
    reports = config.privacy.reports and not policy_check.trusts(policy, node, "privacy.reports")
    piece = int(sent.piece_mb * 1e6)
    own = config.partition.strategy == "own" and bool(data)
    return Plan(
        make, sent.precision, piece, sent.warm, terms(config), budget, reports, config.seed,
        Path(data, config.world.source) if own else None, policy,
        policy_check.own_noise(config, node.peers), config.rounds, _origin(config),
    )  # fmt: skip


def _origin(config: Config) -> str:
    """A digest of what a run keeps when it is resumed, and what its clients' states are under."""
    promised = dataclasses.asdict(replace(config.privacy, epsilon=0.0))
    kind = [config.algorithm.name, config.world.name, config.seed, promised]
    return hashlib.sha256(json.dumps(kind).encode()).hexdigest()


def _budget(config: Config, flags: Sequence[str], policy: Policy) -> Budget | None:
    """A node's own ε: of its flags, of its policy, or the smaller of both.

    Its δ is its own, too: a recipe's could make any ε small.
    """
    own, chosen, common = dict(split_flags(flags)), config.privacy, terms(config)
    said: list[tuple[float, float]] = []
    if chosen.epsilon and "privacy.epsilon" in own:
        delta = chosen.delta if "privacy.delta" in own else 0.0
        said.append((chosen.epsilon, delta or accounting.default_delta(1)))
    if policy.epsilon:
        said.append((policy.epsilon, policy.delta))
    if not said:
        return None
    epsilons, deltas = zip(*said, strict=True)
    part = secure_aggregation.part(chosen.noise, 1 if common is None else common.needed)
    return Budget(min(epsilons), min(deltas), chosen.noise, part)


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
    said: Flags | None = None,
    identity: Identity | None = None,
    coordinator: str = "",
    private: tuple[Path, ...] = (),
    file: Path | None = None,
    peers: Path | None = None,
) -> NodeClient:
    """A node by the policy of its folder, or of `file`. `coordinator` is the digest of the key that
    it trusts, `private` are files that no recipe may name, `peers` is the folder of its peers'
    keys, which is read anew for every job: they may change them."""
    said, identity = said or Flags(), identity or Identity()
    audit = NodeAudit(folder, number, coordinator)
    rules = Rules(file or folder / FILE, replace(said, data=data) if data else said, audit)
    node = Node(folder, own_keys(flags), identity.peers is not None, coordinator, private)

    def made(recipe: str) -> Plan:
        policy = rules()
        return plan(recipe, folder, rules.data(policy), flags, policy, node)

    def acquaint(known: Identity) -> Identity:
        if peers is None:
            return known
        try:
            found = load_identity(None, peers)
        except UserError as error:
            say(str(error))
            raise ProtocolError("its folder of peers' keys cannot be used now") from error
        return replace(known, peers=found.peers, older=found.older)

    return NodeClient(
        number, folder, made, identity=identity, audit=audit, rules=rules, acquaint=acquaint
    )


def client_app() -> ClientApp:
    """For SuperNodes that start ClientApps themselves: see `adapter.node.client_app`."""
    from fedrl.engines.flower.adapter import node as adapter

    def reply(number: int, folder: Path, data: str, content: Content) -> Content:
        with contextlib.closing(client(number, folder, data)) as here:
            return here.answer(content)

    return adapter.client_app(reply)
