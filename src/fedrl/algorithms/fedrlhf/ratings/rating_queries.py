"""Which queries a client puts to its person, and what it remembers of the answers.

Every round some of the movies that the client trains on are drawn to be rated and some pairs to be
compared, with the scores of the policy that was just received. A rating's score is shown in half
stars, a guess to a living person in tenths, and is part of the query's name, because the answer is
about that score; an answer to a comparison holds whatever the scores were. What was answered is not
asked again. What was not is asked again in the next round: a person may take longer than a round.
People give few answers: `most` is how many a person is asked for in all.

A living person's answers are private and may be taken back, rounds later. So a client's state,
which a run's checkpoints stand for, does not hold them but only which queries were asked: all of
these are asked again in every round, and the answers that stand are read from the person's folder.
Guesses that wait while the model learns something new are none of today's, and those that wait
while an answer is deleted may follow from it: the next round drops them, and asks about their
movies with its own scores. Who was looking at one meanwhile is heard all the same, but not after a
deletion.

A model that has learned nothing scores all movies alike, which is no guess; nor is a score that all
questions of a person show, whatever the model thinks of movies that were not asked about. A person
may come many rounds later: until shown scores differ, only `ALIKE` movies are put to them, so that
there are some left about which the model can make a guess.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from fedrl.algorithms.fedrlhf.ratings.client_data import ClientRatings
from fedrl.algorithms.fedrlhf.ratings.metrics import EDGE
from fedrl.core import seeding
from fedrl.core.types import Tensors
from fedrl.feedback.queries import FeedbackSource, Query
from fedrl.feedback.rating_kernels import Answers
from fedrl.feedback.sources.live import LivePerson
from fedrl.feedback.store import Given

WAITING = 200
"""Queries that may wait for a person's answer; of more the oldest are dropped."""
ALIKE = 20
"""Movies that a living person is asked about while all have one score."""


class RatingQuery(NamedTuple):
    """Places in the client's training examples; `second` is −1 and `score` in stars to rate."""

    first: int
    second: int
    score: float


class QueryMemory(NamedTuple):
    """Answers by query, and the queries that wait, the newest first.

    `given` is what living people said of it, by whom: it is never saved.
    """

    answered: dict[RatingQuery, float]
    waiting: list[RatingQuery]
    given: Given = MappingProxyType({})

    def save(self) -> Tensors:
        return _saved([*self.answered.items(), *((query, np.nan) for query in self.waiting)])

    def save_queries(self) -> Tensors:
        """Without any answer: all queries wait when they are restored."""
        return _saved((query, np.nan) for query in (*self.answered, *self.waiting))


def _saved(rows: Iterable[tuple[RatingQuery, float]]) -> Tensors:
    """A column for each field, and for the answers: NaN for a query that waits."""
    table = np.array([(*query, value) for query, value in rows], np.float64).reshape(-1, 4)
    return {
        "first": table[:, 0].astype(np.int64),
        "second": table[:, 1].astype(np.int64),
        "score": table[:, 2].copy(),
        "value": table[:, 3].copy(),
    }


def restore(kept: Tensors | None) -> QueryMemory:
    memory = QueryMemory({}, [])
    if kept is not None:
        columns = (kept[name].tolist() for name in ("first", "second", "score", "value"))
        for first, second, score, value in zip(*columns):
            if np.isnan(value):
                memory.waiting.append(RatingQuery(first, second, score))
            else:
                memory.answered[RatingQuery(first, second, score)] = value
    return memory


def answer_arrays(memory: QueryMemory) -> Answers:
    """As the reward model reads them: scores are counted from the edge of "high"."""
    first, second, score, value = _saved(memory.answered.items()).values()
    above = np.where(second < 0, score.astype(np.float32) - np.float32(EDGE), np.float32(0))
    return Answers(first, second, above, value.astype(np.float32))


