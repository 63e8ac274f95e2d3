"""What the steps of a secure sum carry, as tensors and back.

    job      the broadcast →              keys, signed
    share    everybody's keys →           letters, commitments to the shares in them
    mask     letters, with commitments →  the masked vector
    agree    survivors →                  a signature
    unmask   survivors, signatures →      seeds, keys

Keys, sealed letters and shares are bytes by a client's number: a column of numbers and one of rows.
What is read here came from another machine: anything but that, of the right widths, is `Damaged`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np

from fedrl.core.serialization import Damaged
from fedrl.core.types import Tensors
from fedrl.privacy.secure_aggregation import Terms, commitments, masks, shamir
from fedrl.privacy.secure_aggregation.identity import SIGNATURE
from fedrl.privacy.secure_aggregation.protocol import NO_HISTORY, Answer, Dealing, Keys, Letter
from fedrl.privacy.secure_aggregation.quantise import WORD

KEY = 32
SIGNED = 2 * KEY + len(NO_HISTORY) + SIGNATURE
LETTER = masks.NONCE + 2 * shamir.SHARE + 16  # and AES-GCM's tag
COMMITMENT = 2 * commitments.SIZE  # to a share of the seed and one of the key

KEYS, LETTERS, VECTOR, SURVIVORS, SEEDS = "keys", "letters", "vector", "survivors", "seeds"
SIGNATURES, COMMITMENTS, SEED = "signatures", "commitments", "seed"
WHO, ROWS = "who", "rows"


def sendable(terms: Terms | None) -> dict[str, float]:
    """For a job's heading: a node compares them with its own."""
    return {} if terms is None else {name: float(n) for name, n in terms._asdict().items()}


class Signed(NamedTuple):
    """A client's keys, and that they are its own; to whom that matters, it checks it.

    `history` is that of the state it starts from (`client_state_store.py`), signed as well.
    """

    keys: Keys
    signature: bytes
    history: bytes = NO_HISTORY


def pack_keys(known: Mapping[int, Signed]) -> Tensors:
    rows = {who: b"".join(s.keys) + s.history + s.signature for who, s in known.items()}
    return {KEYS: _table(rows, SIGNED)}


def read_keys(tensors: Tensors) -> dict[int, Signed]:
    (rows,) = _tables(tensors, {KEYS: SIGNED})
    end = SIGNED - SIGNATURE
    return {
        who: Signed(Keys(row[:KEY], row[KEY : 2 * KEY]), row[end:], row[2 * KEY : end])
        for who, row in rows.items()
    }


def pack_dealing(dealt: Dealing) -> Tensors:
    return {
        LETTERS: _table(dealt.letters, LETTER),
        COMMITMENTS: _table(dealt.commitments, COMMITMENT),
        SEED: np.frombuffer(dealt.seed, np.uint8),
    }


def read_dealing(tensors: Tensors) -> Dealing:
    seed = tensors.get(SEED)
    if not isinstance(seed, np.ndarray) or not _has_form(seed, np.uint8, (commitments.SIZE,)):
        raise Damaged("no commitment to a seed")
    rest = {name: value for name, value in tensors.items() if name != SEED}
    letters, said = _tables(rest, {LETTERS: LETTER, COMMITMENTS: COMMITMENT})
    return Dealing(letters, said, seed.tobytes())


def pack_letters(letters: Mapping[int, Letter]) -> Tensors:
    rows = {dealer: b"".join(letter) for dealer, letter in letters.items()}
    return {LETTERS: _table(rows, LETTER + COMMITMENT)}


def read_letters(tensors: Tensors) -> dict[int, Letter]:
    (rows,) = _tables(tensors, {LETTERS: LETTER + COMMITMENT})
    return {u: Letter(row[:LETTER], row[LETTER:]) for u, row in rows.items()}


def pack_vector(vector: np.ndarray) -> Tensors:
    return {VECTOR: vector}


