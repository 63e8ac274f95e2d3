"""The shop's search engine: BM25 with Lucene's arithmetic, so that pages equal the original's.

For a query term of weight w = count · idf, a document with frequency f and length code l scores

    w - w / (1 + f · n(l)),   n(l) = 1 / (k1 · (1 - b + b · length(l) / mean length)),

in single precision; the terms of a document are summed in double precision and rounded once. idf =
ln(1 + (N - df + ½) / (df + ½)). Lengths are known only as one byte (4 significant bits above 40).
Equal scores come in ascending order of the id.

Documents are numbered by ascending id inside, so a tie is broken by the smaller number. A posting
is a document and the code of a pair (frequency, length): there are few such pairs, so the score of
every one of them is a small table per query term, and other k1 and b change only these tables.
"""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedrl.core.types import UserError
from fedrl.envs.webshop.search_terms import term, words

K1, B = 0.9, 0.4
"""What the original shop searches with."""

LARGE = 50_000
"""Documents from which the compiled scan pays for loading its compiler."""

CHUNK = 20_000
"""Documents whose words are held at once while an index is built."""

_DOC_BITS, _COUNT_BITS = 28, 12
_SLICE = 1 << 20  # postings that are unpacked at once
_ARRAYS = ("order", "starts", "docs", "codes", "frequencies", "lengths")

Ints = NDArray[np.int32]
Floats = NDArray[np.float32]


def length_code(length: NDArray[np.int64]) -> NDArray[np.int64]:
    """Lucene's byte for a document of so many terms: exact below 40, then 4 significant bits."""
    above = np.maximum(length - 24, 0)
    shift = np.maximum(np.floor(np.log2(np.maximum(above, 1))).astype(np.int64) - 3, 0)
    coded = np.where(above < 8, above, ((above >> shift) & 7) | ((shift + 1) << 3))
    return np.where(length < 24, length, 24 + coded)


def coded_length(code: NDArray[np.int64]) -> NDArray[np.int64]:
    """The length that a byte stands for: the inverse of `length_code`, rounded down."""
    above = np.maximum(code - 24, 0)
    shift = (above >> 3) - 1
    decoded = np.where(shift < 0, above, ((above & 7) | 8) << np.maximum(shift, 0))
    return np.where(code < 24, code, 24 + decoded)


class Query(NamedTuple):
    """The known terms of a query: where their postings lie, and their weights count · idf."""

    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    weights: Floats


