"""Text to terms, as Lucene's English analyser does it: the shop's words must be the original's.

Words by Unicode's word boundaries (UAX #29, with Lucene's tokens for emoji), lower case, without a
possessive 's, without 33 stop words, stemmed by Porter's algorithm with Martin Porter's own
extensions (`bli`, `logi`, words of two letters left alone).

Word boundaries are found by a regular expression over one letter per character, its class; text in
plain ASCII takes a shorter expression that finds the same words.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache, lru_cache
from typing import NamedTuple

from fedrl.core.package_files import package_toml
from fedrl.envs.webshop.word_lists import word_list

MAX_TOKEN = 255
"""Lucene's tokeniser cuts longer words into pieces of this length."""

_ASCII_WORD = re.compile(
    r"[a-z0-9_]+(?:[:.,;'](?:(?<=[a-z][:.'])(?=[a-z])|(?<=[0-9][.,;'])(?=[0-9]))[a-z0-9_]+)*"
)

# The letters are the classes of characters.toml.
_MARKS = "[FJVY]*"
_LETTERS = (
    f"(?:H{_MARKS}(?:Q{_MARKS}|D{_MARKS}(?=H))|[AH]{_MARKS}(?:[LBQ]{_MARKS}(?=[AH]))?"
    f"|N{_MARKS}(?:[MBQ]{_MARKS}(?=N))?)+"
)
_PART = f"(?:{_LETTERS}|(?:K{_MARKS})+)"
_LINK = f"(?:X{_MARKS})"
_TRAIL = "(?:[FY]|J++(?![EOS]))*"  # a joiner before a picture belongs to that picture
_PICTURE = f"(?:J*O{_TRAIL}S{_TRAIL}|S{_TRAIL}|J*[EO]{_TRAIL}V?)"
_CLASS_WORD = re.compile(
    f"{_LINK}*+{_PART}(?:{_LINK}++{_PART})*{_LINK}*"
    f"|{_PICTURE}(?:J{_PICTURE})*|U[FJ]*V?Y[FJY]*|R{_MARKS}R{_MARKS}|(?:C{_MARKS})+|I{_MARKS}"
    f"|(?P<none>{_LINK}+|J+)"
)


class _Characters(NamedTuple):
    """characters.toml: the class of a character, or of a range of code points."""

    singles: dict[str, str]
    ranges: tuple[tuple[int, int, str], ...]


@cache
def _characters() -> _Characters:
    tables = package_toml(__package__, "characters.toml")
    ends = (
        (kind, [int(end, 16) for end in part.split("-")])
        for kind, parts in tables["ranges"].items()
        for part in parts.split()
    )
    return _Characters(
        {character: kind for kind, some in tables["singles"].items() for character in some},
        tuple((codes[0], codes[-1], kind) for kind, codes in ends),
    )


def _class(code: int) -> str:
    """The class of one character; Unicode's categories decide what no table names."""
    character, (singles, ranges) = chr(code), _characters()
    if character in singles:
        return singles[character]
    for low, high, kind in ranges:
        if low <= code <= high:
            return kind
    category = unicodedata.category(character)
    if category[0] == "M" or category == "Cf":
        return "F"
    if category[0] == "L" or category == "Nl":
        return "H" if 0x05D0 <= code <= 0x05F2 or 0xFB1D <= code <= 0xFB4F else "A"
    return "N" if category == "Nd" else " "


class _Classes(dict[int, str]):
    """For `str.translate`: a character is classified when it is first met."""

    def __missing__(self, code: int) -> str:
        kind = self[code] = _class(code)
        return kind


_classes = _Classes()


def words(text: str) -> list[str]:
    """The words of the text in lower case, as they stand in it."""
    text = text.lower()
    if text.isascii():
        result = _ASCII_WORD.findall(text)
    else:  # few characters need the classes, and a blank always ends a word
        result = []
        for part in text.split(" "):
            result += _ASCII_WORD.findall(part) if part.isascii() else _unicode_words(part)
    if "_" in text:  # connectors alone are no word
        result = [word for word in result if word.strip("_")]
    if len(text) > MAX_TOKEN:
        result = [piece for word in result for piece in _pieces(word)]
    return result


def _pieces(word: str) -> tuple[str, ...]:
    if len(word) <= MAX_TOKEN:
        return (word,)
    return tuple(word[start : start + MAX_TOKEN] for start in range(0, len(word), MAX_TOKEN))