def read_vector(tensors: Tensors, size: int) -> np.ndarray:
    if set(tensors) != {VECTOR} or not _has_form(tensors[VECTOR], WORD, (size,)):
        raise Damaged(f"not {size:,} words")
    vector: np.ndarray = tensors[VECTOR]
    return vector


def pack_survivors(survivors: Collection[int]) -> Tensors:
    return {SURVIVORS: np.array(sorted(survivors), np.int64)}


def read_survivors(tensors: Tensors) -> list[int]:
    if set(tensors) != {SURVIVORS}:
        raise Damaged("not a list of survivors")
    return _numbers(tensors[SURVIVORS])


def pack_answer(answer: Answer) -> Tensors:
    return {SEEDS: _table(answer.seeds, shamir.SHARE), KEYS: _table(answer.keys, shamir.SHARE)}


def read_answer(tensors: Tensors) -> Answer:
    seeds, keys = _tables(tensors, {SEEDS: shamir.SHARE, KEYS: shamir.SHARE})
    return Answer(seeds, keys)


def pack_signatures(signatures: Mapping[int, bytes]) -> Tensors:
    return {SIGNATURES: _table(signatures, SIGNATURE)}


def read_signatures(tensors: Tensors) -> dict[int, bytes]:
    (signatures,) = _tables(tensors, {SIGNATURES: SIGNATURE})
    return signatures


def pack_opening(survivors: Collection[int], signatures: Mapping[int, bytes]) -> Tensors:
    return pack_survivors(survivors) | pack_signatures(signatures)


def read_opening(tensors: Tensors) -> tuple[list[int], dict[int, bytes]]:
    rest = {name: value for name, value in tensors.items() if name != SURVIVORS}
    signatures = read_signatures(rest)
    return read_survivors({SURVIVORS: tensors.get(SURVIVORS)}), signatures


def members(step: str, given: Tensors, own: int) -> list[int]:
    """Who is in a sum, by what a client was given for a step that it has answered."""
    if step == "share":
        return sorted(read_keys(given))
    if step == "mask":
        return sorted({*read_letters(given), own})
    return sorted(read_opening(given)[0] if step == "unmask" else read_survivors(given))


def digest(
    recipe: str, broadcast: str, terms: Mapping[str, float], round: int, attempt: int
) -> bytes:
    """Of what a job asks of everybody in the same way; `broadcast` is its checksum."""
    text = json.dumps([recipe, broadcast, sorted(terms.items()), round, attempt])
    return hashlib.sha256(text.encode()).digest()


def _table(rows: Mapping[int, bytes], width: int) -> Tensors:
    whole = np.frombuffer(b"".join(rows.values()), np.uint8).reshape(len(rows), width)
    return {WHO: np.array(list(rows), np.int64), ROWS: whole}


def _tables(tensors: Tensors, widths: Mapping[str, int]) -> list[dict[int, bytes]]:
    """The tables of these names and widths, and no others."""
    if set(tensors) != set(widths):
        raise Damaged(f"{', '.join(sorted(map(str, tensors)))} instead of {', '.join(widths)}")
    tables = []
    for name, width in widths.items():
        table = tensors[name]
        if not isinstance(table, dict) or set(table) != {WHO, ROWS}:
            raise Damaged(f"{name} is no table")
        numbers, rows = _numbers(table[WHO]), table[ROWS]
        if not _has_form(rows, np.uint8, (len(numbers), width)):
            raise Damaged(f"{name} has rows of another size")
        tables.append({who: row.tobytes() for who, row in zip(numbers, rows, strict=True)})
    return tables


def _numbers(column: object) -> list[int]:
    """Clients' numbers, no two alike."""
    if not isinstance(column, np.ndarray) or column.dtype != np.int64 or column.ndim != 1:
        raise Damaged("clients are not named by numbers")
    numbers: list[int] = column.tolist()
    if len(set(numbers)) < len(numbers) or not all(0 <= n < 2**31 for n in numbers):
        raise Damaged("clients are named twice, or by no numbers of clients")
    return numbers


def _has_form(value: object, dtype: object, shape: tuple[int, ...]) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == dtype and value.shape == shape
