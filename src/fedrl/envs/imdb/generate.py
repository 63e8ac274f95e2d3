"""Movie reviews of IMDb's schema, made up: for machines without the data, and for tests.

A small grammar (`grammar.toml`) writes them. A review opens with a sentence that says nothing of
its label, goes on with sentences that praise, blame, do both or only tell, and often ends in a
verdict. The label decides how often each kind comes, and no more: a good film has its weak sides,
so that a sentiment model of a thousand reviews is right on 9 of 10, and less often on a part of
one. Praise and blame are built alike ("not boring at all" is praise), so that single words do not
tell all.

A review of a family is a function of its number: nothing has to be kept, and no order matters.
"""

from __future__ import annotations

import re
import tomllib
from importlib.resources import files

from fedrl.core.seeding import generator

POOL = 200_000
"""Reviews of a family, numbered from 0."""

SHORTEST, LONGEST = 200, 600
"""Characters of a review."""

ROOM = 160
"""Characters that its last two sentences may take."""

KINDS = ("liked", "disliked", "mixed", "told")
MIXTURE = {1: (0.58, 0.07, 0.07, 0.28), 0: (0.07, 0.58, 0.07, 0.28)}
"""How often a sentence is of each kind, by the review's label."""

VERDICT, HONEST = 0.6, 0.85
"""How often a review ends in a verdict, and how often that agrees with its label."""

GRAMMAR: dict[str, list[str]] = tomllib.loads(
    files(__package__).joinpath("grammar.toml").read_text(encoding="utf-8")
)
"""What each {symbol} can become."""

_SYMBOL = re.compile(r"\{(\w+)\}")


def write(family: int, number: int) -> tuple[str, int]:
    """The text and the label of a review."""
    draw = generator(family, "imdb/generate", round=number).random
    label = int(draw() < 0.5)
    used: dict[str, list[str]] = {symbol: [] for symbol in GRAMMAR}

    def expand(symbol: str) -> str:
        """Nothing is said twice in a review before all else of its kind was said."""
        fresh = [option for option in GRAMMAR[symbol] if option not in used[symbol]]
        if not fresh:
            used[symbol].clear()
            fresh = list(GRAMMAR[symbol])
        option = fresh[int(draw() * len(fresh))]
        used[symbol].append(option)
        return _SYMBOL.sub(lambda match: expand(match[1]), option)

    def sentence(symbol: str) -> str:
        text = expand(symbol)
        return text[0].upper() + text[1:]

    text = sentence("opening")
    enough = SHORTEST + draw() * (LONGEST - ROOM - SHORTEST)
    while len(text) < enough:
        text += " " + sentence(_kind(label, draw()))
    if draw() < VERDICT:
        agrees = draw() < HONEST
        text += " " + sentence("verdict_liked" if agrees == bool(label) else "verdict_disliked")
    return text, label


def _kind(label: int, u: float) -> str:
    """A kind of sentence for u in [0, 1)."""
    for kind, share in zip(KINDS, MIXTURE[label]):
        u -= share
        if u < 0:
            return kind
    return KINDS[-1]
