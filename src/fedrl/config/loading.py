"""From a TOML recipe, flags and Python settings to a `Config`, strictly, and back to TOML.

A recipe says only what differs from the defaults. `[algorithm] name`, `[world] name` and
`[aggregate] name` choose which dataclass those tables are checked against. Unknown keys, wrong
types and impossible values are errors of one or two lines that name the key and the fix.
"""

from __future__ import annotations

import dataclasses
import difflib
import logging
import tomllib
import typing
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w

import fedrl
from fedrl.config import parts
from fedrl.config.flag_parsing import checked, fields, nearest, parse, split_flags
from fedrl.config.renamed import RENAMED
from fedrl.config.schema import SECTIONS, Config
from fedrl.core.registry import label, not_installed, scripts, suggestion
from fedrl.core.types import Json, Tables, UserError

LOG = logging.getLogger("fedrl")


def read_recipe(path: Path) -> Json:
    """The recipe's tables; its name is the default of `name`."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path}: not valid TOML: {error}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not a UTF-8 text: save it as UTF-8") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    return {"name": recipe_name(path)} | data


def require_names(recipe: Tables) -> None:
    """No step size suits every world, so a recipe says which method and world it is for."""
    if isinstance(recipe.get("recipe"), str) and "runs" in recipe:
        raise UserError("this is a sweep, of several runs: fedrl sweep FILE")
    for key, example in (("algorithm", "fedsvrpg-m"), ("world", "cartpole")):
        section = recipe.get(key)
        if section is None or (isinstance(section, Mapping) and "name" not in section):
            raise UserError(f'the recipe names no {key}: add [{key}] name = "{example}"')


def recipes_folder() -> Path:
    """Recipes lie in the package when installed, beside `src` in a checkout."""
    package = Path(fedrl.__file__).parent
    inside = package / "recipes"
    return inside if inside.is_dir() else package.parent.parent / "recipes"


def find_recipe(name: str) -> Path:
    """A path, or the name of a recipe that comes with fedrl (`momentum/cartpole`)."""
    path = Path(name)
    if path.is_file():
        return path
    if path.is_dir():
        raise UserError(f"{name} is a folder; name a recipe file, for instance from `fedrl list`")
    folder = recipes_folder()
    found = sorted(folder.glob("*/*.toml"))
    known = {str(p.relative_to(folder).with_suffix("")): p for p in found}
    wanted = name.removeprefix("recipes/").removesuffix(".toml")
    if wanted in known:
        return known[wanted]
    raise UserError(file_missing(name, known) or f"no recipe {name!r}; {suggestion(wanted, known)}")


def file_missing(name: str, known: Iterable[str]) -> str:
    """That there is no such file, of what looks like one and is nearly no name of ours."""
    near = difflib.get_close_matches(name.removesuffix(".toml"), list(known), n=1, cutoff=0.5)
    if near or not (name.endswith(".toml") or name.startswith((".", "/", "~"))):
        return ""
    seen = "" if Path(name).is_absolute() else f" in {Path.cwd()}, where fedrl was started"
    return f"there is no file {name}{seen}"


def recipe_name(path: Path) -> str:
    parent = path.resolve().parent
    return f"{parent.name}-{path.stem}" if parent.parent.name == "recipes" else path.stem


def resolve(data: Tables, flags: Sequence[str] = (), settings: Tables | None = None) -> Config:
    """The whole configuration: defaults, then the recipe, then the flags or a program's settings.

    `settings` are values of the types that they have, nested as in a recipe; flags are texts.
    """
    merged = {k: dict(v) if isinstance(v, Mapping) else v for k, v in data.items()}
    pairs: list[tuple[str, Any, bool]] = [(key, text, True) for key, text in split_flags(flags)]
    pairs += [(key, value, False) for key, value in dotted(settings or {})]
    for key, value in (*merged.items(), *(settings or {}).items()):
        if fields(Config).get(key) in (Any, *SECTIONS) and not isinstance(value, Mapping):
            raise UserError(f"{key} must be a table: [{key}]")
        if isinstance(value, Mapping) and not value and key not in fields(Config):
            raise unknown_key(key, [*fields(Config)])
    for key, name, _ in pairs:  # names first: they choose what the other keys are checked against
        if key in ("algorithm.name", "world.name", "aggregate.name"):
            _choose_name(merged.setdefault(key.split(".")[0], {}), key, name)
    try:
        classes = {
            "algorithm": _chosen(merged, "algorithm", "fedsvrpg-m"),
            "world": _chosen(merged, "world", "cartpole"),
            "aggregate": _chosen(merged, "aggregate", "mean"),
        }
    except UserError as error:
        if lost := _registered_elsewhere(merged):
            raise UserError(lost) from error
        if gone := not_installed(merged.get("packages")):
            raise UserError(
                f"{error}\n{gone} is not installed here, and the run used it"
            ) from error
        raise
    for key, value, typed in pairs:
        _override(merged, classes, key, value, typed)
    if kept := _borrowed(data, merged, {key for key, _, _ in pairs}):
        merged["borrowed"] = kept
    else:
        merged.pop("borrowed", None)
    return _fill(Config, merged, "", classes)


def _registered_elsewhere(data: Tables) -> str:
    """Of a run's tables: that a name in them was a script's own, which no other name is near."""
    modules = scripts(data.get("packages"))
    for table in ("algorithm", "world", "aggregate"):
        name = data.get(table, {}).get("name", "")
        if modules and name and ":" not in name and name not in parts.TABLES[table]:
            return (
                f"{table}.name is {name!r}, which a program had registered (fedrl.register, of "
                f"{' or '.join(modules)}): register it again and call fedrl.resume or fedrl.load "
                "there\nRuns named package.module:Name or ./file.py:Name are found from anywhere"
            )
    return ""


def dotted(settings: Tables) -> list[tuple[str, Any]]:
    """`{"rounds": 5, "algorithm": {"lr": 1}}` → [("rounds", 5), ("algorithm.lr", 1)]."""
    return [
        pair
        for key, value in settings.items()
        for pair in (
            [(f"{key}.{inner}", each) for inner, each in value.items()]
            if isinstance(value, Mapping)
            else [(key, value)]
        )
    ]


def _choose_name(section: Json, key: str, name: Any) -> None:
    """A flag that names another method: what that method presets goes over the recipe's value.

    A recipe's keys that only its own method has are left out, and named in a line: one flag is
    enough to change the method. Keys that neither has, and flags, are checked as ever.
    """
    if not isinstance(name, str):
        raise UserError(f"--{key} needs a value" if name is None else f"{key} must be a text")
    before = section.get("name")
    if before != name:
        table = key.partition(".")[0]
        part = parts.find(table, name)
        foreign = section.keys() - fields(part.settings).keys()
        if foreign and isinstance(before, str) and before in parts.TABLES[table]:
            foreign &= fields(parts.find(table, before).settings).keys()
            for one in foreign:
                del section[one]
            if foreign:
                said = f"{key} is {name}, which has no {', '.join(sorted(foreign))}"
                LOG.info("note: %s: the recipe's are left out", said)
        section |= part.defaults
    section["name"] = name


def _borrowed(recipe: Tables, merged: Tables, said: set[str]) -> list[str]:
    """Of the recipe's settings for its own method, those that another one is now given: not what is
    said anew, nor what the other has by default, or does not read (`unread` of its settings). Of an
    earlier resolution, what is left of them."""
    section = recipe.get("algorithm", {})
    before, now = section.get("name"), merged["algorithm"]["name"]
    if "algorithm.name" not in said or not isinstance(before, str) or before == now:
        earlier = recipe.get("borrowed", ())
        return [one for one in earlier if f"algorithm.{one.rpartition(':')[2]}" not in said]
    part = parts.find("algorithm", now)
    usual = {f.name: f.default for f in dataclasses.fields(part.settings)} | dict(part.defaults)
    idle = part.settings.unread(merged["algorithm"]) if hasattr(part.settings, "unread") else ()
    read = (key for key in section if key in usual and key not in idle)
    values = {key: merged["algorithm"].get(key) for key in read}
    return [
        f"{label(before)}:{key}"
        for key, value in values.items()
        if key != "name" and f"algorithm.{key}" not in said
        and (tuple(value) if isinstance(value, list) else value) != usual[key]
    ]  # fmt: skip


def _chosen(data: Json, key: str, default: str) -> type:
    """The settings class of the named method or world; its own defaults go under the recipe's."""
    section = data.get(key, {})
    name = section.get("name", default)
    if not isinstance(name, str):
        raise UserError(f"{key}.name is {name!r}; it must be a text")
    part = parts.find(key, name)
    data[key] = {"name": name} | dict(part.defaults) | section
    return part.settings


