"""What clients of a simulation are called: by the folders of their own, kept in meta.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fedrl.config.schema import Config
from fedrl.partition import client_folders
from fedrl.partition.own_folders import named

KEY = "client_names"


def folder_names(config: Config) -> list[str]:
    """By client; nothing where clients have no folders here, or one stands for all."""
    own = config.partition.strategy == "own" and config.engine != "flower"
    if not own or config.federation.kind != "federated":
        return []
    return [place.name for place in client_folders(Path(config.partition.folder))]


def kept_names(meta: Mapping[str, object]) -> list[str]:
    """Of a run, by its meta.json."""
    found = meta.get(KEY)
    return [str(name) for name in found] if isinstance(found, list) else []


def client_name(client: int, names: Sequence[str]) -> str:
    """A client for people: "client 2 (west)"."""
    return named(client, names[client] if client < len(names) else "")
