"""Reviews that clients bring: a platform's folder with its own labelled reviews, all of them.

    north/imdb/reviews.jsonl    {"text": …, "label": 0 or 1}, a line each (or .jsonl.gz)

or train.jsonl and test.jsonl, or the published tree `train/pos/1_9.txt`: whatever is there is the
client's. What lies apart as `test` is held out; where nothing does, `world.held_out` of all is, by
the run's seed. Left out are only texts shorter than `world.shortest` and repetitions of a text that
is there already, in `test` before all. The coordinator's `public`
looks the same: the model is evaluated on prompts of what is held out there, by a sentiment model of
the rest, with the mean of the clients' λ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fedrl.core import seeding
from fedrl.core.types import UserError
from fedrl.datasets import imdb
from fedrl.envs.imdb.world import Settings, clean, trained
from fedrl.envs.reviews import OwnReviews, Review, SplitReviews
from fedrl.partition import OwnFolders
from fedrl.partition import Settings as Partition


def own_reviews(
    settings: Settings, seed: int, folders: OwnFolders, chosen: Partition
) -> OwnReviews:
    def opened(owner: int) -> SplitReviews:
        nobody = owner == folders.clients
        with folders.naming(None if nobody else owner):
            folder = folders.public if nobody else folders.of(owner)
            return open_folder(settings, folder / settings.source, seed)

    return OwnReviews(folders.clients, opened, float(chosen.size), chosen.held_out)


def open_folder(settings: Settings, folder: Path, seed: int) -> SplitReviews:
    found = imdb.load_own(folder)
    held = _texts(settings, found.test, {})
    texts = _texts(settings, found.reviews, held)
    if not texts:
        raise UserError(
            f"{folder} holds no review of world.shortest = {settings.shortest} characters or more"
        )
    reviews = list(texts.values())
    if held:
        return SplitReviews(tuple(reviews), tuple(held.values()))
    order = seeding.generator(seed, "imdb/split").permutation(len(reviews)).tolist()
    kept = trained(settings.held_out, len(reviews))
    shuffled = tuple(reviews[place] for place in order)
    return SplitReviews(shuffled[:kept], shuffled[kept:])


def _texts(
    settings: Settings, reviews: Sequence[imdb.Review], taken: Mapping[str, Review]
) -> dict[str, Review]:
    """Each text once, if it is long enough and not `taken`."""
    texts: dict[str, Review] = {}
    for found in reviews:
        text = clean(found.text)
        if len(text) >= settings.shortest and text not in taken:
            texts.setdefault(text, Review(found.id, text, found.label))
    return texts
