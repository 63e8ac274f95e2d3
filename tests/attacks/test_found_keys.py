"""Keys that somebody finds: of a client that has changed them since."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")

import fedrl
from fedrl.core.types import UserError
from fedrl.engines.flower import keys, registered
from fedrl.privacy.secure_aggregation import public_keys


def test_only_the_newest_key_of_a_client_is_renewed(tmp_path: Path):
    """Before the old one is revoked, whoever has it, from a backup say, would have the last word:
    `revoke --old` would then take the owner's new key out, and leave theirs."""
    hub, north, found = tmp_path / "hub", tmp_path / "north.key", tmp_path / "found.key"
    (hub / "nodes").mkdir(parents=True)
    keys.make_node(north)
    fedrl.flower.register(hub, tmp_path / "north.key.pub", client=0)
    shutil.copy(north, found)
    first = registered.renew(north)
    register = registered.at(hub)
    register.add(first)
    with pytest.raises(UserError, match="renews an older key of client 0"):
        register.add(registered.renew(found))
    assert register.add(first)[0] == 0  # once more is once, also now
    registered.use(north)
    register.add(registered.renew(north))
    assert register.remove(0, old=True) == 2
    (left,) = register.clients()[0]
    assert left.key == public_keys.read(tmp_path / "north.key.next.pub")[0].key