def ask(
    data: ClientRatings,
    memory: QueryMemory,
    stars: np.ndarray,
    counts: tuple[int, int],
    source: Callable[[int], FeedbackSource],
    seed: int,
    among: np.ndarray | None = None,
    most: int = 0,
    once: bool = False,
) -> QueryMemory:
    """Ask this client's users, but for those whose answers have no weight (λ = 0).

    `stars` [n] are the model's scores, `source(user)` answers. New queries are about all places, or
    about those `among` which there are. A person is asked `most` queries in all, if that is not 0;
    with `once` no movie's score is asked about again.
    """
    answered, given = dict(memory.answered), dict(memory.given)
    waiting: list[RatingQuery] = []
    before = _by_user(data, (*memory.answered, *memory.waiting))
    for row, user in enumerate(data.users.tolist()):
        own = np.flatnonzero(data.train.user == row)
        if not data.weight[own].any():
            continue
        person, told_apart = source(user), tells_apart(stars[own])
        late = [query for query in memory.waiting if data.train.user[query.first] == row]
        own = own if among is None else own[np.isin(own, among)]
        living = person if isinstance(person, LivePerson) else None
        lost = _lost(data, late, stars, living.still_asked()) if living else []
        late = [query for query in late if query not in lost]
        late += _answered_late(data, row, late, living) if living else []
        put = [query for query in before.get(row, []) if query not in lost]
        room = max(most - len(put), 0) if most else sum(counts) + len(lost)
        rated = {query.first for query in put if query.second < 0} if once else set()
        fresh = own[[place not in rated for place in own.tolist()]] if rated else own
        random = seeding.generator(seed, "questions", client=user)
        new = draw_queries(own, stars, counts, random, fresh)
        if lost:  # these keep their room
            new = new[: max(room - len(lost), 0)]
            new += [query._replace(score=half_stars(stars[query.first])) for query in lost]
        shown = {query: query.score for query in (*put, *new[:room]) if query.second < 0}
        guessed = told_apart and tells_apart(np.array(list(shown.values())))
        if living and not guessed:
            names = {to_query(data, query, stars).id for query in put if query.second < 0}
            new = _fewer_ratings(new, max(ALIKE - len(names - living.declined()), 0))
        new = new[:room]
        if living and guessed:
            new = _in_tenths(new, put, stars)
        asked = dict.fromkeys(query for query in (*new, *late) if query not in answered)
        if not asked:
            continue
        worded = {query: to_query(data, query, stars, guessed) for query in asked}
        said = living.given() if living else {}  # what comes from now on waits a round
        seed_of_answers = seeding.derive(seed, "answers", client=user)
        answers = person.answers(list(worded.values()), seed_of_answers)
        values = {answer.question: answer.value for answer in answers}
        for who, mine in said.items():
            heard = {name: value for name, value in mine.items() if name in values}
            given[who] = {**given.get(who, {}), **heard}
        answered |= {query: values[put.id] for query, put in worded.items() if put.id in values}
        waiting += [query for query, put in worded.items() if put.id not in values][:WAITING]
    return QueryMemory(answered, waiting, given)


def _lost(
    data: ClientRatings, late: Iterable[RatingQuery], stars: np.ndarray, known: set[str]
) -> list[RatingQuery]:
    """Ratings that the person's folder no longer holds."""
    return [
        query for query in late
        if query.second < 0 and to_query(data, query, stars).id not in known
    ]  # fmt: skip


def _answered_late(
    data: ClientRatings, row: int, late: Sequence[RatingQuery], living: LivePerson
) -> list[RatingQuery]:
    """Ratings that were dropped and are answered since."""
    own = np.flatnonzero(data.train.user == row).tolist()
    places = {data.key(place): place for place in own}
    found = [
        RatingQuery(places[query.keys[0]], -1, query.scores[0])
        for query in living.answered_late()
        if query.keys[0] in places
    ]
    return [query for query in found if query not in late]


def _fewer_ratings(queries: Sequence[RatingQuery], most: int) -> list[RatingQuery]:
    """At most so many of the movies to rate, and all pairs."""
    ratings = [query for query in queries if query.second < 0]
    return ratings[:most] + [query for query in queries if query.second >= 0]


def _by_user(data: ClientRatings, queries: Sequence[RatingQuery]) -> dict[int, list[RatingQuery]]:
    """The same queries by whose they are."""
    found: dict[int, list[RatingQuery]] = {}
    for query in queries:
        found.setdefault(int(data.train.user[query.first]), []).append(query)
    return found


def draw_queries(
    own: np.ndarray,
    stars: np.ndarray,
    counts: tuple[int, int],
    random: np.random.Generator,
    fresh: np.ndarray | None = None,
) -> list[RatingQuery]:
    """Movies to rate, of the `fresh` ones if these are named, and pairs of two different ones to
    compare."""
    ratings, preferences = counts
    rated = random.permutation(own if fresh is None else fresh)[:ratings]
    queries = [RatingQuery(int(i), -1, half_stars(stars[i])) for i in rated]
    if len(own) > 1:
        pairs = (random.choice(own, 2, replace=False) for _ in range(preferences))
        queries += [RatingQuery(int(i), int(j), 0.0) for i, j in pairs]
    return queries


def half_stars(score: float) -> float:
    return float(np.clip(np.round(2 * score) / 2, 0.5, 5.0))


def _in_tenths(
    new: Sequence[RatingQuery], put: Iterable[RatingQuery], stars: np.ndarray
) -> list[RatingQuery]:
    """Ratings with a score in tenths; what was put before with the same half stars as it was."""
    known = {(query.first, half_stars(query.score)): query for query in put if query.second < 0}
    return [
        known.get((query.first, query.score), query._replace(score=tenths(stars[query.first])))
        if query.second < 0
        else query
        for query in new
    ]


def tenths(score: float) -> float:
    return float(np.clip(np.round(10 * float(score)) / 10, 0.5, 5.0))


def tells_apart(stars: np.ndarray) -> bool:
    """Whether a person sees any difference between these scores; of one there is none to see."""
    return len({half_stars(score) for score in stars.tolist()}) != 1 or len(stars) == 1


def to_query(
    data: ClientRatings, query: RatingQuery, stars: np.ndarray, guessed: bool = True
) -> Query:
    """As a person is asked it."""
    if query.second < 0:
        key, item = data.key(query.first), data.text(query.first)
        name, score = f"rate/{key}/{query.score:g}", (query.score,)
        return Query(name, "rate", (key,), (item,), score, guessed=guessed)
    places = query.first, query.second
    keys, items = (tuple(map(word, places)) for word in (data.key, data.text))
    scores = tuple(float(stars[place]) for place in places)
    return Query(f"compare/{keys[0]}/{keys[1]}", "compare", keys, items, scores)
