"""A run's policy, and a folder from which it can be used without the run: `fedrl export`.

policy.json          what it is: kind, sizes, activation, output, world
policy.safetensors   weights, scaling of observations, bounds of actions
policy.onnx          the same for other runtimes, where the package onnx is there
README.md            a model card
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from fedrl.config.build import build_algorithm
from fedrl.config.loading import read_recipe, resolve
from fedrl.config.schema import Config
from fedrl.core.abilities import GivesPolicy, KeepsPolicies, Policy
from fedrl.core.package_files import render
from fedrl.core.policies import TensorPolicy, restored
from fedrl.core.source_code import without_folders
from fedrl.core.types import Json, UserError
from fedrl.federation.client_sampling import client_env_ids, groups
from fedrl.runs import read
from fedrl.runs.evaluate import newest
from fedrl.runs.model_card_clients import whose
from fedrl.runs.new_folder import new_folder
from fedrl.runs.onnx_model import write_onnx
from fedrl.runs.run_dir import RunDir, require_run
from fedrl.runs.sealing import Seal, Sealed

DESCRIPTION, TENSORS, ONNX, CARD = "policy.json", "policy.safetensors", "policy.onnx", "README.md"
FORMAT = 1
"""Of `policy.json`: another one is refused."""


class Learned(NamedTuple):
    """A policy, and the run and round that it is of."""

    policy: Policy
    config: Config
    round: int
    client: int | None
    own: bool


def learned(path: Path, client: int | None = None, own: bool = False) -> Learned:
    """The newest checkpoint's policy: all clients', this client's, or what it holds itself."""
    require_run(path)
    config = resolve(read_recipe(path / "config.toml"))
    algorithm = build_algorithm(config)
    name = config.algorithm.name
    if not isinstance(algorithm, GivesPolicy):
        raise UserError(f"{path} is a run of {name}, which gives no policy that acts on its own")
    if client is not None and not 0 <= client < config.federation.clients:
        raise UserError(f"client is {client}; it is 0 to {config.federation.clients - 1}")
    snapshot = newest(RunDir(path).checkpoints(), config)
    if snapshot is None:
        raise UserError(f"{path} has no whole checkpoint")
    state = snapshot.states[_place(path, config, client)]
    if not own:
        return Learned(algorithm.policy(state, client), config, snapshot.round, client, own)
    if not isinstance(algorithm, KeepsPolicies):
        raise UserError(f"{path} is a run of {name}, whose clients keep no policy of their own")
    if client is None:
        raise UserError("own needs a client: say whose policy (--client 0)")
    if client not in snapshot.clients:
        raise UserError(f"client {client} has not taken part yet, or keeps what it learned itself")
    policy = algorithm.own_policy(snapshot.clients[client], state, client)
    return Learned(policy, config, snapshot.round, client, own)


def _place(path: Path, config: Config, client: int | None) -> int:
    """Which of the server's states is this client's."""
    states = groups(config.federation)
    if len(states) == 1:
        return 0
    if client is None:
        raise UserError(
            f"{path} has {len(states)} policies, one per client: say whose (--client 0)"
        )
    owners = client_env_ids(config.federation)
    return next(
        i for i, group in enumerate(states) if any(client in owners[member] for member in group)
    )


# A folder of its own


def write(
    path: Path,
    out: Path,
    client: int | None = None,
    own: bool = False,
    *,
    seal: Seal,
) -> tuple[int, str, Sealed]:
    """Write the folder `out`: the round that it is of, a line about what is left out, and what
    `seal` says of its signature."""
    found = learned(path, client, own)
    policy = found.policy
    if not isinstance(policy, TensorPolicy):
        raise UserError(
            f"the policy of {found.config.algorithm.name} cannot be written: it is none of "
            "fedrl.core.policies"
        )
    about: Json = {
        "format": FORMAT,
        **policy.description(),
        "algorithm": without_folders(found.config.algorithm.name),
        "world": without_folders(found.config.world.name),
        "round": found.round,
    }
    if found.client is not None:
        about["client"] = found.client
    with new_folder(out) as folder:
        text = json.dumps(about, indent=1, ensure_ascii=False) + "\n"
        (folder / DESCRIPTION).write_text(text, encoding="utf-8")
        tensors = {name: np.ascontiguousarray(leaf) for name, leaf in policy.tensors().items()}
        (folder / TENSORS).write_bytes(save(tensors))
        lacking = write_onnx(policy, folder / ONNX)
        (folder / CARD).write_text(card(path, found, out.name, lacking), encoding="utf-8")
        sealed = seal(folder, "policy", found.round)
    return found.round, lacking, sealed


def load_policy(folder: str | Path) -> TensorPolicy:
    """The policy of a folder that `fedrl export` wrote; the run is not needed."""
    place = Path(folder)
    try:
        about = json.loads((place / DESCRIPTION).read_text(encoding="utf-8"))
        tensors = load_file(place / TENSORS)
    except FileNotFoundError as error:
        raise UserError(
            f"{place} is no exported policy: it has no {Path(error.filename).name}"
        ) from error
    except (ValueError, SafetensorError) as error:
        raise UserError(f"{place} cannot be read: {error}") from error
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise UserError(f"{place} is of another version of fedrl: export the run again")
    try:
        return restored(about, tensors)
    except (KeyError, ValueError) as error:
        raise UserError(f"{place} cannot be used: {error}") from error


def card(path: Path, found: Learned, name: str, lacking: str) -> str:
    """A model card: what this is, how it came to be, what it is worth, how it is used."""
    assert isinstance(found.policy, TensorPolicy)
    logged = {number: m for number, m in read.load(path).rounds.items() if number <= found.round}
    evaluated = max((n for n, metrics in logged.items() if any(map(_of_eval, metrics))), default=0)
    numbers = {key: value for key, value in logged[evaluated].items() if _of_eval(key)}
    return render(
        __package__,
        "policy_card.md.jinja",
        title=name,
        config=found.config,
        clients=whose(path, found.config, found.round)[0],
        method=without_folders(found.config.algorithm.name),
        world=without_folders(found.config.world.name),
        client=found.client,
        about=found.policy.description(),
        round=found.round,
        meta=RunDir(path).read_meta(),
        run=f"{found.config.name}/{path.resolve().name}",
        evaluated=evaluated,
        numbers=dict(sorted(numbers.items())),
        lacking=lacking,
    )


def _of_eval(key: str) -> bool:
    return key.startswith("eval/")
