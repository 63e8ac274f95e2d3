"""Names of groups of runs, made of the settings in which they differ."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from fedrl.core.number_format import TITLES
from fedrl.core.registry import label

Setting = str | float | bool | list["Setting"] | None
Config = Mapping[str, Setting]
"""A run's settings by their dotted keys."""

BARE = ("algorithm.name", "federation.kind", "world.name")
"""Keys that need no `key=` in a name."""
SYMBOLS = {
    "alpha": "α",
    "beta": "β",
    "gamma": "γ",
    "epsilon": "ε",
    "eta": "η",
    "lambda": "λ",
    "mu": "μ",
    "sigma": "σ",
    "tau": "τ",
    "omega": "ω",
    "xi": "ξ",
}


def differing(dicts: Sequence[Config]) -> list[str]:
    """Keys whose values are not the same in all of them, absent counting as a value."""
    keys = dict.fromkeys(key for table in dicts for key in table)
    return [key for key in keys if len({setting_text(table.get(key)) for table in dicts}) > 1]


def group_names(configs: Sequence[Config]) -> list[str]:
    """Short names made of what differs: first the method, the federation and the world.

    Other keys are named only among groups that those three do not tell apart: that a method has
    settings of its own is no news.
    """
    if len(configs) == 1:
        return [_method(configs[0]) or str(configs[0].get("name") or "run")]
    kinds = [key for key in BARE if key in differing(configs)]
    names: list[str] = []
    for config in configs:
        alike = [other for other in configs if all(other.get(k) == config.get(k) for k in kinds)]
        keys = [key for key in differing(alike) if key != "name"] or differing(alike)
        words = _words(config, kinds)
        if "federation.kind" in kinds:
            keys = [key for key in keys if key != "federation.client"]
        words += [_word(key, config[key], keys) for key in keys if key in config]
        name = " ".join(words) or "defaults"
        # A name is also a key: two settings that only look the same (1 and "1") must stay two.
        names.append(name if name not in names else f"{name} #{len(names) + 1}")
    return names


def _method(config: Config) -> str:
    name = str(config.get("algorithm.name", ""))
    return TITLES.get(name, label(name))


def _words(config: Config, kinds: Sequence[str]) -> list[str]:
    """Method, federation and world, as far as they differ.

    Where federations differ, the federated one goes by its method's name and a baseline by its own:
    "FedAgent", "Local (client 21)", "Centralized".
    """
    named = {key: str(config[key]) for key in kinds if key in config}
    if "world.name" in named:
        named["world.name"] = label(named["world.name"])
    if "algorithm.name" in named:
        named["algorithm.name"] = _method(config)
    if kind := named.get("federation.kind"):
        if kind == "federated":
            named["algorithm.name"] = _method(config)
            del named["federation.kind"]
        else:
            alone = f" (client {config.get('federation.client', 0)})" if kind == "local" else ""
            named["federation.kind"] = kind.capitalize() + alone
    return [named[key] for key in BARE if named.get(key)]


def _word(key: str, value: Setting, among: Sequence[str]) -> str:
    last = key.rpartition(".")[2]
    alone = sum(other.rpartition(".")[2] == last for other in among) == 1
    return f"{SYMBOLS.get(last, last) if alone else key}={setting_text(value).strip(chr(34))}"


def setting_text(value: Setting) -> str:
    return "–" if value is None else json.dumps(value, ensure_ascii=False, default=str)
