"""A made-up catalogue in the genuine schema: any number of products, nothing to download.

Product i of a seed is always the same, whatever the size of the catalogue, so a larger catalogue
begins with a smaller one. Chance comes in blocks of rows of uniform numbers, one row per product.

Half of the products come in families of four neighbours that share brand, kind and most of what is
said of them, and differ in an attribute, in their options and in the price: the right one has to be
told from its sisters. All that an instruction asks for is in the text that the search reads.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

from fedrl.core.seeding import derive, generator
from fedrl.envs.webshop.product import Product
from fedrl.envs.webshop.vocabulary import Kind, vocabulary

FAMILY = 4
BLOCK = 256 * FAMILY
DRAWS = 80
OWN = 48  # the first draw of a row that is not shared with the family
ALIKE = 0.5  # share of the families whose members are variations of one product
GOALS = 0.45  # share of the products with an instruction
MISSING_PRICES = 0.02
PRICE_RANGES = 0.09
OPTION_COUNTS = (0.36, 0.70, 0.96)  # cumulated: none, one, two, else three kinds of options

ENDINGS = (" - {}", ", {}", " ({})", "")
"""How a title goes on with the further qualities."""

_LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_ASINS = 36**8
_STRIDE = 1_742_962_718_513  # prime to 36, near the golden section of _ASINS: no asin comes twice

Item = TypeVar("Item")


class Chance:
    """Uniform numbers in a fixed order, and the choices made with them."""

    __slots__ = ("_row", "_used")

    def __init__(self, row: Sequence[float], start: int = 0) -> None:
        self._row = row
        self._used = start

    def uniform(self) -> float:
        self._used += 1
        return self._row[self._used - 1]

    def among(self, items: Sequence[Item]) -> Item:
        return items[int(self.uniform() * len(items))]

    def several(self, items: Sequence[Item], count: int) -> list[Item]:
        """`count` different ones, in random order."""
        left = list(items)
        return [left.pop(int(self.uniform() * len(left))) for _ in range(min(count, len(left)))]


class Draft(NamedTuple):
    """What the members of a family share."""

    kind: Kind
    brand: str
    series: str
    qualities: list[str]
    features: list[str]
    purposes: list[str]
    options: dict[str, tuple[str, ...]]
    price: float


def generate(count: int, seed: int = 0) -> list[Product]:
    """The first `count` products of the catalogue with this seed."""
    return list(products(count, seed))


def products(count: int, seed: int = 0) -> Iterator[Product]:
    """The same one by one, for catalogues that need not be in memory."""
    first = derive(seed, "webshop asin") % _ASINS
    for block in range(math.ceil(count / BLOCK)):
        rows = generator(seed, "webshop product", round=block).random((BLOCK, DRAWS)).tolist()
        for place in range(min(BLOCK, count - block * BLOCK)):
            number = block * BLOCK + place
            asin = asin_of((first + number * _STRIDE) % _ASINS)
            yield _product(asin, rows[place - place % FAMILY], rows[place], place % FAMILY)


def asin_of(number: int) -> str:
    letters = ""
    for _ in range(8):
        number, digit = divmod(number, 36)
        letters += _LETTERS[digit]
    return "B0" + letters


def _product(asin: str, eldest: Sequence[float], row: Sequence[float], member: int) -> Product:
    own = Chance(row, OWN)
    if member and eldest[OWN - 1] < ALIKE:
        draft = _varied(_draft(Chance(eldest)), own)
    else:
        draft = _draft(Chance(row))
    attributes = (*draft.qualities, *draft.features, *draft.purposes)
    asked = _asked(draft, own)
    instruction = _instruction(draft, asked) if own.uniform() < GOALS else ""
    return Product(
        asin=asin,
        title=_title(draft, own),
        description=_description(draft, own),
        bullets=_bullets(draft, own),
        options=draft.options,
        pricing=_pricing(draft.price, own),
        category=draft.kind.department,
        query=draft.kind.query,
        path=draft.kind.path,
        attributes=attributes,
        instruction=instruction,
        instruction_attributes=asked if instruction else (),
    )


def _draft(chance: Chance) -> Draft:
    kinds, names, _, _ = vocabulary()
    kind = chance.among(kinds)
    brand = "".join(chance.among(names[part]) for part in ("starts", "middles", "ends"))
    series = f"{chance.among(names['series']).capitalize()} {100 + int(900 * chance.uniform())}"
    price = kind.low * (kind.high / kind.low) ** chance.uniform()
    return Draft(
        kind,
        brand.capitalize(),
        series,
        chance.several(kind.qualities, 2 + int(3 * chance.uniform())),
        chance.several(kind.features, 1 + int(2 * chance.uniform())),
        chance.several(kind.purposes, 1 + int(2 * chance.uniform())),
        _options(kind, chance),
        price,
    )


def _options(kind: Kind, chance: Chance) -> dict[str, tuple[str, ...]]:
    where = chance.uniform()
    count = sum(where > edge for edge in OPTION_COUNTS)
    chosen = set(chance.several(range(len(kind.options)), count))
    return {
        name: _values(pool, chance)
        for place, (name, pool) in enumerate(kind.options)
        if place in chosen
    }


def _values(pool: Sequence[str], chance: Chance) -> tuple[str, ...]:
    """Two to six of the pool, in its order."""
    chosen = set(chance.several(range(len(pool)), 2 + int(5 * chance.uniform() ** 2)))
    return tuple(value for place, value in enumerate(pool) if place in chosen)


def _varied(draft: Draft, chance: Chance) -> Draft:
    """A sister: another quality or feature, other values of an option, another price."""
    kind, qualities, features = draft.kind, list(draft.qualities), list(draft.features)
    if chance.uniform() < 0.6:
        others = [quality for quality in kind.qualities if quality not in qualities]
        qualities[int(chance.uniform() * len(qualities))] = chance.among(others)
    else:
        others = [feature for feature in kind.features if feature not in features]
        features[int(chance.uniform() * len(features))] = chance.among(others or features)
    options = dict(draft.options)
    if options:
        name = chance.among(tuple(options))
        options[name] = _values(dict(kind.options)[name], chance)
    return draft._replace(
        qualities=qualities,
        features=features,
        options=options,
        price=draft.price * (0.65 + 0.9 * chance.uniform()),
    )


def _pricing(price: float, chance: Chance) -> tuple[float, ...]:
    fate = chance.uniform()
    ending = chance.among((0.99, 0.95, 0.49, 0.0))
    shown = round(max(math.floor(price), 2) + ending, 2)
    if fate < MISSING_PRICES:
        return ()
    if fate < MISSING_PRICES + PRICE_RANGES:
        return (shown, round(shown * 1.25 + 2.0, 2))
    return (shown,)


def _asked(draft: Draft, chance: Chance) -> tuple[str, ...]:
    """What an instruction names: one or two qualities, at times a feature and a purpose."""
    asked = draft.qualities[: 1 + int(2 * chance.uniform())]
    asked += draft.features[: int(1.7 * chance.uniform())]
    asked += draft.purposes[: int(1.7 * chance.uniform())]
    return tuple(asked)


def _instruction(draft: Draft, asked: Sequence[str]) -> str:
    before = ", ".join(name for name in asked if name in draft.qualities)
    inside = ", ".join(name for name in asked if name in draft.features)
    after = ", ".join(name for name in asked if name in draft.purposes)
    text = f"Find me {before} {draft.kind.query}"
    text += f" with {inside}" if inside else ""
    return text + (f" for {after}" if after else "")


def _title(draft: Draft, chance: Chance) -> str:
    kind = draft.kind
    lead = f"{draft.brand} {draft.series} {draft.qualities[0].title()} {kind.noun.title()}"
    feature, purpose = draft.features[0].title(), draft.purposes[0].title()
    rest = ", ".join(quality.title() for quality in draft.qualities[1:])
    return f"{lead} with {feature} for {purpose}{chance.among(ENDINGS).format(rest)}"


def _description(draft: Draft, chance: Chance) -> str:
    _, _, sentences, closings = vocabulary()
    choices = (sentences["openings"], sentences["middles"], closings[draft.kind.department])
    text = " ".join(map(chance.among, choices))
    return _filled(text, draft, draft.features, draft.purposes)


def _bullets(draft: Draft, chance: Chance) -> tuple[str, ...]:
    chosen = chance.several(vocabulary().sentences["bullets"], 3 + int(3 * chance.uniform()))
    return tuple(_filled(text, draft, draft.features[-1:], draft.purposes[-1:]) for text in chosen)


def _filled(text: str, draft: Draft, features: Sequence[str], purposes: Sequence[str]) -> str:
    first, *others = draft.qualities
    feature = " and ".join(features)
    return text.format(
        noun=draft.kind.noun,
        query=draft.kind.query,
        series=draft.series,
        brand=draft.brand,
        quality=first,
        Quality=first.capitalize(),
        feature=feature,
        Feature=feature.capitalize(),
        purpose=" and ".join(purposes),
        others=" and ".join(others),
        other=others[0],
    )
