"""Names of methods, worlds, rules and attacks: one lookup for all that reads a recipe.

A name is one of these, in this order:

    scaffold                one that comes with fedrl,
                            or that `fedrl.register` was given in this process,
                            or an entry point of an installed package (`fedrl.algorithms`, …)
    package.module:Name     a class of an installed package
    ./mine.py:Name          a class of a file, on one's own machine

A node trusts nobody's names: within `only_packages` a name leads to fedrl or to an installed
package that the node's owner has allowed, and never to a file.

Modules are imported when they are used, so `fedrl --help` loads neither JAX nor PyTorch, and a
missing extra is a sentence instead of a traceback.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from fedrl.core.source_code import (
    absent_imports,
    files_digest,
    module_of_file,
    neighbours,
    python_files,
    source_digest,
)
from fedrl.core.types import UserError

_allowed: ContextVar[frozenset[str] | None] = ContextVar("allowed", default=None)
"""Packages of others that may be imported; None on one's own machine: all, and files."""

OURS = ("fedrl", "gymnasium")
"""Packages whose code a node that runs fedrl runs anyway."""
PLACES = (
    "fedrl.aggregation", "fedrl.algorithms", "fedrl.clients", "fedrl.envs",
    "gymnasium.envs", "gymnasium.wrappers",
)  # fmt: skip
"""Where the things of recipes are in these: a node imports nothing else of them by a name."""


@dataclass(frozen=True)
class Entry:
    """Where a name leads. `kinds` are what a world offers, or the worlds that a method plays.

    What comes from outside says its kinds, defaults and meaning itself: they are read when it is
    loaded (`config.parts`).
    """

    module: str  # "package.module", "package.module:Name" or "/folder/file.py:Name"
    extra: str
    summary: str
    defaults: Mapping[str, Any] = field(default_factory=dict)
    kinds: tuple[str, ...] = ("control",)
    package: str = "fedrl"  # the distribution that it comes in; empty of a file
    thing: object = None  # itself, if it was registered

    @property
    def outside(self) -> bool:
        return self.package != "fedrl"


class Table(Mapping[str, Entry]):
    """The names of one group, such as `algorithms`; `key` is the setting that takes them.

    `by_place` says whether a node also takes things of fedrl and Gymnasium by their places: not
    functions that are called with what a model wrote, which a coordinator chooses.
    """

    def __init__(
        self, group: str, key: str, builtin: Mapping[str, Entry], by_place: bool = True
    ) -> None:
        self.group, self.key, self.builtin, self.by_place = group, key, builtin, by_place
        self.registered: dict[str, Entry] = {}

    def __getitem__(self, name: str) -> Entry:
        return self.find(name)

    def __iter__(self) -> Iterator[str]:
        """Every thing by a name that finds it: by its place, where another has its name."""
        taken = dict.fromkeys([*self.builtin, *self.registered])
        yield from taken
        for name, offers in self._entry_points().items():
            alone = name not in taken and len(offers) == 1
            yield from [name] if alone else filter(_is_path, offers.values())

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (name in list(iter(self)) or _is_path(name))

    def register(self, name: str, thing: object) -> None:
        """`thing` under this name, in this process and in the workers that it starts."""
        if name in self.builtin or _is_path(name):
            raise UserError(f"{name!r} cannot be registered: fedrl has it, or it holds a colon")
        where = f"{getattr(thing, '__module__', '')}:{getattr(thing, '__qualname__', name)}"
        self.registered[name] = Entry(where, "", "registered here", package="", thing=thing)

    def find(self, name: str, key: str = "") -> Entry:
        """The entry called `name`; `key` is the setting that asked for it."""
        key = key or self.key
        if name in self.builtin:
            return self.builtin[name]
        if _is_path(name):
            if not self.by_place and _allowed.get() is not None and name.split(".")[0] in OURS:
                raise UserError(
                    f"{key} is {name!r}: a node takes functions of packages that its owner allows, "
                    f"and of ours {', '.join(self.builtin) or 'none'}"
                )
            return _of_path(name, key)
        if name in self.registered and _allowed.get() is None:
            return self.registered[name]
        if offers := self._entry_points().get(name):
            allowed = _allowed.get()
            mine = {p: w for p, w in offers.items() if allowed is None or normal(p) in allowed}
            if len(mine) > 1:
                raise UserError(
                    f"{key} is {name!r}, which the packages {' and '.join(sorted(mine))} offer: "
                    f"say {' or '.join(sorted(mine.values()))}"
                )
            package, where = next(iter((mine or offers).items()))
            return Entry(where, "", _summary(package), package=_permitted(package, key, name))
        if name.endswith(".py"):
            raise UserError(f"{key} is {name!r}; say what in that file: {name}:Name")
        raise UserError(f"{key} is {name!r}; {suggestion(name, list(self))}")

    def _entry_points(self) -> dict[str, dict[str, str]]:
        """By the names that installed packages offer, each package's place of it."""
        found: dict[str, dict[str, str]] = {}
        for point in metadata.entry_points(group=f"fedrl.{self.group}"):
            if point.dist is not None:
                where = f"{point.module}:{point.attr}" if point.attr else point.module
                found.setdefault(point.name, {})[point.dist.name] = where
        return found