def _override(data: Json, classes: dict[str, type], key: str, value: Any, typed: bool) -> None:
    """Put one setting into the tables; what was typed as a flag gets the type that its key has."""
    table, _, inner = key.partition(".")
    hints = fields(Config)
    known = all_keys(classes)
    if key not in known:
        raise unknown_key(f"--{key}" if typed else key, known)
    hint = fields(classes.get(table) or hints[table])[inner] if inner else hints[key]
    if typed:
        if value is None and hint is not bool:
            raise UserError(f"--{key} needs a value")
        value = True if value is None else parse(value, hint, key)
    if inner:
        data.setdefault(table, {})[inner] = value
    else:
        data[key] = value


def unknown_key(key: str, known: list[str]) -> UserError:
    """Names the key's new name if it had another one, else the nearest that there is."""
    if (now := RENAMED.get(key.removeprefix("--"))) in known:
        return UserError(f"{key} is called {now} now: rename it")
    if key.removeprefix("--") == "seeds":
        return UserError(
            "seeds: a run has one, seed; several runs: fedrl run RECIPE --seeds 0-9, or a sweep"
        )
    return UserError(f"unknown key {key}; {nearest(key.removeprefix('--'), known)}")


def all_keys(classes: Mapping[str, type]) -> list[str]:
    """Every key, dotted, in the order of the dataclasses."""
    keys = []
    for name, hint in fields(Config).items():
        cls = classes.get(name) or hint
        if dataclasses.is_dataclass(cls):
            keys += [f"{name}.{inner}" for inner in fields(typing.cast(type, cls))]
        else:
            keys.append(name)
    return keys


