"""Which of these two texts is better? What a client that writes asks its person, and hears.

Both texts go on from the same prompt, so that the answer is about what the model added. A query is
named by its texts: asked again it is the same query. Queries and answers lie in the client's
private folder (`feedback.store`) and nowhere else: not in the client's state, which a run's
checkpoints stand for. What was not answered waits there, and a round uses every answer that stands
by then, also of rounds long ago, because it is about texts and not about a model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from fedrl.core.types import Shareable, UserError
from fedrl.feedback.preference_model import Comparison
from fedrl.feedback.queries import Query
from fedrl.feedback.store import Folder, client_folder


def preference_queries(
    texts: Sequence[str], scores: Sequence[float], prompts: Sequence[str] = ()
) -> list[Query]:
    """About texts 0 and 1, 2 and 3, …, unless they are equal; `scores` are what is expected.

    `prompts`, one for each pair, are what a person sees apart from what the model wrote.
    """
    queries = []
    for i in range(0, len(texts) - 1, 2):
        if texts[i] != texts[i + 1]:
            keys, items = (_key(texts[i]), _key(texts[i + 1])), (texts[i], texts[i + 1])
            expected = float(scores[i]), float(scores[i + 1])
            prompt = prompts[i // 2] if prompts else ""
            prompt = prompt if all(text.startswith(prompt) for text in items) else ""
            name = f"compare/{keys[0]}/{keys[1]}"
            queries.append(Query(name, "compare", keys, items, expected, prompt))
    return queries


def _key(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def ask(folder: str, client: int, queries: Sequence[Query]) -> None:
    """Put these before the client's person; those that still wait come after them."""
    Folder(client_folder(folder, client)).ask(queries)


def answered(folder: str, client: int) -> tuple[Comparison, ...]:
    """All that the client's person has said so far, with the texts that it was about."""
    heard = Folder(client_folder(folder, client)).heard()
    return tuple((query.items, value) for query, value in heard)


def require_folder(folder: str, client: int) -> None:
    """Of an earlier run; asked where it is read, because it lies with the client."""
    place = client_folder(folder, client)
    if not place.is_dir():
        raise UserError(
            Shareable(
                f"algorithm.feedback_folder is {folder!r}, which has no {place.name}: name that of "
                'a run with algorithm.feedback = "live"'
            )
        )


def count(folder: str, clients: Sequence[int]) -> float:
    """How much people of these clients have answered so far."""
    return float(sum(len(answered(folder, client)) for client in clients))