def look_up(table: Table, key: str, name: str) -> Entry:
    """The entry called `name`; `key` is the setting that asked for it."""
    return table.find(name, key)


def load(entry: Entry, key: str, name: str) -> Any:
    """Import what the entry leads to: a module, or a class or function in it.

    A package that is not installed names the extra to install.
    """
    if entry.thing is not None:
        return entry.thing
    place, _, attribute = entry.module.rpartition(":") if ":" in entry.module else (
        entry.module, "", "",
    )  # fmt: skip
    try:
        module = module_of_file(place) if place.endswith(".py") else importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name == place and Path(f"{place}.py").is_file():
            raise UserError(
                f"{key} is {name!r}, and no package {place} is installed; "
                f"for the file here say ./{place}.py:{attribute}"
            ) from error
        raise missing_extra(error, f"{key} = {name!r}", entry.extra) from error
    found: object = module
    for part in filter(None, attribute.split(".")):
        try:
            found = getattr(found, part)
        except AttributeError as error:
            near = difflib.get_close_matches(part, vars(found), n=1, cutoff=0.5)
            meant = f"; did you mean {near[0]!r}?" if near else ""
            raise UserError(f"{key} = {name!r}: {place} has no {attribute}{meant}") from error
        if isinstance(found, ModuleType):  # such as os of a module that imports it
            raise UserError(
                f"{key} = {name!r} leads to the module {found.__name__}: name a class or function "
                "by the module that it is in"
            )
    if _allowed.get() is not None and attribute:
        made = getattr(found, "__module__", None) or type(found).__module__
        if made.split(".")[0] != place.split(".")[0]:  # what a module imports is another's
            raise UserError(f"{key} = {name!r} is of {made.split('.')[0]}: a node takes it there")
    return found


@contextmanager
def only_packages(allowed: Collection[str]) -> Iterator[None]:
    """Within it, names lead to fedrl and to these installed packages alone."""
    token = _allowed.set(frozenset(map(normal, allowed)))
    try:
        yield
    finally:
        _allowed.reset(token)


def label(name: str) -> str:
    """A name for folders and tables: `Scaffold` of `package.module:Scaffold`."""
    return name.rpartition(":")[2]


def is_file(name: str) -> bool:
    return name.rpartition(":")[0].endswith(".py")


def absolute(name: str) -> str:
    """A file's name as it is understood from anywhere; others as they are."""
    place, _, attribute = name.rpartition(":")
    return f"{os.path.abspath(place)}:{attribute}" if is_file(name) else name


def fingerprint(entry: Entry) -> str:
    """`package:version:hash` of the code behind an entry from outside, file by file."""
    place = entry.module.partition(":")[0]
    if place.endswith(".py"):
        file = Path(place)
        beside = sorted(path for files in neighbours(file).values() for path in files)
        return f"{file.name}:file:{files_digest([file, *beside])}"
    version = metadata.version(entry.package) if entry.package else "script"
    sources = python_files(place)
    digest = files_digest(sources) if sources or entry.thing is None else source_digest(entry.thing)
    return f"{entry.package or place}:{version}:{digest}"


def not_installed(packages: object) -> str:
    """Which of a run's packages (`package:version:hash`) are not here, with their versions."""
    texts = packages if isinstance(packages, list | tuple) else ()
    named = [str(text).split(":")[:2] for text in texts]
    asked = [one for one in named if len(one) == 2 and one[1] not in ("file", "script")]
    here = {normal(str(dist.name)) for dist in metadata.distributions()} if asked else set()
    return ", ".join(" ".join(one) for one in asked if normal(one[0]) not in here)


