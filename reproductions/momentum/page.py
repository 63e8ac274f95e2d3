"""The result page of the momentum paper: the paper's number, ours with its interval, the verdict.

Every figure on the page comes from a cell on disk; a part that was not measured is said to be
missing. Verdicts are computed, never typed: a paired 95% interval over common seeds decides. Only
the three explanations in *Why* are prose, written for the full scale.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fedrl.core.number_format import duration
from fedrl.envs.control import random_mdp
from fedrl.report import plots
from reproductions.markdown import missing, number, panel, picture, table, verdict
from reproductions.momentum import theory
from reproductions.momentum.cells import KAPPAS, Task
from reproductions.momentum.claims import betas, claims, kappas
from reproductions.momentum.figures import equal_step, figure1, figure2, table3, tuning
from reproductions.seed_cells import Measured

Found = Mapping[str, Measured]

PAPER_TABLE2 = {
    0.1: (8.013, 7.957, 7.968, 7.961, 7.964, 7.981),
    0.2: (7.876, 7.877, 7.851, 7.837, 7.841, 7.824),
    0.5: (7.561, 7.208, 7.529, 7.525, 7.536, 7.525),
    0.8: (7.211, 7.203, 7.201, 7.192, 7.193, 7.184),
    1.0: (6.965, 6.951, 6.955, 6.936, 6.940, 6.937),
}
"""β → J at κ = 0, 0.2, …, 1; all ± 0.06 or 0.07."""
PAPER_SPREAD = 0.07


def write(
    parts: Mapping[str, Found],
    tasks: Mapping[str, Task],
    scale: str,
    page: Path,
) -> None:
    pictures = page.with_suffix("")
    sections = [
        heading(parts, scale),
        table2(parts.get("table2", {}), pictures),
        kernels(parts.get("kernels", {}), parts.get("table2", {})),
        regimes(parts.get("regimes", {}), parts.get("table2", {})),
        theory.section(parts.get("speedup", {}), pictures),
    ]
    titles = {"cartpole": "CartPole", "halfcheetah": "HalfCheetah", "walker2d": "Walker2d"}
    for key, title in titles.items():
        found = parts.get(f"figure1_{key}", {})
        sections.append(figure1(title, key, found, tasks[key], pictures))
        if key == "cartpole":
            sections.append(equal_step(parts.get("equal_step", {}), pictures))
    sections.append(figure2(parts.get("figure2", {}), pictures))
    sections.append(table3(parts.get("figure1_cartpole", {}), parts.get("figure1_walker2d", {})))
    sections.append(tuning(parts, tasks))
    sections.append(costs(parts))
    text = "\n\n".join(s.strip() for s in sections if s) + "\n"
    page.write_text(text, encoding="utf-8")


def heading(parts: Mapping[str, Found], scale: str) -> str:
    metas = [one.meta for found in parts.values() for one in found.values()]
    commits = sorted({str(meta["commit"]) for meta in metas if meta.get("commit")})
    machines = {
        f"{m['hardware']['cpu']}, {m['hardware']['cores']} cores, {m['hardware']['memory_gb']} GB"
        for m in metas
    }
    return f"""# Momentum: PAvg, FedSVRPG-M, FedHAPG-M

Paper: *Momentum for the Win: Collaborative Federated Reinforcement Learning across Heterogeneous
Environments*, ICML 2024. Everything below was written by

    fedrl reproduce momentum --scale {scale}

which keeps every cell it has measured and goes on where it was stopped. Hardware:
{"; ".join(sorted(machines)) or "unknown"}. Commits (+: with local changes): {", ".join(commits)}.

Intervals are 95% t-intervals over seeds. A verdict compares with PAvg (β = 1) on the same seeds,
by the interval of the paired differences.