@dataclass(frozen=True, eq=False)
class Index:
    """Postings of a fixed set of documents. `build` or `load` one; `reweighted` shares postings."""

    terms: dict[str, int]
    order: Ints  # the caller's position of document d, documents numbered by ascending id
    starts: NDArray[np.int64]  # postings of term t are starts[t] : starts[t + 1]
    docs: Ints
    codes: NDArray[np.uint16]
    frequencies: Floats  # of code c
    lengths: Floats  # of code c, in whole terms, as the byte knows it
    mean_length: float
    documents: int  # those with at least one term, the N of idf
    k1: float = K1
    b: float = B
    saturation: Floats = field(init=False)  # 1 + f · n(l) of code c

    def __post_init__(self) -> None:
        if not (self.k1 > 0 and 0 <= self.b <= 1):
            raise UserError(f"k1 is {self.k1} and b is {self.b}; choose k1 > 0 and 0 <= b <= 1")
        k1, b, mean = np.float32(self.k1), np.float32(self.b), np.float32(self.mean_length)
        one = np.float32(1)
        inverse = one / (k1 * ((one - b) + b * self.lengths / mean))
        object.__setattr__(self, "saturation", one + self.frequencies * inverse)

    @staticmethod
    def build(ids: Sequence[str], texts: Iterable[str], k1: float = K1, b: float = B) -> Index:
        """Index the texts, given in the order of their ids."""
        return _build(ids, texts, k1, b)

    def __len__(self) -> int:
        return len(self.order)

    def reweighted(self, k1: float, b: float) -> Index:
        """The same documents under another ranking; costs nothing."""
        return replace(self, k1=k1, b=b)

    def search(self, query: str, k: int = 50) -> list[int]:
        """Positions of the best k documents, best first; only documents that hold a query term."""
        return self.ranked(query, k)[0].tolist()

    def ranked(self, query: str, k: int = 50) -> tuple[Ints, Floats]:
        """Positions and scores of the best k."""
        terms = self._query(query)
        if not len(terms.weights) or k <= 0:
            return np.empty(0, np.int32), np.empty(0, np.float32)
        if len(self) >= LARGE and _compiled():
            from fedrl.envs.webshop.search_kernel import best

            docs, scores = best(self, terms, k)
        else:
            docs, scores = self._best(terms, k)
        return self.order[docs], scores

    def scores(self, query: str) -> Floats:
        """The score of every document by position: 0 without a query term."""
        scores = np.zeros(len(self), np.float32)
        scores[self.order] = self._sums(self._query(query)).astype(np.float32)
        return scores

    def save(self, folder: Path) -> None:
        """Write the index to a folder, from which `load` maps it into memory."""
        folder.mkdir(parents=True, exist_ok=True)
        for name in _ARRAYS:
            np.save(folder / f"{name}.npy", getattr(self, name))
        numbers = [self.mean_length, self.documents, self.k1, self.b]
        np.save(folder / "numbers.npy", np.array(numbers, np.float64))
        (folder / "terms.txt").write_text("\n".join(self.terms), encoding="utf-8")

    @staticmethod
    def load(folder: Path) -> Index:
        """A saved index; its postings are read from disk when a query needs them."""
        if not (folder / "terms.txt").exists():
            raise UserError(f"{folder} holds no search index: build it with Index.build and save")
        mapped = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in _ARRAYS}
        arrays = {name: array.view(np.ndarray) for name, array in mapped.items()}
        mean, documents, k1, b = np.load(folder / "numbers.npy").tolist()
        text = (folder / "terms.txt").read_text(encoding="utf-8")
        terms = {word: number for number, word in enumerate(text.split("\n") if text else ())}
        return Index(
            terms=terms, **arrays, mean_length=mean, documents=int(documents), k1=k1, b=b
        )  # fmt: skip

    def _query(self, query: str) -> Query:
        counts = Counter(map(term, words(query)))
        known = [self.terms[word] for word in counts if word in self.terms]
        times = [count for word, count in counts.items() if word in self.terms]
        numbers = np.array(known, np.int64)
        starts, stops = self.starts[numbers], self.starts[numbers + 1]
        held = stops - starts
        idf = np.log(1 + (self.documents - held + 0.5) / (held + 0.5)).astype(np.float32)
        return Query(starts, stops, np.array(times, np.float32) * idf)

    def _sums(self, query: Query) -> NDArray[np.float64]:
        sums = np.zeros(len(self), np.float64)
        for start, stop, weight in zip(query.starts, query.stops, query.weights):
            table = weight - weight / self.saturation
            sums[self.docs[start:stop]] += table[self.codes[start:stop]]  # a document once per term
        return sums

    def _best(self, query: Query, k: int) -> tuple[NDArray[np.int64], Floats]:
        scores = self._sums(query).astype(np.float32)
        docs = np.flatnonzero(scores)
        if len(docs) > 4 * k:
            least = np.partition(scores[docs], len(docs) - k)[len(docs) - k]
            docs = docs[scores[docs] >= least]
        docs = docs[np.argsort(-scores[docs], kind="stable")[:k]]
        return docs, scores[docs]


@cache
def _compiled() -> bool:
    """Whether the compiler is installed; without it NumPy gives the same answers, later."""
    return importlib.util.find_spec("numba") is not None


class _Vocabulary(dict[str, int]):
    """Words, as they are written, to the numbers of their terms; -1 for a stop word."""

    def __init__(self) -> None:
        super().__init__()
        self.terms: dict[str, int] = {}

    def __missing__(self, word: str) -> int:
        stem = term(word)
        number = self.terms.setdefault(stem, len(self.terms)) if stem else -1
        self[word] = number
        return number


