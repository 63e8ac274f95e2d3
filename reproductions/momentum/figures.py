"""Figures 1 and 2, Table 3 and the tuning behind them: the sampled worlds of the momentum page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fedrl.report import plots
from reproductions.markdown import missing, number, panel, picture, table, verdict
from reproductions.momentum.cells import LEARNERS, Task, learner_name
from reproductions.seed_cells import Measured

Found = Mapping[str, Measured]

PAPER_TABLE3 = {
    ("fedhapg-m", 0.2): ((83.46, 7.92), (130.93, 7.72)),
    ("fedhapg-m", 0.5): ((86.54, 12.99), (287.14, 72.26)),
    ("fedhapg-m", 0.8): ((86.58, 11.21), (301.57, 28.04)),
    ("pavg", 1.0): ((85.92, 12.17), (299.69, 3.02)),
}
"""(method, β) → (CartPole, Walker), mean and spread."""


def figure1(
    title: str,
    key: str,
    found: Found,
    task: Task,
    pictures: Path,
) -> str:
    name = f"{'Figure 1' if key != 'walker2d' else 'The curves behind Table 3'}: {title}"
    if not found:
        return missing(name)
    base = found["pavg"]
    steps = base.curves["env/steps"][:, -1].mean()
    cap = task.algorithm.get("direction_clip")
    extra = f", ‖u_{{r,k}}‖ at most {cap:g}" if cap else ""
    why = """ Without the cap FedHAPG-M diverges in the
first rounds (`fedrl run momentum/halfcheetah --algorithm.name fedhapg-m --algorithm.direction_clip
0`): with H = 500 its ⟨∇log p, v⟩ g is far longer than g for any v that a useful step makes."""
    return f"""## {name}

N = 5, K = 10, one trajectory per local step, λ = ηK, {base.cell.rounds} rounds, horizon
{task.world.get("horizon", 100)}, importance weight capped at 1.2{extra}, rewards-to-go
standardised, η tuned for every row alike (see *Tuning*), {base.cell.seeds} seeds,
{steps / 1e6:.2f} M environment steps in a PAvg run. Evaluation on fresh episodes of all
clients.{why if cap else ""}

{learner_table(found)}

{learner_plot(found, pictures, f"figure1_{key}", f"{title}: return by round")}"""


def equal_step(found: Found, pictures: Path) -> str:
    name = "CartPole at one small step size, before convergence"
    if not found:
        return missing(name)
    cell = found["pavg"].cell
    return f"""## {name}

The same η = {cell.algorithm["lr"]:g} for every row and {cell.rounds} rounds: the policies are
still moving slowly and the weights are alive. Everything else as in Figure 1, {cell.seeds} seeds.

{learner_table(found)}

