"""Movie reviews for federations: every client is a platform with its own labelled reviews.

A review is a text and whether its writer liked the film. Clients write the beginnings of their
reviews on with a language model; a sentiment model that each fits to its own labels says how
positive that came out (`feedback.sentiment`).

    train    a client's reviews to take prompts from and to fit its sentiment model to
    held     its reviews for evaluation only
    public   reviews of nobody, for warm starts; chosen by the family, so that a model which was
             warm-started on them has seen no client's review, whatever the run's seed

Nothing is in two of them, by its id or by its text, and a world where something is cannot be built:
the genuine data holds 422 texts a second time, which count once here. The run's seed deals the
reviews to the clients; labels fall as they fall.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from fedrl.core import seeding
from fedrl.core.limits import at_least_one, not_negative
from fedrl.core.types import FilePath, UserError
from fedrl.datasets import imdb
from fedrl.datasets.fetch import source_folder
from fedrl.envs.imdb import generate
from fedrl.envs.reviews import OwnReviews, Review, Reviews, ReviewsWorld
from fedrl.partition import OwnFolders
from fedrl.partition import Settings as Partition

_BREAK = re.compile(r"<\s*/?\s*(?:br|p|i|b|em|hr)\s*/?\s*>", re.IGNORECASE)


@dataclass(frozen=True)
class Settings:
    name: Literal["imdb"] = "imdb"
    # "generated", "imdb" (what `fedrl data imdb` gets), or a folder with its files
    source: FilePath = "generated"
    # reviews per client; where clients bring their own, all that each has
    reviews: int = 1000
    # reviews of fewer characters are left out
    shortest: int = 200
    # share of each client's reviews that is only evaluated on; 0, none, where clients bring their
    # own
    held_out: float = 0.2
    # reviews that belong to no client, for warm starts
    public: int = 0
    # which reviews are public, and which family of generated ones; runs with other seeds share both
    family: int = 0

    def __post_init__(self) -> None:
        if self.reviews < 2:
            raise UserError(f"world.reviews is {self.reviews}; it must be at least 2")
        if not 0 <= self.held_out < 1:
            raise UserError(f"world.held_out is {self.held_out}; it is a share between 0 and 1")
        at_least_one(self, "world.", "shortest")
        not_negative(self, "world.", "public", "family")


class Imdb:
    """A `ReviewsWorld`."""

    def __init__(self, settings: Settings, clients: int, seed: int) -> None:
        if not settings.held_out:
            raise UserError(f"world.held_out is {settings.held_out}; it is a share above 0 here")
        self.settings, self.clients = settings, clients
        count, review = _source(settings)
        taken: set[str] = set()
        order = seeding.generator(settings.family, "imdb/public").permutation(count).tolist()
        self.public = _draw(settings, settings.public, order, review, taken)
        order = seeding.generator(seed, "imdb/reviews").permutation(count).tolist()
        dealt = _draw(settings, clients * settings.reviews, order, review, taken)
        shares = [dealt[k * settings.reviews :][: settings.reviews] for k in range(clients)]
        kept = trained(settings.held_out, settings.reviews)
        self.train = tuple(share[:kept] for share in shares)  # dealt at random, so this split is
        self.held = tuple(share[kept:] for share in shares)
        check_apart(self)


def trained(held_out: float, count: int) -> int:
    """How many of so many reviews are trained on: all but one at most, unless there is but one or
    none is to be held out."""
    most = count - 1 if held_out else count
    return max(min(round((1 - held_out) * count), most), min(count, 1))


def check_apart(world: ReviewsWorld) -> None:
    """No review is in two places, nor twice in one: neither under its id nor its text again."""
    owner: dict[str, str] = {}
    for place, reviews in _places(world):
        for review in reviews:
            for name in (f"id {review.id}", review.text):
                if name in owner:
                    raise UserError(
                        f"review {review.id} is in the {owner[name]} and in the {place}; "
                        "nothing may be evaluated on that was trained on"
                    )
                owner[name] = place


def _places(world: ReviewsWorld) -> Iterable[tuple[str, Reviews]]:
    yield "public reviews", world.public
    for client, (train, held) in enumerate(zip(world.train, world.held)):
        yield f"training reviews of client {client}", train
        yield f"held-out reviews of client {client}", held


def clean(text: str) -> str:
    """The genuine reviews come with their HTML line breaks, and some with entities."""
    return " ".join(html.unescape(_BREAK.sub(" ", text)).split())


def _source(settings: Settings) -> tuple[int, Callable[[int], Review]]:
    """How many reviews there are, and the one with a number: generated ones are written on call."""
    if settings.source == "generated":
        return generate.POOL, partial(_generated, settings.family)
    folder = source_folder(settings.source, "imdb")
    genuine = [review for split in imdb.SPLITS for review in imdb.load(folder, split)]
    return len(genuine), lambda number: _genuine(genuine[number])


def _generated(family: int, number: int) -> Review:
    text, label = generate.write(family, number)
    return Review(f"generated/{family}/{number}", text, label)


def _genuine(review: imdb.Review) -> Review:
    return Review(review.id, clean(review.text), review.label)


def _draw(
    settings: Settings,
    count: int,
    order: list[int],
    review: Callable[[int], Review],
    taken: set[str],
) -> Reviews:
    """The first `count` reviews in this order that are long enough and not `taken`; now they are.

    More clients of one seed begin with the same reviews.
    """
    drawn: list[Review] = []
    for number in order:
        if len(drawn) == count:
            break
        candidate = review(number)
        if len(candidate.text) >= settings.shortest and candidate.text not in taken:
            taken.add(candidate.text)
            drawn.append(candidate)
    if len(drawn) < count:
        raise UserError(
            f"world.reviews is {settings.reviews} for every client and world.public "
            f"{settings.public}, but there are only {len(taken)} different reviews of "
            f"world.shortest = {settings.shortest} characters or more: lower one of these"
        )
    return tuple(drawn)


World = Imdb
"""What a recipe builds: reviews that are dealt out to clients."""


def OwnWorld(
    settings: Settings, clients: int, seed: int, folders: OwnFolders, chosen: Partition
) -> OwnReviews:
    """The same of clients with `folders` of their own."""
    from fedrl.envs.imdb.own import own_reviews

    return own_reviews(settings, seed, folders, chosen)
