"""FedRLHF on reviews: the global mean reward by samples, and every client's rewards by round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from reproductions.fedqhd.numbers import prose

from fedrl.report import plots
from fedrl.runs.grid import Trained
from fedrl.runs.read import Run
from reproductions.fedrlhf import numbers
from reproductions.fedrlhf.figures import whole_rounds
from reproductions.fedrlhf.numbers import plain
from reproductions.fedrlhf.results import BySeed, Found, at, by_client, curve
from reproductions.markdown import missing, picture, table

REWARDS = {"intrinsic": "R0, fluency", "sentiment": "sentiment", "reward": "combined"}
NAMES = {"fedrlhf": "FedRLHF", "centralized": "centralized"}
WORD = {"generated": "generated", "imdb": "genuine"}
TITLES = {
    "smoke": "IMDb, smoke scale: a tiny model on generated reviews",
    "small": "IMDb, small scale: the built-in model on generated reviews",
    "full": "IMDb, full scale: a language model on the genuine reviews",
}
ABOUT_CLIENTS = """Clients' own policies, after their local training and before the server averages,
    on their own held-out queries, as in the paper's Figure 5. *Change* is against the model that
    all began with, on the same queries and with the same random numbers."""
ABOUT_TRAINING = """What one round of its own training changes, mean over rounds: from the global
    model that a client receives to its own policy, on its own queries. All begin a round with the
    same model, but each has its own reviews beside its λ_k; changes since the start also hold what
    the others have taught."""
REPEATED = "pairs of tokens that the text had before"
"""What is likely is not always well written: a model that repeats itself is found likely."""


def weights(one: Trained) -> list[float]:
    return [float(lam) for lam in one.cell.recipe["algorithm"]["lam"]]


def own(one: Trained, metric: str, client: int, number: int) -> BySeed:
    """By seed, what a client told of its own policy after its training in this round."""
    found = {seed: by_client(run, f"personal/{metric}", number) for seed, run in one.runs.items()}
    return {seed: values[client] for seed, values in found.items() if client in values}


def samples(one: Trained) -> tuple[np.ndarray, np.ndarray]:
    """Texts written in training by round [points], and the global mean reward [seeds, points]."""
    rounds, values = curve(one, "eval/reward")
    first = max(one.runs.values(), key=lambda run: max(run.rounds), default=None)
    if first is None:
        return np.empty(0), np.empty((0, 0))
    return np.array([first.rounds[r].get("env/samples", 0.0) for r in rounds.tolist()]), values


def order(one: Trained, metric: str) -> np.ndarray:
    """By seed, Spearman's correlation of λ_k with the change of a client's own reward.

    From the model that all began with, on that client's queries, to the client's own policy after
    the last round: clients' reviews and sentiment models differ, so that levels do, too.
    """
    clients, last = range(len(weights(one))), one.cell.rounds
    rises = {seed: [changed(one, run, metric, client, last, 0) for client in clients]
             for seed, run in one.runs.items()}  # fmt: skip
    return ranked(one, rises)


def trained_order(one: Trained, metric: str) -> np.ndarray:
    """By seed, Spearman's correlation of λ_k with what a round of a client's own training does.

    In a round all clients begin with one model: what sets them apart is their own training, which
    the changes since round 0 mix with what the others have taught.
    """
    clients = range(len(weights(one)))
    means = {seed: [by_training(one, run, metric, client) for client in clients]
             for seed, run in one.runs.items()}  # fmt: skip
    return ranked(one, means)


def by_training(one: Trained, run: Run, metric: str, client: int) -> float:
    """How a client's own training moves what its texts are worth to it, mean over rounds."""
    rounds = range(1, one.cell.rounds + 1)
    return float(np.mean([changed(one, run, metric, client, n, n - 1) for n in rounds]))


def changed(one: Trained, run: Run, metric: str, client: int, number: int, before: int) -> float:
    """From the global model after round `before` to the client's own policy in round `number`, on
    the client's queries; NaN where one of them is not known."""
    own_policy = by_client(run, f"personal/{metric}", number).get(client, np.nan)
    start = run.rounds.get(before, {}).get(f"eval/{metric}_client{client}", np.nan)
    return float(own_policy - start)


def ranked(one: Trained, values: Mapping[int, Sequence[float]]) -> np.ndarray:
    """Spearman's correlation with λ_k, of every seed that has a value for each client."""
    from fedrl.algorithms.fedrlhf.ratings.metrics import spearman

    whole = [np.array(row) for row in values.values() if np.isfinite(row).all()]
    return np.array([spearman(row, np.array(weights(one))) for row in whole])


def section(found: Found, scale: str, pictures: Path) -> str:
    title, one = TITLES[scale], found["fedrlhf"]
    if not any(trained.runs for trained in found.values()):
        return missing(title)
    return "\n\n".join([
        f"## {title}", prose(setting(one)), comparison(found), by_samples(found, scale, pictures),
        prose(ABOUT_CLIENTS), clients_table(one), prose(ABOUT_TRAINING), training_table(one),
        by_round(one, scale, pictures),
    ])  # fmt: skip