{learner_plot(found, pictures, "equal_step", "CartPole with one step size")}"""


def learner_table(found: Found) -> str:
    """One row per method and β, compared with PAvg on the same seeds."""
    base, rows = found["pavg"], []
    for name, beta in LEARNERS:
        one = found.get(learner_name(name, beta))
        if one is None:
            continue
        row = [
            learner_name(name, beta),
            f"{one.cell.algorithm['lr']:g}",
            number(one.area(), 1),
        ]
        spread = f"{one.final().std(ddof=1):.1f}" if one.cell.seeds > 1 else "–"
        if one is base:
            row += ["–", number(one.final(), 1), "–", spread, "–", "–"]
        else:
            weight = one.curves["train/weight_mean"][:, -1].mean()
            clipped = one.overall("train/weight_clipped").mean()
            row += [
                verdict(one.area(), base.area(), 1), number(one.final(), 1),
                verdict(one.final(), base.final(), 1), spread, f"{weight:.2f}",
                f"{100 * clipped:.0f}%",
            ]  # fmt: skip
        rows.append(row)
    head = ("method", "η", "mean over the run", "against PAvg", "at the end", "against PAvg",
            "sd over seeds", "last weight", "clipped")  # fmt: skip
    return table(head, rows)


def learner_plot(found: Found, pictures: Path, file: str, alt: str) -> str:
    base, panels = found["pavg"], []
    for method, label in (("fedsvrpg-m", "FedSVRPG-M"), ("fedhapg-m", "FedHAPG-M")):
        lines = {"PAvg": base.curves["eval/return"]} | {
            f"β = {beta}": found[learner_name(name, beta)].curves["eval/return"]
            for name, beta in LEARNERS
            if name == method and learner_name(name, beta) in found
        }
        panels.append(panel(f"{label}: mean return", "rounds", base.at["eval/return"], lines))
    return picture(plots.curves(panels), pictures, file, alt)


def figure2(found: Found, pictures: Path) -> str:
    if not found:
        return missing("Figure 2: the number of agents")
    panels, rows = [], []
    for method, label in (("fedsvrpg-m", "FedSVRPG-M"), ("fedhapg-m", "FedHAPG-M")):
        mine = {n: one for n, one in found.items() if n.startswith(method)}
        sizes = sorted(int(n.rpartition("N=")[2]) for n in mine)
        lines = {f"N = {n}": mine[f"{method} β=0.2,N={n}"].curves["eval/return"] for n in sizes}
        at = next(iter(mine.values())).at["eval/return"]
        panels.append(panel(f"{label}: mean return", "rounds", at, lines))
        four = mine[f"{method} β=0.2,N=4"]
        for n in sizes:
            one = mine[f"{method} β=0.2,N={n}"]
            rows.append([
                label, f"N = {n}", number(one.area(), 1), number(one.final(), 1),
                "–" if n == 4 else verdict(one.area(), four.area(), 1),
            ])  # fmt: skip
    image = picture(plots.curves(panels), pictures, "figure2", "CartPole by number of agents")
    head = ("method", "", "mean over the run", "at the end", "over the run, against N = 4")
    return f"""## Figure 2: the number of agents

CartPole, β = 0.2 as in the paper, settings as in Figure 1; the paper shows N = 4, 5, 8.

{table(head, rows)}

{image}"""


def table3(cartpole: Found, walker: Found) -> str:
    if not cartpole and not walker:
        return missing("Table 3: FedHAPG-M against the baseline")
    rows = []
    for (name, beta), ((cart, cart_sd), (walk, walk_sd)) in PAPER_TABLE3.items():
        learner = learner_name(name, beta)
        row = [learner, f"{cart} ± {cart_sd}", f"{walk} ± {walk_sd}"]
        for found in (cartpole, walker):
            one = found.get(learner)
            row.append("not measured" if one is None else number(one.final(), 1))
            row.append(
                "–" if one is None or name == "pavg"
                else verdict(one.final(), found["pavg"].final(), 1)
            )  # fmt: skip
        rows.append(row)
    head = ("method", "CartPole, paper", "Walker, paper", "CartPole, ours", "against PAvg",
            "Walker, ours", "against PAvg")  # fmt: skip
    return f"""## Table 3: FedHAPG-M against the baseline

Returns at the end of training. The paper's ± is its variance; ours is a 95% interval of the mean.
On CartPole 100 is the ceiling. Walker is Gymnasium's v5 here, another version of the task than the
paper's.

{table(head, rows)}"""


def tuning(parts: Mapping[str, Found], tasks: Mapping[str, Task]) -> str:
    rows = []
    for key, task in tasks.items():
        found = parts.get(f"tune_{key}", {})
        for name, beta in LEARNERS:
            scores = [found.get(f"{learner_name(name, beta)},rate={rate}") for rate in task.rates]
            if any(one is None for one in scores):
                continue
            shown = [
                f"{rate:g}: {one.area().mean():.1f}"
                for rate, one in zip(task.rates, scores)
                if one is not None
            ]
            rows.append([key, learner_name(name, beta), ", ".join(shown)])
    if not rows:
        return missing("Tuning")
    return f"""## Tuning

One grid of step sizes η per task for all methods, {
        ", ".join(
            f"{t.tuning_seeds} seeds and {t.tuning_rounds} rounds on {k}" for k, t in tasks.items()
        )
    }; seeds that are reported nowhere. The
score is the mean return over the run. Where the best η is the largest of its grid, a larger one may
do better still.

{table(("task", "method", "η: score"), rows)}"""