def scripts(packages: object) -> list[str]:
    """Modules of a run's code (`module:script:hash`) that are of no package: what a script or a
    notebook had registered."""
    texts = packages if isinstance(packages, list | tuple) else ()
    named = [str(text).split(":") for text in texts]
    return [one[0] for one in named if len(one) == 3 and one[1] == "script"]


def code(text: str, key: str) -> Entry | None:
    """Where a setting that names code leads: `package.module:Name(…)`, `package:Id`, a file's.

    Nothing without a colon, which is a name of somebody's own.
    """
    place, colon, attribute = text.partition(":")
    if not colon:
        return None
    if place.endswith(".py"):
        return _of_path(f"{place}:{attribute.partition('(')[0]}", key)
    return _of_path(f"{place}:_", key)


def _is_path(name: str) -> bool:
    return ":" in name


def _of_path(name: str, key: str) -> Entry:
    """`package.module:Name`, or a file's."""
    place, _, attribute = name.rpartition(":")
    if not place or not attribute.replace(".", "").isidentifier():
        raise UserError(
            f"{key} is {name!r}; a name from outside is package.module:Name or ./file.py:Name"
        )
    if place.endswith(".py"):
        if _allowed.get() is not None:
            raise UserError(f"{key} is {name!r}, a file: a node takes installed packages only")
        if not Path(place).is_file():
            seen = "" if Path(place).is_absolute() else f" in {Path.cwd()}, where fedrl was started"
            raise UserError(f"{key} is {name!r}, and there is no file {place}{seen}")
        return Entry(absolute(name), "", f"of {place}", package="")
    if not all(part.isidentifier() for part in place.split(".")):
        raise UserError(f"{key} is {name!r}; {place} is no name of a module")
    top = place.split(".")[0]
    if top in OURS:
        known = any(f"{place}.".startswith(f"{one}.") for one in PLACES)
        if _allowed.get() is not None and not known:
            raise UserError(f"{key} is {name!r}: a node looks for nothing there")
        return Entry(name, "all", "")
    packages = _owners(place)
    if not packages and _allowed.get() is not None:
        raise UserError(f"{key} is {name!r}: no package that is installed here has {top}")
    for package in packages:
        _permitted(package, key, name)
    package = packages[0] if packages else ""
    return Entry(name, "", _summary(package), package=package)


def _owners(module: str) -> list[str]:
    """The distributions that a module is of: the one that has its file, else all that have its
    first name, which several may share (a namespace)."""
    top = module.partition(".")[0]
    sharing = sorted(set(metadata.packages_distributions().get(top, [])))
    if len(sharing) < 2:
        return sharing
    base = module.replace(".", "/")
    files = {f"{base}.py", f"{base}/__init__.py"}
    having = [p for p in sharing if files & {f.as_posix() for f in metadata.files(p) or ()}]
    return having or sharing


def _permitted(package: str, key: str, name: str) -> str:
    allowed = _allowed.get()
    if allowed is not None and normal(package) not in allowed:
        raise UserError(
            f"{key} is {name!r} of the package {package}, which this node's owner has not allowed "
            f"(--allow-package {package})"
        )
    return package


def normal(package: str) -> str:
    """As pip compares them."""
    return package.lower().replace("_", "-").replace(".", "-")


def _summary(package: str) -> str:
    return metadata.metadata(package)["Summary"] or "" if package else ""


def missing_extra(error: ModuleNotFoundError, what: str, extra: str) -> UserError:
    if error.name is not None and error.name.split(".")[0] == "fedrl":
        raise error  # our own bug, not the user's installation
    if extra:
        return UserError(f'{what} needs the package {error.name}: pip install "fedrl[{extra}]"')
    absent = list(dict.fromkeys([str(error.name), *absent_imports(error)]))
    if since := sorted({*absent} & {*metadata.packages_distributions()}):
        return UserError(
            f"{what} needs {', '.join(since)}, installed but not to be found by this process: "
            "start it again if it is older than the installation"
        )
    some = "packages" if len(absent) > 1 else "package"
    return UserError(f"{what} needs the {some} {', '.join(absent)}: pip install {' '.join(absent)}")


def suggestion(wrong: str, right: Mapping[str, Any] | list[str]) -> str:
    """ "did you mean …?" when something is near, else the whole choice."""
    near = difflib.get_close_matches(wrong, list(right), n=1, cutoff=0.5)
    if near:
        return f"did you mean {near[0]!r}?"
    return "choose from " + ", ".join(right)