def _fill(cls: Any, data: Tables, path: str, classes: Mapping[str, type]) -> Any:
    """An instance of a settings class from a table, nothing unknown and nothing of a wrong type."""
    hints = fields(cls)
    values: Json = {}
    for key, value in data.items():
        where = f"{path}{key}"
        if key not in hints:
            known = (
                [k for k in all_keys(classes) if k.startswith(path)]
                if path
                else [*hints, *all_keys(classes)]
            )
            raise unknown_key(where, known)
        nested = classes.get(key) if not path else None
        hint = nested or hints[key]
        if dataclasses.is_dataclass(hint):
            if not isinstance(value, Mapping):
                raise UserError(f"{where} must be a table: [{where}]")
            values[key] = _fill(hint, value, f"{where}.", classes)
        else:
            values[key] = checked(value, hint, where)
    return cls(**values)


def rebuilt(tables: Tables, registered: Mapping[str, Mapping[str, object]]) -> Config:
    """A configuration in a process that was sent it, with what was registered where it was made."""
    for table, things in registered.items():
        for name, thing in things.items():
            parts.TABLES[table].register(name, thing)
    return resolve(tables)


def as_dict(config: Config) -> Json:
    return {key: value for key, value in dataclasses.asdict(config).items() if value is not None}


def to_toml(config: Config) -> str:
    """The resolved configuration as a recipe: reading it back gives the same configuration."""
    return tomli_w.dumps(
        {
            key: {k: v for k, v in value.items() if v is not None}
            if isinstance(value, dict)
            else value
            for key, value in as_dict(config).items()
        }
    )
