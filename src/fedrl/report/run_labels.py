"""Names of groups of runs: their variants' in a sweep, else made of what differs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import PurePath

from fedrl.core.number_format import TITLES
from fedrl.core.registry import label
from fedrl.runs.read import OF_A_SEED

Setting = str | float | bool | list["Setting"] | None
Config = Mapping[str, Setting]
"""A run's settings by their dotted keys."""

BARE = ("algorithm.name", "federation.kind", "world.name")
"""Keys that need no `key=` in a name."""
PARTS = (*BARE, "aggregate.name", "attack.kind")
"""Keys whose value brings settings of its own, or may be somebody's file."""
CODE = "packages"
"""Hashes of code from outside: no words for people."""
MOVE_NOTHING = ("name", CODE, "out", "track", "checkpoint_every", "borrowed")
"""Keys that tell no two runs apart: what they name is no setting of what was computed."""
REPEATED = ("seed", "out", "track", "checkpoint_every", "borrowed")
"""Keys that may differ among repetitions: a seed is one, the others move no number."""
OF_CLIENTS = ("world.", "partition.")
"""Tables that say what clients play and how they differ."""
MOST_WORDS = 3
DIGITS = 6
"""Of a hash, in a name."""
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


def repeated(config: Config) -> Config:
    """The settings that all repetitions of a run have."""
    said = {key: value for key, value in config.items() if key not in REPEATED}
    return said | {"name": OF_A_SEED.sub("", str(said["name"]))} if "name" in said else said


def without_world(config: Config) -> Config:
    """What stays the same of a method in other worlds, and where clients differ more."""
    return {key: value for key, value in config.items()
            if key != "name" and not key.startswith(OF_CLIENTS)}  # fmt: skip


def families(configs: Sequence[Config]) -> list[int]:
    """By run a number, the same of runs that differ in nothing but their seed."""
    found: dict[str, int] = {}
    said = [json.dumps(repeated(one), sort_keys=True, default=str) for one in configs]
    return [found.setdefault(text, len(found)) for text in said]


def group_names(configs: Sequence[Config], variants: Sequence[str] = ()) -> list[str]:
    """Short names. A group of a sweep has its variant's; the settings are added only where two
    groups have the same one. Others are named by what differs between them and all: see
    `_by_settings`."""
    said = list(variants) or [""] * len(configs)
    often = Counter(said)
    names: list[str] = []
    for config, variant in zip(configs, said, strict=True):
        if variant and often[variant] == 1:
            name = variant
        else:
            same = [one for one, other in zip(configs, said, strict=True) if other == variant]
            alike = configs if len(same) > 1 and not variant else same
            name = f"{variant} {_by_settings(config, alike, bool(variant))}".strip()
        # A name is also a key: two settings that only look the same (1 and "1") must stay two.
        names.append(name if name not in names else f"{name} #{len(names) + 1}")
    return names


def _by_settings(config: Config, configs: Sequence[Config], in_variant: bool = False) -> str:
    """What differs among `configs`: first the method, the federation, the world and the rule.

    Other keys are named only among groups that those do not tell apart: that a method has settings
    of its own is no news.
    """
    if len(configs) == 1:
        return method_label(config) or str(config.get("name") or "run")
    kinds = [key for key in PARTS if key in differing(configs)]
    alike = [other for other in configs if all(other.get(k) == config.get(k) for k in kinds)]
    keys = [key for key in differing(alike) if key not in ("name", CODE)]
    words = _words(config, [key for key in kinds if key in BARE])
    words += [_word(key, config[key], kinds) for key in kinds if key not in BARE and key in config]
    if "federation.kind" in kinds:
        keys = [key for key in keys if key != "federation.client"]
    words += [_word(key, config[key], keys) for key in keys if key in config]
    twins = [other for other in alike if all(other.get(key) == config.get(key) for key in keys)]
    if len(twins) > 1:  # nothing but the code, or the name of the run
        if len({str(other.get("name")) for other in twins}) > 1 and not in_variant:
            words.append(str(config.get("name")))
        if CODE in differing(twins):
            words.append(f"(code {_code(config, twins)})")
    return " ".join(words) or "defaults"


def beside_namesakes(
    configs: Sequence[Config], calls: Sequence[str], ids: Sequence[str]
) -> list[str]:
    """Of runs that are called alike, what tells each apart: the settings that differ among them, or
    its id where these do not. Empty for a run whose call is its own."""
    alike: dict[str, list[Config]] = {}
    for config, call in zip(configs, calls, strict=True):
        alike.setdefault(call, []).append(config)
    differ = {
        call: [key for key in differing(same) if key not in MOVE_NOTHING]
        for call, same in alike.items()
    }
    said = []
    for config, call in zip(configs, calls, strict=True):
        words = [_word(key, config[key], differ[call]) for key in differ[call] if key in config]
        said.append(", ".join(words[:MOST_WORDS]))
    often = Counter(zip(calls, said, strict=True))
    return [
        words if often[call, words] == 1 else ", ".join(filter(None, (words, id_)))
        for call, words, id_ in zip(calls, said, ids, strict=True)
    ]


def method_label(config: Config) -> str:
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
        named["algorithm.name"] = method_label(config)
    if kind := named.get("federation.kind"):
        if kind == "federated":
            named["algorithm.name"] = method_label(config)
            del named["federation.kind"]
        else:
            alone = f" (client {config.get('federation.client', 0)})" if kind == "local" else ""
            named["federation.kind"] = kind.capitalize() + alone
    return [named[key] for key in BARE if named.get(key)]


def _word(key: str, value: Setting, among: Sequence[str]) -> str:
    """`β=0.2`; with its table where the last word alone would not say of what: `aggregate.name`."""
    last = key.rpartition(".")[2]
    alone = sum(other.rpartition(".")[2] == last for other in among) == 1
    short = alone and key not in PARTS
    text = shown(key, value).strip(chr(34))
    if isinstance(value, str) and value.startswith("/") and key not in PARTS:
        text = PurePath(value).name
    return f"{SYMBOLS.get(last, last) if short else key}={text}"


def _code(config: Config, twins: Sequence[Config]) -> str:
    """The first digits of the hashes that not all twins have."""
    shared = set.intersection(*({part[-1] for part in _packages(other)} for other in twins))
    own = [part[-1] for part in _packages(config)]
    return " ".join(one[:DIGITS] for one in own if one not in shared) or "of fedrl alone"


def code_text(config: Config) -> str:
    """Code from outside, for a table: its package or file, and the digits that a name has."""
    return (
        ", ".join(f"{part[0]} {part[-1][:DIGITS]}" for part in _packages(config)) or "fedrl alone"
    )


def _packages(config: Config) -> list[list[str]]:
    """Of every `package:version:hash`, its parts."""
    said = config.get(CODE) or []
    return [str(one).split(":") for one in (said if isinstance(said, list) else [said])]


def differ_in_code_alone(configs: Sequence[Config]) -> bool:
    """Whether two of them have the same settings, and other code behind these."""
    settings = [setting_text([config.get(key) for key in _keys(configs)]) for config in configs]
    return any(times > 1 for times in Counter(settings).values()) and CODE in differing(configs)


def _keys(configs: Sequence[Config]) -> list[str]:
    return [key for key in differing(configs) if key not in ("name", CODE)]


def shown(key: str, value: Setting) -> str:
    """A setting in a table: what is of a file goes by its name and not by its folder."""
    if key in PARTS and isinstance(value, str):
        value = label(value)
    return setting_text(value)


def setting_text(value: Setting) -> str:
    return "–" if value is None else json.dumps(value, ensure_ascii=False, default=str)