def setting(one: Trained) -> str:
    config = one.cell.config(one.cell.seeds[0], Path())
    algorithm, world = config.algorithm, config.world
    model = Path(algorithm.model).name.partition(".")[0]
    return f"""{len(weights(one))} clients with {world.reviews:,} reviews each
        ({WORD.get(world.source, world.source)}), {one.cell.rounds} rounds, {len(one.cell.seeds)}
        seed{"s" * (len(one.cell.seeds) > 1)}, the model `{model}`; every client writes
        {algorithm.batches} batches of {algorithm.batch} texts per round and the centralized one as
        many as all clients together, so that a round is the same number of samples for both.
        *Reward* is the mean over clients of λ_k · sentiment + (1 − λ_k) · R0 on held-out queries
        that stay the same; both parts lie between 0 and 1. Sentiment models are the clients' own,
        and the units of R0 and sentiment are not the paper's."""


def comparison(found: Found) -> str:
    rows = []
    for name, one in found.items():
        for metric, label in {**REWARDS, "repeated": REPEATED}.items():
            seen = (plain(at(one, f"eval/{metric}", number)) for number in (0, None))
            rows.append([f"{NAMES[name]}, {label}", *seen])
    before, after = numbers.REWARD
    rows.append(["the paper's FedRLHF, combined", f"about {before}", f"about {after}"])
    last = found["fedrlhf"].cell.rounds
    return table(("global model", "before", f"after round {last}"), rows)


def by_samples(found: Found, scale: str, pictures: Path) -> str:
    """The paper's Figure 4b."""
    import matplotlib

    figure, row = plots.figure(2, (4.6, 3.0))
    with matplotlib.rc_context(plots.STYLE):
        both = {NAMES[name]: samples(one) for name, one in found.items()}
        lines = {name: y for name, (_, y) in both.items()}
        plots.band_plot(row[0], {name: x for name, (x, _) in both.items()}, lines)
        row[0].set_title("global mean reward")
        row[0].set_xlabel("texts written in training")
        row[0].locator_params(axis="x", nbins=5)
        if any((x > numbers.SAMPLES).any() for x, _ in both.values()):
            row[0].axvline(numbers.SAMPLES, color=plots.INK, linestyle=":", linewidth=1)
            row[0].set_xlabel("texts written in training (dotted: the paper's crossing)")
        row[0].legend(fontsize=8.5, loc="best")
        parts = {REWARDS[metric]: curve(found["fedrlhf"], f"eval/{metric}") for metric in REWARDS}
        plots.band_plot(
            row[1], {n: x for n, (x, _) in parts.items()}, {n: y for n, (_, y) in parts.items()}
        )
        row[1].set_title("FedRLHF's global model")
        whole_rounds(row[1])
        row[1].legend(fontsize=8.5, loc="best")
    return picture(figure, pictures, f"imdb-{scale}", "global mean reward by samples")


def clients_table(one: Trained) -> str:
    rows = []
    for client, lam in enumerate(weights(one)):
        row = [str(client), f"{lam:g}"]
        for metric in REWARDS:
            last = own(one, metric, client, one.cell.rounds)
            first = at(one, f"eval/{metric}_client{client}", 0)
            rise = {seed: last[seed] - first[seed] for seed in last if seed in first}
            row += [plain(last), plain(rise)]
        rows.append(row)
    head = ["client", "λ_k"]
    for label in REWARDS.values():
        head += [label, "change"]
    return table(head, rows)


def training_table(one: Trained) -> str:
    rows = []
    for client, lam in enumerate(weights(one)):
        moved = (
            {seed: by_training(one, run, metric, client) for seed, run in one.runs.items()}
            for metric in REWARDS
        )
        known = ({seed: x for seed, x in by.items() if np.isfinite(x)} for by in moved)
        rows.append([str(client), f"{lam:g}", *map(plain, known)])
    return table(["client", "λ_k", *REWARDS.values()], rows)


def by_round(one: Trained, scale: str, pictures: Path) -> str:
    """The paper's Figure 5: a panel per client; round 0 is the model that all began with."""
    import matplotlib

    lams = weights(one)
    figure, row = plots.figure(len(lams), (3.2, 2.9))
    with matplotlib.rc_context(plots.STYLE):
        for client, (axes, lam) in enumerate(zip(row, lams, strict=True)):
            lines = {label: rounds_of(one, metric, client) for metric, label in REWARDS.items()}
            points = min((y.shape[1] for y in lines.values()), default=0)
            clear = {name: y[:, :points] for name, y in lines.items()}
            plots.band_plot(axes, np.arange(points), clear)
            axes.set_title(f"client {client}, λ = {lam:g}")
            whole_rounds(axes)
        level(row)
        plots.legend(figure, row[0])
    return picture(figure, pictures, f"imdb-clients-{scale}", "rewards of every client by round")


def rounds_of(one: Trained, metric: str, client: int) -> np.ndarray:
    """[seeds, rounds + 1] of seeds that have all rounds."""
    rows = []
    for seed, run in one.runs.items():
        start = run.rounds[0].get(f"eval/{metric}_client{client}", float("nan"))
        told: Sequence[Mapping[int, float]] = [
            own(Trained(one.cell, {seed: run}), metric, client, number)
            for number in range(1, one.cell.rounds + 1)
        ]
        if all(seed in values for values in told):
            rows.append([start, *(values[seed] for values in told)])
    return np.array(rows).reshape(len(rows), -1)


def level(row: Sequence[Any]) -> None:
    """Panels of one figure on one scale."""
    low, high = min(a.get_ylim()[0] for a in row), max(a.get_ylim()[1] for a in row)
    for axes in row:
        axes.set_ylim(low, high)
