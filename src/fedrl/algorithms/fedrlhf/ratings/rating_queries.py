"""Which questions a client puts to its person, and what it remembers of the answers.

Every round some movies of the client's training shelf are drawn to be rated and some pairs to be
compared, with the scores of the policy that was just received. A rating's score is shown in half
stars and is part of the question's name, because the answer is about that score; an answer to a
comparison holds whatever the scores were. What was answered is not asked again. What was not is
asked again in the next round: a person may take longer than a round.

A living person's answers are private and may be taken back, rounds later. So a client's state,
which a run's checkpoints stand for, does not hold them but only which questions were asked: all of
these are asked again in every round, and the answers that stand are read from the person's folder.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from fedrl.algorithms.fedrlhf.ratings.client_data import Holding
from fedrl.algorithms.fedrlhf.ratings.metrics import EDGE
from fedrl.core import seeding
from fedrl.core.types import Tensors
from fedrl.feedback.rating_kernels import Answers
from fedrl.feedback.records import Question, Source

WAITING = 200
"""Questions that may wait for a person's answer; of more the oldest are dropped."""


class Asked(NamedTuple):
    """Places in the client's training examples; `second` is −1 and `score` in stars to rate."""

    first: int
    second: int
    score: float


class Memory(NamedTuple):
    """Answers by question, and the questions that wait, the newest first."""

    answered: dict[Asked, float]
    waiting: list[Asked]

    def save(self) -> Tensors:
        return _saved([*self.answered.items(), *((one, np.nan) for one in self.waiting)])

    def save_questions(self) -> Tensors:
        """Without any answer: all questions wait when they are restored."""
        return _saved([(one, np.nan) for one in (*self.answered, *self.waiting)])


def _saved(rows: Sequence[tuple[Asked, float]]) -> Tensors:
    """NaN for a question that waits."""
    return {
        "first": np.array([one.first for one, _ in rows], np.int64),
        "second": np.array([one.second for one, _ in rows], np.int64),
        "score": np.array([one.score for one, _ in rows], np.float64),
        "value": np.array([value for _, value in rows], np.float64),
    }


def restore(kept: Tensors | None) -> Memory:
    memory = Memory({}, [])
    if kept is not None:
        columns = (kept[name].tolist() for name in ("first", "second", "score", "value"))
        for first, second, score, value in zip(*columns):
            if np.isnan(value):
                memory.waiting.append(Asked(first, second, score))
            else:
                memory.answered[Asked(first, second, score)] = value
    return memory


def answers(memory: Memory) -> Answers:
    """As the reward model reads them: scores are counted from the edge of "high"."""
    rows = list(memory.answered)
    second = np.array([row.second for row in rows], np.int64)
    score = np.array([row.score for row in rows], np.float32)
    return Answers(
        np.array([row.first for row in rows], np.int64),
        second,
        np.where(second < 0, score - np.float32(EDGE), np.float32(0)),
        np.array(list(memory.answered.values()), np.float32),
    )


def ask(
    holding: Holding,
    memory: Memory,
    stars: np.ndarray,
    counts: tuple[int, int],
    source: Callable[[int], Source],
    seed: int,
) -> Memory:
    """Ask this client's users, but for those whose answers have no weight (λ = 0).

    `stars` [n] are the model's scores, `source(user)` answers.
    """
    answered = dict(memory.answered)
    waiting: list[Asked] = []
    for row, user in enumerate(holding.users.tolist()):
        own = np.flatnonzero(holding.train.user == row)
        if not holding.weight[own].any():
            continue
        late = [one for one in memory.waiting if holding.train.user[one.first] == row]
        new = drawn(own, stars, counts, seeding.generator(seed, "questions", client=user))
        asked = list(dict.fromkeys(one for one in (*new, *late) if one not in answered))
        names = {one: question(holding, one, stars) for one in asked}
        person = source(user)
        said = person.answers(list(names.values()), seeding.derive(seed, "answers", client=user))
        values = {answer.question: answer.value for answer in said}
        answered |= {one: values[put.id] for one, put in names.items() if put.id in values}
        waiting += [one for one, put in names.items() if put.id not in values][:WAITING]
    return Memory(answered, waiting)


def drawn(
    own: np.ndarray, stars: np.ndarray, counts: tuple[int, int], random: np.random.Generator
) -> list[Asked]:
    """Movies to rate, and pairs of two different ones to compare."""
    rate, compare = counts
    some = random.permutation(own)[:rate]
    asked = [Asked(int(i), -1, half_stars(stars[i])) for i in some]
    if len(own) > 1:
        pairs: Sequence[np.ndarray] = [random.choice(own, 2, replace=False) for _ in range(compare)]
        asked += [Asked(int(i), int(j), 0.0) for i, j in pairs]
    return asked


def half_stars(score: float) -> float:
    return float(np.clip(np.round(2 * score) / 2, 0.5, 5.0))


def question(holding: Holding, asked: Asked, stars: np.ndarray) -> Question:
    if asked.second < 0:
        key = holding.key(asked.first)
        name = f"rate/{key}/{asked.score:g}"
        return Question(name, "rate", (key,), (holding.text(asked.first),), (asked.score,))
    both = asked.first, asked.second
    keys = holding.key(both[0]), holding.key(both[1])
    items = holding.text(both[0]), holding.text(both[1])
    scores = float(stars[both[0]]), float(stars[both[1]])
    return Question(f"compare/{keys[0]}/{keys[1]}", "compare", keys, items, scores)