{claims(parts)}"""


# Tabular parts


def table2(found: Found, pictures: Path) -> str:
    if not found:
        return missing("Table 2: average performance on random MDPs")
    rows, agreements, cells = [], 0, 0
    for beta in betas(found):
        row = [f"β = {beta}"]
        for kappa in kappas(found):
            ours = found[f"beta={beta},kappa={kappa}"].final()
            theirs = PAPER_TABLE2[beta][KAPPAS.index(kappa)]
            mean, half = plots.interval(ours)
            agrees = abs(float(mean) - theirs) <= PAPER_SPREAD + float(half)
            agreements += agrees
            cells += 1
            row.append(f"{number(ours)} ({theirs:.3f} {'✓' if agrees else '✗'})")
        rows.append(row)
    one = next(iter(found.values()))
    seconds = sum(cell.seconds for cell in found.values())
    weights = [
        [f"β = {beta}"]
        + [
            f"{np.median(found[f'beta={beta},kappa={kappa}'].overall('train/weight_mean')):.3f}"
            for kappa in kappas(found)
        ]
        for beta in betas(found)
        if beta < 1
    ]
    head = ["", *(f"κ = {kappa}" for kappa in kappas(found))]
    lines = {
        f"β = {beta}": found[f"beta={beta},kappa={kappas(found)[-1]}"].curves["eval/return"]
        for beta in betas(found)
    }
    left = panel(f"average J, κ = {kappas(found)[-1]}", "rounds", one.at["eval/return"], lines)
    norms = {
        f"β = {beta}": found[f"beta={beta},kappa={kappas(found)[-1]}"].curves["eval/grad_norm_sq"]
        for beta in betas(found)
    }
    right = panel("‖∇J(θ)‖²", "rounds", one.at["eval/grad_norm_sq"], norms, log=True)
    image = picture(
        plots.curves([left, right]), pictures, "table2", "average performance and gradient norm"
    )
    return f"""## Table 2: average performance on random MDPs

N = 20, |S| = |A| = 5, γ = 0.9, K = 32, η = 0.05, λ = ηK = 1.6, one trajectory of H = 500 steps per
local step, R = {one.cell.rounds} rounds, softmax tables, {one.cell.seeds} seeds per cell (the same
MDPs in every cell of a column), exact J. The paper gives neither λ, H nor R; these reproduce its
level. Ours ± 95% (the paper's; ✓ if the two agree within the paper's ± {PAPER_SPREAD} and our
interval): {agreements} of {cells} agree. The paper's cell at β = 0.5, κ = 0.2 stands out from its
own row and is probably a misprint. {duration(seconds)} for the whole grid.

{table(head, rows)}

The importance weight w, mean over rounds and median over seeds. Its expectation is 1 by
construction; that so little of it is seen means that its mass sits in trajectories that are never
sampled:

{table(head, weights)}

{image}"""


def attainable(kernel: str, kappa: float, seeds: int = 100) -> np.ndarray:
    """Per seed, the mean over clients of each client's own best J: no common policy does better."""
    settings = random_mdp.Settings(kernel=kernel, kappa=kappa)  # type: ignore[arg-type]
    worlds = [random_mdp.World(settings, 20, seed) for seed in range(seeds)]
    return np.array(
        [random_mdp.upper_bound(w.kernels, w.rewards, w.initial, settings.gamma) for w in worlds]
    )


def kernels(found: Found, base: Found) -> str:
    if not found:
        return missing("Other kernels: is it still flat in κ?")
    rows = []
    everything = {f"uniform,{name}": one for name, one in base.items()} | dict(found)
    for kernel in ("uniform", "bernoulli", "orthogonal"):
        mine = {n: one for n, one in everything.items() if n.startswith(kernel)}
        if not mine:
            continue
        ends = kappas(mine)[0], kappas(mine)[-1]
        for beta in betas(mine):
            first, last = (mine[f"{kernel},beta={beta},kappa={k}"].final() for k in ends)
            gap, half = plots.interval(last - first)
            flat = abs(float(gap)) <= max(float(half), 0.1)
            change = f"{float(gap):+.3f} ± {float(half):.3f}"
            word = "flat" if flat else "moves"
            rows.append([kernel, f"β = {beta}", number(first), number(last), change, word])
        low, high = (attainable(kernel, k) for k in ends)
        gap, half = plots.interval(high - low)
        change = f"{float(gap):+.3f} ± {float(half):.3f}"
        rows.append([kernel, "*upper bound*", number(low), number(high), change, ""])
    return f"""## Other kernels: is it still flat in κ?

Plain uniform kernels of five states are all nearly the same, so κ hardly changes what can be
attained. Bernoulli kernels keep half of the entries, each client another half; orthogonal ones
give even clients the transitions that odd ones never make. *Flat*: the paired difference between
κ = 1 and κ = 0 is at most 0.1 or within its interval. *Upper bound*: the mean over clients of each
client's own optimum (100 seeds), which no common policy can pass: where κ moves the results, see
how far it moves what could be had at all.

{table(("kernel", "", "κ = 0", "κ = 1", "difference", "verdict"), rows)}"""