def _unicode_words(text: str) -> list[str]:
    matches = _CLASS_WORD.finditer(text.translate(_classes))
    return [text[slice(*match.span())] for match in matches if match["none"] is None]


@cache
def _stop_words() -> frozenset[str]:
    return frozenset(word_list("stop_words"))


@lru_cache(maxsize=1 << 16)
def term(word: str) -> str:
    """What the index knows a word as; nothing for a stop word."""
    if word[-2:] in ("'s", "’s", "＇s"):
        word = word[:-2]
    return "" if word in _stop_words() else stem(word)


def terms(text: str) -> list[str]:
    """The terms of a text in order, stop words left out."""
    return list(filter(None, map(term, words(text))))


_STEP_2 = {
    "ational": "ate", "tional": "tion", "enci": "ence", "anci": "ance", "izer": "ize",
    "bli": "ble", "alli": "al", "entli": "ent", "eli": "e", "ousli": "ous", "ization": "ize",
    "ation": "ate", "ator": "ate", "alism": "al", "iveness": "ive", "fulness": "ful",
    "ousness": "ous", "aliti": "al", "iviti": "ive", "biliti": "ble", "logi": "log",
}  # fmt: skip
_STEP_3 = {
    "icate": "ic", "ative": "", "alize": "al", "iciti": "ic", "ical": "ic", "ful": "", "ness": "",
}  # fmt: skip
_STEP_4 = (
    "ement", "ance", "ence", "able", "ible", "ment", "ant", "ent", "ion", "ism", "ate", "iti",
    "ous", "ive", "ize", "al", "er", "ic", "ou",
)  # fmt: skip
_ENDING_2 = re.compile("(?:" + "|".join(sorted(_STEP_2, key=len, reverse=True)) + ")$")
_ENDING_3 = re.compile("(?:" + "|".join(sorted(_STEP_3, key=len, reverse=True)) + ")$")
_ENDING_4 = re.compile("(?:" + "|".join(_STEP_4) + ")$")


def _shape(word: str) -> str:
    """v or c per letter; y is a vowel after a consonant. "vc" in it, counted, is Porter's m."""
    shape = ""
    for letter in word:
        vowel = letter in "aeiou" or (letter == "y" and shape[-1:] == "c")
        shape += "v" if vowel else "c"
    return shape


def _measure(stem: str) -> int:
    return _shape(stem).count("vc")


def _short(word: str) -> bool:
    """Ends in consonant, vowel, consonant, and the last is not w, x or y: *o in the paper."""
    return _shape(word).endswith("cvc") and word[-1] not in "wxy"


def _doubled(word: str) -> bool:
    return word[-1:] == word[-2:-1] and _shape(word).endswith("c")


def stem(word: str) -> str:
    """Porter's algorithm (1980), steps 1 to 5, with Martin Porter's later departures."""
    if len(word) <= 2:
        return word
    word = _plural(word)
    word = _past(word)
    if word.endswith("y") and "v" in _shape(word[:-1]):
        word = word[:-1] + "i"
    for endings, replacement in ((_ENDING_2, _STEP_2), (_ENDING_3, _STEP_3)):
        ending = endings.search(word)
        if ending and _measure(word[: ending.start()]) > 0:
            word = word[: ending.start()] + replacement[ending[0]]
    ending = _ENDING_4.search(word)
    if ending:
        rest = word[: ending.start()]
        if (ending[0] != "ion" or rest.endswith(("s", "t"))) and _measure(rest) > 1:
            word = rest
    return _final(word)


def _plural(word: str) -> str:
    if word.endswith("s"):
        if word.endswith(("sses", "ies")):
            return word[:-2]
        if not word.endswith("ss"):
            return word[:-1]
    return word


def _past(word: str) -> str:
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    rest = word[:-2] if word.endswith("ed") else word[:-3] if word.endswith("ing") else ""
    if "v" not in _shape(rest):
        return word
    if rest.endswith(("at", "bl", "iz")):
        return rest + "e"
    if _doubled(rest):
        return rest if rest[-1] in "lsz" else rest[:-1]
    return rest + "e" if _measure(rest) == 1 and _short(rest) else rest


def _final(word: str) -> str:
    if word.endswith("e"):
        rest = word[:-1]
        measure = _measure(rest)
        if measure > 1 or (measure == 1 and not _short(rest)):
            word = rest
    return word[:-1] if word.endswith("ll") and _measure(word) > 1 else word
