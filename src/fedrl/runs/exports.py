"""`fedrl export`: a run's language model, or its policy, as a folder of its own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal, NamedTuple

from fedrl.core.abilities import KeepsAdapters, SavesModel
from fedrl.core.types import UserError
from fedrl.runs import policies
from fedrl.runs.agents import build, newest_checkpoint
from fedrl.runs.model_card import FILE, Origin, card
from fedrl.runs.new_folder import new_folder
from fedrl.runs.sealing import sealing


class Exported(NamedTuple):
    """Where the folder is, of which round, and what could not be written into it, if anything.

    `signer` is the fingerprint of the key that has signed it; empty if none has, and `unsigned`
    says why where one should.
    """

    path: Path
    round: int
    what: Literal["model", "adapters", "policy"]
    lacking: str = ""
    signer: str = ""
    unsigned: str = ""


def export(
    path: Path,
    out: Path,
    client: int | None = None,
    own: bool = False,
    adapters: bool = False,
    license: str = "",
    key: Path | None = None,
) -> Exported:
    """Make the folder `out` of the newest checkpoint, signed where there is a key for it."""
    config, algorithm = build(path)
    seal = sealing(path, config, key)
    if not isinstance(algorithm, SavesModel):
        if adapters or license:
            raise UserError(f"{path} is no run of a language model: leave --adapters and --license")
        round, lacking, sealed = policies.write(path, out, client, own, seal=seal)
        return Exported(out, round, "policy", lacking, *sealed)
    if own != (client is not None):
        raise UserError(
            f"{path} is a run of a language model: leave --client and --own out, or give both for "
            "the model of a client that keeps adapters for itself"
        )
    if own and adapters:
        raise UserError("--adapters are those that all clients share: leave --own out")
    if not re.fullmatch(r"[\w.+-]*", license):
        raise UserError(f"--license is {license!r}; name it in one word: apache-2.0, mit")
    snapshot = newest_checkpoint(path, config)
    if len(snapshot.states) > 1:
        raise UserError(
            f"{path} has {len(snapshot.states)} models, one per client: only a run with one model "
            "can be exported"
        )
    theta = snapshot.states[0]["theta"]
    if client is not None:
        kept, mine = snapshot.clients.get(client), None
        if isinstance(algorithm, KeepsAdapters) and kept is not None:
            mine = algorithm.own_theta(snapshot.states[0], kept)
        if mine is None:
            raise UserError(
                f"--client {client}: {path} holds no adapters of this client's own; clients keep "
                "them with algorithm.personal_rank, on Flower on their own machines"
            )
        theta = mine
    what: Literal["model", "adapters"] = "adapters" if adapters else "model"
    origin = Origin(path, config, snapshot.round, algorithm, adapters, client)
    with new_folder(out) as folder:
        algorithm.save(theta, folder, adapters)
        (folder / FILE).write_text(card(origin, out.name, license), encoding="utf-8")
        sealed = seal(folder, what, snapshot.round)
    return Exported(out, snapshot.round, what, "", *sealed)
