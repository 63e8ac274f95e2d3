"""Movie reviews of IMDb's schema, made up: for machines without the data, and for tests.

A small grammar writes them. A review opens with a sentence that says nothing of its label, goes on
with sentences that praise, blame, do both or only tell, and often ends in a verdict. The label
decides how often each kind comes, and no more: a good film has its weak sides, so that a sentiment
model of a thousand reviews is right on 9 of 10, and less often on a part of one. Praise and blame
are built alike ("not boring at all" is praise), so that single words do not tell all.

A review of a family is a function of its number: nothing has to be kept, and no order matters.
"""

from __future__ import annotations

import re

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

GRAMMAR: dict[str, tuple[str, ...]] = {
    "opening": (
        "I saw this {film} {when} with {company}.",
        "My {friend} lent me this {film} {when}.",
        "This {film} is about {someone} who {does} {where}.",
        "We watched this {film} {when} {where}.",
        "The {film} begins {where}, where {someone} {does}.",
        "I had heard a lot about this {film} before I saw it {when}.",
        "{when} I finally watched this {film} with {company}.",
        "A {film} about {someone} who {does}.",
        "Before you read on, I have to say that I know the book behind this {film}.",
        "It is the story of {someone} who {does} {where}.",
    ),
    "told": (
        "The story follows {someone} who {does}.",
        "It is set {where}, and most of it takes place {time}.",
        "Then {someone} {does}, and everything changes.",
        "The rest of the {film} is about what happens next.",
        "It runs for about two hours.",
        "There is also {someone} who {does}.",
        "The {film} was made by the same people as the last one.",
        "In the end {someone} {does}, as in the book.",
        "Some of it was filmed {where}.",
        "{someone} {does} {where}, and nobody knows why.",
        "Much of the {film} is seen through the eyes of {someone}.",
        "My {friend} had read the book, I had not.",
    ),
    "liked": (
        "The {part} is {very} {good}.",
        "I found the {part} {very} {good}.",
        "The {part} and the {part} are {good}.",
        "What a {good} {film}, and how {good} the {part} is.",
        "I {loved} the {part}.",
        "The {part} is not {bad} at all.",
        "My {friend} {loved} the {part} too.",
        "The {part} was {good} from the first scene to the last.",
        "The {part} looks {good} and sounds {good}.",
        "Few things are as {good} as the {part}.",
        "Everybody in the room {loved} it.",
        "The {part} makes this {film} {very} {good}.",
    ),
    "disliked": (
        "The {part} is {very} {bad}.",
        "I found the {part} {very} {bad}.",
        "The {part} and the {part} are {bad}.",
        "What a {bad} {film}, and how {bad} the {part} is.",
        "I {hated} the {part}.",
        "The {part} is not {good} at all.",
        "My {friend} {hated} the {part} too.",
        "The {part} was {bad} from the first scene to the last.",
        "The {part} looks {bad} and sounds {bad}.",
        "Few things are as {bad} as the {part}.",
        "Everybody in the room {hated} it.",
        "The {part} makes this {film} {very} {bad}.",
    ),
    "mixed": (
        "The {part} is {good}, but the {part} is {bad}.",
        "The {part} is {bad}, but the {part} is {good}.",
        "I {loved} the {part} and {hated} the {part}.",
        "My {friend} {hated} the {part}, while I {loved} it.",
        "If the {part} were as {good} as the {part}, I would not call it {bad}.",
    ),
    "verdict_liked": (
        "All in all a {good} {film}, and I will watch it again.",
        "I can recommend it to {everybody}.",
        "See it if you can, it is worth every minute.",
        "In short, {good} and {good}.",
        "I gave it a high score and would do so again.",
        "It is one of the best I have seen in years.",
        "I left with a smile.",
    ),
    "verdict_disliked": (
        "All in all a {bad} {film}, and I will not watch it again.",
        "I cannot recommend it to {everybody}.",
        "Do not see it, it is a waste of every minute.",
        "In short, {bad} and {bad}.",
        "I gave it a low score and would do so again.",
        "It is one of the worst I have seen in years.",
        "I left with a headache.",
    ),
    "film": ("film", "movie", "picture"),
    "part": (
        "plot", "acting", "cast", "music", "script", "camera work", "ending", "dialogue", "pacing",
        "lead actor", "lead actress", "humour", "opening scene", "last act", "villain", "romance",
        "costume design", "sound", "editing", "main character", "direction", "story", "middle part",
        "chase through the city",
    ),
    "good": (
        "good", "great", "brilliant", "funny", "clever", "moving", "charming", "convincing",
        "beautiful", "thrilling", "surprising", "warm", "perfect", "wonderful", "gripping",
        "memorable", "witty", "superb", "touching", "fresh", "sincere", "graceful",
    ),
    "bad": (
        "bad", "boring", "terrible", "dull", "silly", "wooden", "predictable", "dreadful", "tired",
        "clumsy", "hollow", "tiresome", "pointless", "lazy", "messy", "weak", "hideous", "stupid",
        "forgettable", "painful", "flat", "cheap",
    ),
    "very": ("very", "really", "quite", "rather", "truly", "so", "simply"),
    "loved": ("loved", "enjoyed", "liked", "adored", "admired"),
    "hated": ("hated", "disliked", "could not stand", "regretted", "despised"),
    "someone": (
        "a young teacher", "an old sailor", "a doctor", "a pair of brothers", "a quiet farmer",
        "a retired detective", "a singer", "a lonely boy", "a thief", "an actress", "a soldier",
        "a widow", "a reporter", "a family of five", "a painter", "a girl from the north",
    ),
    "does": (
        "comes home after the war", "finds an old letter", "loses a bet", "leaves for the coast",
        "meets a stranger", "looks for a lost dog", "moves into an empty house",
        "takes over the family shop", "hides a large sum of money", "waits for the last train",
        "learns to dance", "keeps a secret", "crosses the desert", "writes one more song",
    ),
    "where": (
        "in a small town", "by the sea", "in the mountains", "in a big city", "on a farm",
        "on an island", "in an old hotel", "at the border", "in a school", "on a night train",
        "near the harbour",
    ),
    "time": (
        "at night", "in one long summer", "during the war", "in winter", "over ten years",
        "on a single day",
    ),
    "when": (
        "last night", "last week", "on Sunday", "yesterday", "years ago", "on a rainy evening",
        "during the holidays", "this morning",
    ),
    "company": (
        "my sister", "my parents", "an old friend", "my children", "two colleagues",
        "my neighbour", "nobody else in the room", "my brother",
    ),
    "friend": ("sister", "brother", "father", "mother", "friend", "wife", "husband", "neighbour"),
    "everybody": ("everybody", "anyone", "my friends", "families", "you", "fans of the book"),
}  # fmt: skip

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
