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
from functools import lru_cache

STOP_WORDS = frozenset(
    "a an and are as at be but by for if in into is it no not of on or such that the their then "
    "there these they this to was will with".split()
)

MAX_TOKEN = 255
"""Lucene's tokeniser cuts longer words into pieces of this length."""

_ASCII_WORD = re.compile(
    r"[a-z0-9_]+(?:[:.,;'](?:(?<=[a-z][:.'])(?=[a-z])|(?<=[0-9][.,;'])(?=[0-9]))[a-z0-9_]+)*"
)

# Classes: A letter, H Hebrew letter, N digit, K katakana, X connector (_), Q ' , D " , L joins
# letters (:), M joins digits (,), B joins both (.), F mark or format, J zero-width joiner,
# V emoji selector, E pictograph, O pictograph that takes a skin tone, S skin tone, R half a flag,
# U # or *, Y keycap, C South-East Asian, I one word each (Han, hiragana), blank everything else.
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

_SINGLES = {
    "'": "Q", '"': "D", "_": "X", "\u200d": "J", "\ufe0f": "V", "\u20e3": "Y", "#": "U", "*": "U",
    **dict.fromkeys(":·\u02d7\u0387\u055f\u05f4\u2027\ufe13\ufe55\uff1a", "L"),
    **dict.fromkeys(",;\u037e\u0589\u060c\u060d\u066c\u07f8\u2044\ufe10\ufe14\ufe50\ufe54", "M"),
    **dict.fromkeys("\uff0c\uff1b", "M"),
    **dict.fromkeys(".\u2018\u2019\u2024\ufe52\uff07\uff0e", "B"),
    **dict.fromkeys("\u202f\u203f\u2040\u2054\ufe33\ufe34\ufe4d\ufe4e\ufe4f\uff3f", "X"),
    **dict.fromkeys("\u3031\u3032\u3033\u3034\u3035\u309b\u309c\u30a0\u30fc\uff70", "K"),
    **dict.fromkeys("\u200c\uff9e\uff9f", "F"), "\u200b": " ", "\u066b": "N", "\u05f3": "A",
    "\u3005": "I", "\u3007": "I",
}  # fmt: skip

_PICTOGRAPHS = (
    "a9 ae 203c 2049 2122 2194-2199 21a9-21aa 231a-231b 2328 2388 23cf 23e9-23f3 23f8-23fa "
    "25aa-25ab 25b6 25c0 25fb-25fe 2600-2605 2607-2612 2614-2685 2690-2705 2708-2712 2714 2716 "
    "271d 2721 2728 2733-2734 2744 2747 274c 274e 2753-2755 2757 2763-2767 2795-2797 27a1 27b0 "
    "27bf 2934-2935 2b05-2b07 2b1b-2b1c 2b50 2b55 3030 303d 3297 3299 1f000-1f0ff 1f10d-1f10f "
    "1f12f 1f16c-1f171 1f17e-1f17f 1f18e 1f191-1f19a 1f1ad-1f1e5 1f201-1f20f 1f21a 1f22f "
    "1f232-1f23a 1f23c-1f23f 1f249-1f3fa 1f400-1f53d 1f546-1f64f 1f680-1f6ff 1f774-1f77f "
    "1f7d5-1f7ff 1f80c-1f80f 1f848-1f84f 1f85a-1f85f 1f888-1f88f 1f8ae-1f8ff 1f90c-1f93a "
    "1f93c-1f945 1f947-1fffd"
)
_SKIN_BASES = (
    "261d 26f9 270a-270d 1f385 1f3c2-1f3c4 1f3c7 1f3ca-1f3cc 1f442-1f443 1f446-1f450 1f466-1f469 "
    "1f46e 1f470-1f478 1f47c 1f481-1f483 1f485-1f487 1f4aa 1f574-1f575 1f57a 1f590 1f595-1f596 "
    "1f645-1f647 1f64b-1f64f 1f6a3 1f6b4-1f6b6 1f6c0 1f6cc 1f918-1f91c 1f91e-1f91f 1f926 "
    "1f930-1f939 1f93d-1f93e 1f9b5-1f9b6 1f9b8-1f9b9 1f9d1-1f9dd"
)
_COMPLEX = (  # line break class SA: Thai, Lao, Myanmar, Tai, Khmer, Ahom
    "e01-e3a e40-e4e e81-ebd ec0-ec4 ec6-ecd edc-edf 1000-103f 1050-108f 109a-109f 1780-17d3 "
    "17d7 17dc-17dd 1950-19df 1a20-1aad a9e0-a9ef a9fa-a9fe aa60-aac2 aadb-aadf 11700-1173f"
)


def _ranges(text: str) -> tuple[tuple[int, int], ...]:
    ends = (part.split("-") for part in text.split())
    return tuple((int(pair[0], 16), int(pair[-1], 16)) for pair in ends)


_BY_RANGE = tuple(
    (low, high, kind)
    for kind, ranges in (
        ("S", "1f3fb-1f3ff"), ("R", "1f1e6-1f1ff"), ("O", _SKIN_BASES), ("E", _PICTOGRAPHS),
        ("A", "24b6-24e9"), ("C", _COMPLEX),
        ("I", "3021-3029 3038-303b 3041-3096 309d-309f 1b000-1b11f 1f200"),
        ("I", "2e80-2fd5 3400-4dbf 4e00-9fff f900-faff 20000-3ffff"),
        ("K", "30a1-30fa 30fd-30ff 31f0-31ff 32d0-32fe 3300-3357 ff66-ff9d"),
    )
    for low, high in _ranges(ranges)
)  # fmt: skip


def _class(code: int) -> str:
    """The class of one character; Unicode's categories decide what no table names."""
    character = chr(code)
    if character in _SINGLES:
        return _SINGLES[character]
    for low, high, kind in _BY_RANGE:
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
        found = _ASCII_WORD.findall(text)
    else:  # few characters need the classes, and a blank always ends a word
        found = []
        for part in text.split(" "):
            found += _ASCII_WORD.findall(part) if part.isascii() else _unicode_words(part)
    if "_" in text:  # connectors alone are no word
        found = [word for word in found if word.strip("_")]
    if len(text) > MAX_TOKEN:
        found = [piece for word in found for piece in _pieces(word)]
    return found


def _pieces(word: str) -> tuple[str, ...]:
    if len(word) <= MAX_TOKEN:
        return (word,)
    return tuple(word[start : start + MAX_TOKEN] for start in range(0, len(word), MAX_TOKEN))


def _unicode_words(text: str) -> list[str]:
    matches = _CLASS_WORD.finditer(text.translate(_classes))
    return [text[slice(*match.span())] for match in matches if match["none"] is None]


@lru_cache(maxsize=1 << 16)
def term(word: str) -> str:
    """What the index knows a word as; nothing for a stop word."""
    if word[-2:] in ("'s", "’s", "＇s"):
        word = word[:-2]
    return "" if word in STOP_WORDS else stem(word)


def terms(text: str) -> list[str]:
    """The terms of a text in order, stop words left out."""
    return [found for found in map(term, words(text)) if found]


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
        found = endings.search(word)
        if found and _measure(word[: found.start()]) > 0:
            word = word[: found.start()] + replacement[found[0]]
    found = _ENDING_4.search(word)
    if found:
        rest = word[: found.start()]
        if (found[0] != "ion" or rest.endswith(("s", "t"))) and _measure(rest) > 1:
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
