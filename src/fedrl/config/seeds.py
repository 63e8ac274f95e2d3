"""Several seeds in a few words: `0-9`, `0,3,7`, `0-4,8`, wherever several can be given."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from numbers import Integral

from fedrl.config.flag_parsing import split_flags
from fedrl.core.types import UserError

MOST = 10_000
"""Seeds that anybody means: more are a slip of a key."""
PART = re.compile(r"(\d+)(?:\s*[-–]\s*(\d+))?", re.ASCII)
"""A number, or a range as people write it: both ends count."""


def parse_seeds(said: str | Iterable[int], key: str = "--seeds") -> tuple[int, ...]:
    """In the order in which they are said, each once."""
    if isinstance(said, str):
        seeds = [seed for part in said.split(",") for seed in _part(part.strip(), said, key)]
    else:
        seeds = list(said)
    if not seeds:
        raise UserError(f"{key} is empty; name at least one: 0-9, or 0,3,7")
    if not all(isinstance(s, Integral) and not isinstance(s, bool) and s >= 0 for s in seeds):
        raise UserError(f"{key} is {seeds}; seeds are whole numbers from 0 on")
    return tuple(dict.fromkeys(map(int, seeds)))


def seeds_in_words(seeds: Iterable[int]) -> str:
    """As `parse_seeds` takes them, in their order: "0, 42, 200-254"; ranges from three on."""
    rows: list[list[int]] = []
    for seed in seeds:
        if rows and seed == rows[-1][-1] + 1:
            rows[-1].append(seed)
        else:
            rows.append([seed])
    return ", ".join(
        f"{row[0]}-{row[-1]}" if len(row) > 2 else ", ".join(map(str, row)) for row in rows
    )


def _part(part: str, said: str, key: str) -> Iterable[int]:
    found = PART.fullmatch(part)
    if not found:
        raise UserError(f"{key} is {said!r}; write them like 0-9, 0,3,7 or 0-4,8")
    first = int(found[1])
    last = first if found[2] is None else int(found[2])
    if last < first:
        raise UserError(f"{key} has {part!r}; a range begins with its smaller number")
    if last - first >= MOST:
        raise UserError(f"{key} has {part!r}: {last - first + 1:,} seeds, more than {MOST:,}")
    return range(first, last + 1)


def split_seeds(flags: Sequence[str]) -> tuple[list[list[str]], list[str]]:
    """For every run that the flags ask for, the flag that gives it its seed; and all other flags.

    Without `--seeds` it is one run, which keeps its flags as they are.
    """
    pairs = split_flags(flags)
    said = [(key, text or "") for key, text in pairs if key in ("seed", "seeds")]
    if all(key == "seed" for key, _ in said):
        for _, text in said:
            if re.fullmatch(r"[\d\s]+[-–,][\d\s,–-]*", text):
                raise UserError(f"--seed {text}: a run has one; for several write --seeds {text}")
        return [[]], list(flags)
    if len(said) > 1:
        raise UserError("--seeds is said once, and without --seed")
    others = [(key, text) for key, text in pairs if key != "seeds"]
    shared = [f"--{key}" if text is None else f"--{key}={text}" for key, text in others]
    return [["--seed", str(seed)] for seed in parse_seeds(said[0][1])], shared
