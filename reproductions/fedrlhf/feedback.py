"""What feedback does: what comes without it, with other movies' answers and with the opposite."""

from __future__ import annotations

import numpy as np
from reproductions.fedqhd.numbers import prose

from fedrl.runs.grid import Trained
from reproductions.fedrlhf.logs import KINDS, NOISE
from reproductions.fedrlhf.numbers import percent, plain
from reproductions.fedrlhf.results import BySeed, Results, at, by_client, merged
from reproductions.markdown import missing, table

TITLES = {
    "none": "nobody is asked",
    "told": "people say what they mean",
    "shuffled": "answers belong to other movies",
    "flipped": "one person says the opposite",
}
TITLE = "Feedback: none, meant, shuffled, and one person's opposite"


def kinds(results: Results) -> dict[str, Trained]:
    found, seeds = results.parts["feedback"], results.scale.seeds
    return {"none": found["none"]} | {kind: merged(found, kind, seeds) for kind in KINDS}


def personal(one: Trained, metric: str, client: int, others: bool = False) -> BySeed:
    """By seed, a client's own policy in the last round, or the mean of the others' policies."""
    rows = {}
    for seed, run in one.runs.items():
        values = by_client(run, metric, one.cell.rounds)
        if not others and client in values:
            rows[seed] = values[client]
        elif others and (rest := [v for c, v in values.items() if c != client]):
            rows[seed] = float(np.mean(rest))
    return rows


def section(results: Results) -> str:
    found, scale = kinds(results), results.scale
    if not any(one.runs for one in found.values()):
        return missing(TITLE)
    rows = []
    for kind, title in TITLES.items():
        one = found[kind]
        rows.append([title, percent(at(one, "eval/accuracy")), plain(at(one, "eval/spearman"), 2)])
        for metric, shown in (("personal/accuracy", percent), ("personal/spearman", plain)):
            for others in (False, True):
                rows[-1].append(shown(personal(one, metric, scale.flipped, others)))
    head = ("", "global accuracy, %", "global Spearman", "that client's own accuracy, %",
            "the others' own, %", "that client's own Spearman", "the others' own")  # fmt: skip
    text = f"""K = {scale.clients[0]}, λ = 1, after round {scale.rounds}, {len(scale.seeds)} seeds,
        on held-out ratings. Answers come from files (`algorithm.feedback = "logged"`) that hold
        what a person with noise of {NOISE:g} stars says to every score of every movie that is
        trained on; pairs are not asked about here. *Shuffled*: within a client, every movie gets
        another movie's answers. These still tell how generous a person is; which movies they like
        is gone. *Opposite*: client {scale.flipped}'s "too high" is "too low" and the other way
        round; *that client* is client {scale.flipped} in all rows."""
    return "\n\n".join([f"## {TITLE}", prose(text), table(head, rows)])