def _build(ids: Sequence[str], texts: Iterable[str], k1: float, b: float) -> Index:
    total = len(ids)
    if total >= 1 << _DOC_BITS:
        raise UserError(f"the catalogue has {total} products; an index holds {1 << _DOC_BITS}")
    order = np.array(sorted(range(total), key=ids.__getitem__), np.int32)
    number = np.empty(total, np.int64)
    number[order] = np.arange(total)
    vocabulary = _Vocabulary()
    keys, lengths = _keys(texts, number, vocabulary)
    keys.sort()
    edges = np.arange(len(vocabulary.terms) + 1) << (_DOC_BITS + _COUNT_BITS)
    starts = np.searchsorted(keys, edges)
    docs, codes, kinds = _postings(keys, length_code(lengths))
    held = int(np.count_nonzero(lengths))
    return Index(
        terms=vocabulary.terms,
        order=order,
        starts=starts,
        docs=docs,
        codes=codes,
        frequencies=(kinds >> 8).astype(np.float32),
        lengths=coded_length(kinds & 255).astype(np.float32),
        mean_length=float(lengths.sum() / max(held, 1)) or 1.0,
        documents=held,
        k1=k1,
        b=b,
    )


def _keys(
    texts: Iterable[str], number: NDArray[np.int64], vocabulary: _Vocabulary
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """One key (term, document, count) per posting, unsorted, and the length of every document."""
    stream = iter(texts)
    lengths = np.zeros(len(number), np.int64)
    parts = [np.empty(0, np.int64)]
    done = 0
    while chunk := list(islice(stream, CHUNK)):
        numbers: list[int] = []
        sizes = np.empty(len(chunk), np.int64)
        if done + len(chunk) > len(number):
            raise ValueError("more texts than ids")
        for place, text in enumerate(chunk):
            before = len(numbers)
            numbers += map(vocabulary.__getitem__, words(text))
            sizes[place] = len(numbers) - before
        which = np.repeat(number[done : done + len(chunk)], sizes)
        terms = np.array(numbers, np.int64)
        kept = terms >= 0
        which, terms = which[kept], terms[kept]
        lengths += np.bincount(which, minlength=len(lengths))
        keys, counts = np.unique((terms << _DOC_BITS) | which, return_counts=True)
        parts.append((keys << _COUNT_BITS) | np.minimum(counts, (1 << _COUNT_BITS) - 1))
        done += len(chunk)
    if done < len(number):
        raise ValueError("fewer texts than ids")
    keys = np.empty(sum(map(len, parts)), np.int64)
    place = len(keys)
    while parts:  # piece by piece, or all keys would be in memory twice
        part = parts.pop()
        place -= len(part)
        keys[place : place + len(part)] = part
    return keys, lengths


def _postings(
    keys: NDArray[np.int64], length_codes: NDArray[np.int64]
) -> tuple[Ints, NDArray[np.uint16], NDArray[np.int64]]:
    """Documents and codes of the sorted keys, and the pair (count, length byte) of each code."""
    docs = np.empty(len(keys), np.int32)
    pairs = np.empty(len(keys), np.uint32)
    seen = np.zeros(1 << (_COUNT_BITS + 8), bool)
    for start in range(0, len(keys), _SLICE):
        part = slice(start, start + _SLICE)
        docs[part] = (keys[part] >> _COUNT_BITS) & ((1 << _DOC_BITS) - 1)
        counts = keys[part] & ((1 << _COUNT_BITS) - 1)
        pairs[part] = (counts << 8) | length_codes[docs[part]]
        seen[pairs[part]] = True
    kinds = np.flatnonzero(seen)
    if len(kinds) > 1 << 16:
        raise ValueError(f"{len(kinds)} kinds of postings; a code holds {1 << 16}")
    table = np.zeros(len(seen), np.uint16)
    table[kinds] = np.arange(len(kinds))
    return docs, table[pairs], kinds