def regimes(found: Found, base: Found) -> str:
    if not found:
        return missing("Why, and where the variance reduction helps")
    rows = []

    def add(setting: str, name: str, one: Measured, reference: Measured | None) -> None:
        known = one.cell.algorithm["beta"] < 1
        weight = np.median(one.overall("train/weight_mean")) if known else np.nan
        rows.append(
            [
                setting,
                name,
                number(one.final()),
                f"{weight:.3f}" if known else "–",
                f"{np.median(one.overall('eval/direction_error')):.3f}",
                "–" if reference is None else verdict(one.final(), reference.final()),
            ]
        )

    last = kappas(base)[-1] if base else None
    count = next(iter(found.values())).cell.seeds
    long = {n: one for n, one in base.items() if n.endswith(f"kappa={last}")}
    for beta in betas(long):
        one = _head(long[f"beta={beta},kappa={last}"], count)
        add(
            "softmax, H = 500",
            f"β = {beta}",
            one,
            None if beta == 1 else _head(long[f"beta=1.0,kappa={last}"], count),
        )
    reference = _head(long[f"beta=1.0,kappa={last}"], count) if long else None
    for name, one in found.items():
        if name.startswith("H=500"):
            add("softmax, H = 500", name.removeprefix("H=500,"), one, reference)
    for prefix, setting in (
        ("H=50,", "softmax, H = 50, R = 8"), ("H=10,", "softmax, H = 10, R = 8"),
        ("direct,uniform,", "direct, H = 5, η = 0.005, R = 60"),
        ("direct,orthogonal,", "direct, orthogonal kernels, the same"),
    ):  # fmt: skip
        mine = {n: one for n, one in found.items() if n.startswith(prefix)}
        for beta in betas(mine):
            one = mine[f"{prefix}beta={beta}"]
            add(setting, f"β = {beta}", one, None if beta == 1 else mine[f"{prefix}beta=1.0"])
    head = ("setting", "", "J", "weight", "‖u − ∇J‖²", "against β = 1")
    return f"""## Why, and where the variance reduction helps

κ = 1, {count} seeds. *weight* is the mean importance weight of a run, and ‖u − ∇J‖² the exact error
of its direction, both averaged over rounds; medians over seeds, because a weight has a heavy tail.

Read at the full scale:

- At H = 500 the sampled weight is close to 0, the correction −w g(θ_prev) is gone, and Eq. (4)
  becomes u = g + (1−β)u_r: heavy-ball momentum with a step up to 1/β times as long. The rows
  *server momentum 0.9* (PAvg whose server uses heavy-ball momentum, the same factor as β = 0.1) and
  *server_lr ×* (PAvg with a larger server step) get as far without any variance reduction.
- At H = 10 and 50, with the weights alive and the same steps, β < 1 gains nothing or loses: the
  weight's variance outweighs what the anchor saves.
- With the direct parametrisation, short horizons and small steps, consecutive policies are close,
  the weights are near 1, and the variance reduction does what the theory says.

{table(head, rows)}"""


def _head(one: Measured, seeds: int) -> Measured:
    """The first seeds of a cell, to pair with a cell that has fewer."""
    curves = {name: values[:seeds] for name, values in one.curves.items()}
    return Measured(one.cell, curves, one.at, one.seconds, one.meta)


def costs(parts: Mapping[str, Found]) -> str:
    rows = []
    for part, found in parts.items():
        if found:
            seconds = sum(one.seconds for one in found.values())
            steps = sum(float(one.curves["env/steps"][:, -1].sum()) for one in found.values())
            commits = sorted({str(one.meta.get("commit")) for one in found.values()})
            rows.append(
                [part, str(len(found)), duration(seconds), f"{steps:.3g}", ", ".join(commits)]
            )
    command = shlex.join(["fedrl", "reproduce", "momentum", "--only", "PART"])
    return f"""## What it took

Seconds of computation added up over cells (two cells of sampled worlds run side by side). One part
again: `{command}`.

{table(("part", "cells", "time", "environment steps", "commit"), rows)}"""
