"""Checked tables of prompts, and which rows are trained on, held out, or public.

Every row is looked at once, when a table is opened. Kept of each are a digest of its prompt, by
which no prompt gets into two splits, and the number of its type: twelve bytes.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import overload

import numpy as np

from fedrl.core.registry import suggestion
from fedrl.core.types import JsonValue, UserError
from fedrl.envs.prompts.records import SPLITS, Row, Rows
from fedrl.envs.prompts.settings import Settings
from fedrl.envs.text import Task


class Table:
    """Rows with the columns that the settings name; `name` begins its tasks' ids."""

    def __init__(self, name: str, rows: Rows, settings: Settings) -> None:
        self.name, self.rows = name, rows
        digests, codes, categories = array("Q"), array("i"), dict[str, int]()
        self.columns: frozenset[str] | None = None
        for number, row in enumerate(rows):
            if row.keys() != self.columns:
                self._require_columns(number, row, settings)
            digests.append(self._digest(number, row, settings.prompt))
            category = str(row[settings.category]) if settings.category else "prompt"
            codes.append(categories.setdefault(category, len(categories)))
        if not len(digests):
            raise UserError(f"world.source: {settings.source} holds no prompts")
        self.digests, self.codes = np.frombuffer(digests, "u8"), np.frombuffer(codes, "i4")
        self.categories = tuple(categories)

    def __len__(self) -> int:
        return len(self.digests)

    def id(self, number: int) -> str:
        return f"{self.name}-{number:07d}"

    def task(self, number: int) -> Task:
        return Task(self.id(number), self.categories[self.codes[number]])

    def require_column(self, column: str, why: str) -> None:
        """`why` begins the line for who lacks it."""
        if self.columns is not None and column not in self.columns:
            near = suggestion(column, sorted(self.columns))
            where = f"world.source: {self.rows.where(0)}"
            raise UserError(f"{why} {column!r}, which {where} has not; {near}")

    def _require_columns(self, number: int, row: Row, settings: Settings) -> None:
        """The first row has those that the settings name, and the others the same."""
        where = f"world.source: {self.rows.where(number)}"
        if self.columns is not None:
            odd = min(row.keys() ^ self.columns)
            what = "has no" if odd in self.columns else "has one more"
            raise UserError(
                f"{where} {what} column {odd!r}: a column is in every line, null where it is empty"
            )
        for key in ("prompt", "category", "answer"):
            column = getattr(settings, key)
            if column and column not in row:
                near = suggestion(column, list(row)) if row else "it has none"
                raise UserError(f"world.{key} is {column!r}, which {where} has not; {near}")
        self.columns = frozenset(row)

    def _digest(self, number: int, row: Row, column: str) -> int:
        """Of the prompt; two that are the same to an agent have the same."""
        prompt = row[column]
        if isinstance(prompt, str) and not prompt.strip():
            raise UserError(f"world.prompt: {self.rows.where(number)} has nothing in {column!r}")
        if not isinstance(prompt, str):
            if not _is_chat(prompt):
                raise UserError(
                    f"world.prompt: {self.rows.where(number)} has neither a text nor chat messages "
                    f'[{{"role": …, "content": …}}] in {column!r}'
                )
            prompt = json.dumps(prompt, sort_keys=True)
        return int.from_bytes(
            blake2b(prompt.encode(errors="surrogatepass"), digest_size=8).digest()
        )


def _is_chat(prompt: JsonValue) -> bool:
    return (
        isinstance(prompt, list)
        and bool(prompt)
        and all(isinstance(each, dict) and {"role", "content"} <= each.keys() for each in prompt)
    )


class Tasks(Sequence[Task]):
    """Some rows of a table as tasks, which are made when they are asked for."""

    def __init__(self, table: Table, numbers: np.ndarray) -> None:
        self.table, self.numbers = table, numbers

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, index: int) -> Task: ...

    @overload
    def __getitem__(self, index: slice) -> Tasks: ...

    def __getitem__(self, index: int | slice) -> Task | Tasks:
        if isinstance(index, slice):
            return Tasks(self.table, self.numbers[index])
        return self.table.task(int(self.numbers[index]))

    def __iter__(self) -> Iterator[Task]:
        return map(self.table.task, self.numbers.tolist())


def split(tables: Mapping[str, Table], settings: Settings, own: bool = False) -> dict[str, Tasks]:
    """The tasks of every split: a table's own, or a share of `train` by `split_seed`.

    Of a client's `own` prompts one at least is trained on, however few there are; of others none
    may be left, for a warm start on all of them.
    """
    if "train" not in tables:
        return _without_train(tables)
    _require_shares([name for name in SPLITS[1:] if name not in tables], settings)
    train = tables["train"]
    prompts = np.unique(train.digests)
    most = len(prompts) - 1 if own else len(prompts)
    order = np.random.default_rng(settings.split_seed).permutation(len(prompts))
    found, begin = {}, 0
    for name in SPLITS[1:]:
        if name in tables:
            found[name] = Tasks(tables[name], np.arange(len(tables[name])))
            continue
        end = min(begin + _count(getattr(settings, name), len(prompts)), most)
        held = np.isin(train.digests, prompts[order[begin:end]])
        found[name], begin = Tasks(train, np.flatnonzero(held)), end
    left = np.ones(len(train), bool)
    for tasks in found.values():
        if tasks.table is train:
            left[tasks.numbers] = False
    found["train"] = Tasks(train, np.flatnonzero(left))
    _require_apart(found)
    return found


def _require_shares(names: Sequence[str], settings: Settings) -> None:
    """Those that are cut off `train`, as the source has no file of them, are not more than it."""
    if (total := sum(getattr(settings, name) for name in names)) > 1:
        said = " + ".join(f"world.{name}" for name in names)
        raise UserError(f"{said} is {total:g}: shares of the prompts are at most 1 together")


def _without_train(tables: Mapping[str, Table]) -> dict[str, Tasks]:
    nothing = Tasks(next(iter(tables.values())), np.zeros(0, np.int64))
    found = {name: Tasks(table, np.arange(len(table))) for name, table in tables.items()}
    found = dict.fromkeys(SPLITS, nothing) | found
    _require_apart(found)
    return found


def _count(share: float, prompts: int) -> int:
    """Of so many prompts; a share of few is at least one."""
    return max(round(share * prompts), 1) if share else 0


def _require_apart(found: Mapping[str, Tasks]) -> None:
    """No prompt is in two splits."""
    for i, one in enumerate(SPLITS):
        for other in SPLITS[i + 1 :]:
            first, second = found[one], found[other]
            a, b = first.table.digests[first.numbers], second.table.digests[second.numbers]
            if len(both := np.intersect1d(a, b)):
                places = [
                    tasks.table.rows.where(
                        int(tasks.numbers[np.flatnonzero(digests == both[0])[0]])
                    )
                    for tasks, digests in ((first, a), (second, b))
                ]
                raise UserError(
                    f"world.source: {len(both)} prompts are in {one} and in {other}, such as "
                    f"{places[0]} and {places[1]}: nothing may be trained on that is evaluated"
                )
