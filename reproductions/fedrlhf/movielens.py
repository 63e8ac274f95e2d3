"""FedRLHF on ratings: held-out accuracy and rank correlation beside baselines and the paper's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from reproductions.fedqhd.numbers import prose

from fedrl.runs.grid import Trained
from reproductions.fedrlhf import figures, numbers
from reproductions.fedrlhf.cells import METHODS
from reproductions.fedrlhf.numbers import percent, plain
from reproductions.fedrlhf.results import OWN, BySeed, Found, Results, at, by_client
from reproductions.markdown import missing, table

WORD = {True: "genuine", False: "generated"}


def title(results: Results, clients: int) -> str:
    return f"{'MovieLens' if results.genuine else 'Generated ratings'}, K = {clients}"


def section(results: Results, clients: int, pictures: Path) -> str:
    found, scale = results.parts["movielens"], results.scale
    ours = found[f"K{clients}-fedrlhf"]
    if not ours.runs:
        return missing(title(results, clients))
    text = f"""{clients} users of the {WORD[results.genuine]} ratings as clients,
        {len(scale.seeds)} seeds ({", ".join(map(str, scale.seeds))}), {scale.rounds} rounds. A seed
        chooses the users, what is held out of each one's ratings (a fifth), and everything else.
        All numbers are on held-out ratings, after the last round: accuracy weighted by examples.
        *Own* are the clients' policies as they are after their local training, before the server
        averages; Spearman's correlation of the global policy is weighted by examples, of own ones
        the plain mean over clients."""
    pieces = [f"## {title(results, clients)}", prose(text), accuracies(found, clients)]
    pieces += [prose(why(found, clients)), prose(leaky(clients)), leaky_table(found, clients)]
    pieces.append(figures.learning(found, clients, pictures))
    pieces += [prose(spread(ours, clients)), figures.violins(ours, clients, pictures)]
    return "\n\n".join(pieces)


def accuracies(found: Found, clients: int) -> str:
    one = found[f"K{clients}-fedrlhf"]
    rows = [["majority class of the client's trained ratings", percent(at(one, "eval/majority")),
             "–", "–", "–", "–"]]  # fmt: skip
    for name, method in METHODS.items():
        one = found[f"K{clients}-{name}"]
        alone = name in ("independent", "centralized")  # where own policies are the server's
        rows.append([
            method.title, percent(at(one, "eval/accuracy", 1)), percent(at(one, "eval/accuracy")),
            "–" if alone else percent(at(one, OWN)), plain(at(one, "eval/spearman"), 2),
            "–" if alone else plain(at(one, "personal/spearman"), 2),
        ])  # fmt: skip
    rows[0][1:3] = ["–", rows[0][1]]
    if clients == 10:
        (first, wide), (last, narrow) = numbers.FIRST, numbers.LAST
        rows.append(["the paper's FedRLHF (± is its deviation)", f"{first} ± {wide}",
                     f"{last} ± {narrow}", "–", "–", "–"])  # fmt: skip
    end = one.cell.rounds
    head = ("", "global accuracy, round 1, %", f"round {end}, %", f"own, round {end}, %",
            "global Spearman", "own Spearman")  # fmt: skip
    return table(head, rows)


def why(found: Found, clients: int) -> str:
    """What the network remembers beside what it predicts; why was not ablated."""
    ours, labels = found[f"K{clients}-fedrlhf"], found[f"K{clients}-labels"]
    seen, new, own = (
        percent(at(labels, metric)) for metric in ("eval/train_accuracy", "eval/accuracy", OWN)
    )
    steps = list(at(ours, "env/steps").values())
    if not steps or "not measured" in (seen, new):
        return ""
    epochs = ours.cell.config(ours.cell.seeds[0], Path()).algorithm.local_epochs
    each = float(np.mean(steps)) / (ours.cell.rounds * epochs * clients)
    return f"""Told the true labels, the same network gets {seen}% of the trained ratings right, but
        only {new}% of the held-out ones, and the clients' own networks {own}%. A client has
        {each:.0f} trained ratings on average. Why the network remembers them and predicts no better
        was not tested here."""


# What is no evaluation


def leaky(clients: int) -> str:
    paper = f", where the paper has {numbers.FIRST[0]} and {numbers.LAST[0]}" * (clients == 10)
    return f"""**No evaluation: the protocol of the authors' release.** Its code scores a model on
        the ratings that the model was trained on, and pays it the true label. The same done here
        (the network that is told the labels, scored on its trained ratings) gives the last
        row{paper}; with shaped rewards instead of labels, scored in the same way, the row above it.
        These numbers say what a network remembers, not what it can predict."""


def leaky_table(found: Found, clients: int) -> str:
    rows = []
    for name, what in (
        ("fedrlhf", "FedRLHF, scored on trained ratings"),
        ("labels", "told the labels, scored on trained ratings (the release's protocol)"),
    ):
        one = found[f"K{clients}-{name}"]
        seen = (percent(at(one, "eval/train_accuracy", number)) for number in (1, None))
        rows.append([what, *seen, percent(at(one, "eval/accuracy"))])
    end = found[f"K{clients}-labels"].cell.rounds
    head = ("NO evaluation, %", "round 1", f"round {end}", "the same network, held-out ratings")
    return table(head, rows)


# Clients


def by_number(one: Trained, metric: str) -> dict[int, float]:
    """By client number, the mean over seeds after the last round, as the paper gives it.

    Another seed makes another user client 3: a number stands for no person.
    """
    several: dict[int, list[float]] = {}
    for run in one.runs.values():
        for client, value in by_client(run, metric, one.cell.rounds).items():
            several.setdefault(client, []).append(value)
    return {client: float(np.mean(values)) for client, values in sorted(several.items())}


def medians(one: Trained, metric: str, number: int) -> BySeed:
    """By seed, the middle client's own policy after a round."""
    found = {seed: by_client(run, metric, number) for seed, run in one.runs.items()}
    return {seed: float(np.median(list(v.values()))) for seed, v in found.items() if v}


def spreads(one: Trained, number: int) -> BySeed:
    """By seed, the deviation of the clients' own accuracies."""
    found = {seed: by_client(run, "personal/accuracy", number) for seed, run in one.runs.items()}
    return {seed: float(np.std(list(v.values()))) for seed, v in found.items() if len(v) > 1}


def spread(one: Trained, clients: int) -> str:
    ranks, right = by_number(one, "personal/spearman"), by_number(one, "personal/accuracy")
    if not ranks:
        return ""
    listed = ""
    if clients <= 10:
        listed = " Spearman by client: " + ", ".join(f"{r:.2f}" for r in ranks.values()) + "."
    paper = ""
    if clients == 10:
        paper = f""" The paper has accuracies from {numbers.CLIENTS[0]}% to {numbers.CLIENTS[1]}%
            and correlations from {numbers.RANKS[0]} to {numbers.RANKS[1]}. (Its global accuracy of
            {numbers.LAST[0]}%, said to be the weighted mean of the clients', is above the best of
            them.)"""
    return f"""Clients' own policies after the last round, means over seeds by the client's number:
        accuracy from {100 * min(right.values()):.1f}% to {100 * max(right.values()):.1f}%,
        Spearman from {min(ranks.values()):.2f} to {max(ranks.values()):.2f}.{listed}{paper} The
        violins have all clients of all seeds, with quartiles and the median."""
