"""The momentum paper's claims and what became of them, decided by the measured numbers.

A claim is its place in the paper, its words, a sentence whose verdict is bold, and the cells behind
it; None where a record is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from fedrl.core.types import Tables
from fedrl.report import plots
from reproductions.momentum.fairness import different_steps, fair, sampled, unjudged, unmarked
from reproductions.momentum.judging import (
    RULES,
    better,
    difference,
    less_variance,
    no_difference,
    some,
)
from reproductions.momentum.parts import METHODS, TASKS, Part, shown
from reproductions.momentum.table2 import CHOSEN, as_published, flat, small_beta_wins
from reproductions.momentum.theorems import WHERE, Theorems, direction
from reproductions.momentum.tuning import Tuning
from reproductions.statements import NOT_JUDGED, Statement, judged
from reproductions.verdicts import FAILS, HOLDS, signed, together

Parts = Mapping[str, Part]
MARGIN, SEEDS = RULES["margin"], RULES["seeds"]
BETAS = ("0.2", "0.5", "0.8")
BEST = {("cartpole", "fedsvrpg-m"): "0.2", ("cartpole", "fedhapg-m"): "0.8",
        ("halfcheetah", "fedsvrpg-m"): "0.5", ("halfcheetah", "fedhapg-m"): "0.5"}  # fmt: skip
"""The β that Figure 1 shows as the best."""
ONE_OF = f"one of β = {', '.join(BETAS)}"
PAIRS = {beta: (f"fedhapg-m beta={beta}", f"fedsvrpg-m beta={beta}") for beta in BETAS}
PAIRED = [name for pair in PAIRS.values() for name in pair]


@dataclass(frozen=True)
class Claim:
    where: str
    claim: str
    text: str | None
    part: Part
    cells: Sequence[str] | None = None
    """Those behind it; all of the part if None."""
    ours: bool = False
    rule: str = ""
    """Of `verdicts.toml`, where the claim has one by name."""
    finding: str = ""
    """What several claims are readings of."""

    @property
    def statement(self) -> Statement:
        records = self.part.records(self.cells)
        said = judged(self.where, self.claim, self.text, records, ours=self.ours)
        return replace(said, afterwards=self.rule in RULES["afterwards"], finding=self.finding)


def claims(parts: Parts, tuning: Tuning, paper: Tables) -> list[Claim]:
    return [
        *of_table2(parts, paper["table2"]),
        *of_figure1(parts, tuning),
        *at_papers_steps(parts),
        *of_figure2(parts),
        *of_table3(parts, paper["table3"], tuning),
        *of_theorems(parts),
        *of_rivals(parts, tuning),
        *of_unequal(parts),
        *of_bodies(parts, tuning),
    ]


# Table 2


def of_table2(parts: Parts, paper: Tables) -> Iterator[Claim]:
    part, kernels, regimes = parts["table2"], parts["kernels"], parts["regimes"]
    for said, text in (
        ("a small β beats β = 1, at every κ", small_beta_wins(part)),
        ("the levels of its thirty cells", as_published(part, paper)),
        ("flat in κ, uniform kernels", flat(part)),
    ):
        yield Claim("Table 2", said, unjudged(text, CHOSEN), part, rule="chosen")
    for kernel, said in (("bernoulli", "Bernoulli kernels"),
                         ("orthogonal", "orthogonal kernels")):  # fmt: skip
        cells = [name for name in kernels.cells if name.startswith(f"{kernel},")]
        yield Claim("Table 2", f"flat in κ, {said}", flat(kernels, f"{kernel},"), kernels, cells,
                    kernel == "orthogonal", rule="flat")  # fmt: skip
    pair = ("H=500,beta=0.1", "H=500,pavg,server_lr x5")
    yield Claim("Table 2", "what β = 0.1 gains there, PAvg gains by a longer server step: no "
                "difference to λ five times as long",
                no_difference(regimes, *pair, MARGIN["random_mdp"], SEEDS["tabular"]),
                regimes, pair, True)  # fmt: skip
    pair = ("direct,uniform,beta=0.2", "direct,uniform,beta=1.0")
    yield Claim("Section 5.1", "the variance reduction itself helps: where the weights are near 1 "
                "(direct parametrisation, H = 5, small steps) β = 0.2 beats β = 1",
                unjudged(better(regimes, *pair, MARGIN["random_mdp"], SEEDS["tabular"], "final", 2),
                         "at one η for both, which was tuned for neither"),
                regimes, pair, True)  # fmt: skip


# Figures and Table 3


def named(method: str) -> dict[str, str]:
    return {f"β = {beta}": f"{method} beta={beta}" for beta in BETAS}


def planned(task: str) -> int:
    return int(SEEDS["cartpole" if task == "cartpole" else "mujoco"])


def of_figure1(parts: Parts, tuning: Tuning) -> Iterator[Claim]:
    for task in ("cartpole", "halfcheetah"):
        title, margin, seeds = TASKS[task], MARGIN[task], planned(task)
        for method, name in METHODS.items():
            beta, rows, finding = BEST[task, method], named(method), f"{title}, {name}"
            pair = (f"{method} beta={beta}", "pavg")
            part = sampled(parts, task, pair)
            yield Claim("Figure 1", f"{title}: {name} with β = {beta} beats PAvg over the run",
                        fair(tuning, part, pair, better(part, *pair, margin, seeds)), part,
                        pair, finding=finding)  # fmt: skip
            every = ["pavg", *rows.values()]
            part = sampled(parts, task, every)
            yield Claim("Figure 1", f"{title}: {name} with {ONE_OF} beats PAvg over the run",
                        fair(tuning, part, every, some(part, rows, "pavg", margin, seeds, "area")),
                        part, every, finding=finding)  # fmt: skip
        part = sampled(parts, task, PAIRED)
        text = fair(tuning, part, PAIRED, less_variance(part, PAIRS, seeds))
        yield less_varied(title, unjudged(text, different_steps(part, PAIRS.values())), part)
        if task == "cartpole":
            part = parts["equal_step"]
            yield less_varied(title, less_variance(part, PAIRS, seeds), part,
                              f", with η = {part.first.recipe['algorithm']['lr']:g} for both "
                              "(records `equal_step`)")  # fmt: skip
            part = parts["release"]
            yield less_varied(title, less_variance(part, PAIRS, int(SEEDS["release"])), part,
                              ", at the release's steps (records `release`)")  # fmt: skip


def less_varied(title: str, text: str | None, part: Part, more: str = "") -> Claim:
    return Claim("Figure 1", f"{title}: FedHAPG-M has less variance than FedSVRPG-M{more}", text,
                 part, PAIRED, rule="less_variance", finding=f"{title}, variance")  # fmt: skip


def at_papers_steps(parts: Parts) -> Iterator[Claim]:
    """Figure 1 with one step size for all, in the readings that Table 3 has, too."""
    margin, less = MARGIN["cartpole"], ", one for all, not tuned for PAvg"
    for said, part, start in readings(parts):
        for method, name in METHODS.items():
            rows = {label: start + row for label, row in named(method).items()}
            base, seeds = f"{start}pavg", len(part.first.seeds)
            text = some(part, rows, base, margin, seeds, "area")
            yield Claim("Figure 1", f"CartPole: {name} with {ONE_OF} beats PAvg over the run at "
                        f"the paper's own steps{less} ({said})",
                        beside(text, part, rows, base, margin), part, [base, *rows.values()],
                        rule="own_steps", finding=f"{name}, own steps")  # fmt: skip


def readings(parts: Parts) -> Iterator[tuple[str, Part, str]]:
    """The paper's own steps on CartPole: in words, the part, and how its cells' names start."""
    own, start = parts["paper_steps"], "eta=0.75,lambda=0.6,"
    yield "η = 0.75, λ = 0.6, g as written", own, f"{start}formula,"
    yield "η = 0.75, λ = 0.6, returns standardised", own, f"{start}standardised,"
    yield "as the authors' release computes", parts["release"], ""


def beside(
    text: str | None, part: Part, rows: Mapping[str, str], base: str, margin: float
) -> str | None:
    """With what a gain over the run does not say: which is below the margin, and what of it is left
    at the end."""
    if text is None or HOLDS not in text:
        return text
    little, ends = [], []
    for label, name in rows.items():
        gain, end = (difference(part, name, base, over) for over in ("area", "final"))
        assert gain is not None
        assert end is not None
        little += [label] * (sum(gain[0]) < margin)
        ends.append(f"{label}: {signed(end[0])}")
    less = f"; below the margin of {margin:g}: {', '.join(little)}" if little else ""
    return f"{text}{less}; at the end {', '.join(ends)}"


def of_figure2(parts: Parts) -> Iterator[Claim]:
    margin, seeds = MARGIN["cartpole"], int(SEEDS["cartpole"])
    for method, name in METHODS.items():
        for said, part, start in (
            ("η = 0.05, λ = 0.5, its own", parts["paper_agents"], "formula,"),
            ("its steps, returns standardised", parts["paper_agents"], "standardised,"),
            ("steps as tuned for N = 5", parts["figure2"], ""),
        ):
            eight, four = (f"{start}{method} beta=0.2,N={n}" for n in (8, 4))
            found = better(part, eight, four, margin, seeds)
            if not start:
                found = unjudged(found, "for which no N but 5 was tuned")
            yield Claim("Figure 2", f"more agents are better: {name}, N = 8 against 4 ({said})",
                        found, part, (eight, four), finding=name)  # fmt: skip


def of_table3(parts: Parts, paper: Tables, tuning: Tuning) -> Iterator[Claim]:
    for task in ("cartpole", "walker2d"):
        pair = ("fedhapg-m beta=0.8", "pavg")
        part = sampled(parts, task, pair)
        text = better(part, *pair, MARGIN[task], planned(task), "final")
        said = f"{TASKS[task]}: FedHAPG-M with β = 0.8 ends above PAvg"
        yield Claim("Table 3", said, fair(tuning, part, pair, text), part, pair)
    for said, part, start in readings(parts):
        cells = [f"{start}{learner}" for learner in paper]
        yield Claim("Table 3", f"CartPole: its levels at the paper's own steps ({said})",
                    levels(part, start, paper), part, cells, finding="levels")  # fmt: skip


def levels(part: Part, start: str, paper: Tables) -> str | None:
    """Returns at the end of training, each within the paper's ± and our interval."""
    words, told = [], []
    for learner, said in paper.items():
        ours = part.final(f"{start}{learner}")
        if ours is None:
            return None
        theirs, spread = map(float, said["cartpole"].split(" ± "))
        mean, half = map(float, plots.interval(ours))
        words.append(HOLDS if abs(mean - theirs) <= spread + half else FAILS)
        told.append(f"{learner.replace('beta=', 'β = ')} {mean:.1f} ± {half:.1f} ({theirs:.1f})")
    return f"**{together(words)}** ({'; '.join(told)}; the paper's in brackets)"


# Theorems


def together_told(told: Mapping[str, str | None]) -> str | None:
    """Of both methods; nothing is judged of both where one is not."""
    known = {name: text for name, text in told.items() if text is not None}
    if len(known) < len(told):
        return None
    text = "; ".join(f"{name}: {said}" for name, said in known.items())
    if any(said.startswith(NOT_JUDGED) for said in known.values()):
        return f"{NOT_JUDGED}: {unmarked(text)}"
    return text


def of_theorems(parts: Parts) -> Iterator[Claim]:
    part = parts["theorems"]
    methods = {name: Theorems(part, method) for method, name in METHODS.items()}
    for one in methods.values():
        yield Claim(WHERE[one.method], "mean ‖∇J‖² is below the bound, at the parameters it "
                    "prescribes", one.bound(), part, one.names, rule="bound")  # fmt: skip
    for name, one in methods.items():
        yield Claim("Corollary 6.6", f"trajectories per agent to an ε-FOSP fall as 1/N: {name}",
                    one.complexity(), part, one.names, rule="complexity")  # fmt: skip
    told = {name: one.speed_up() for name, one in methods.items()}
    text = together_told(told)
    yield Claim("Table 1", "linear speed-up in N of both methods: mean ‖∇J‖², at the theorems' "
                "parameters, falls with N as the bounds' first term", text, part,
                rule="speed_up")  # fmt: skip
    speedup = parts["speedup"]
    for beta in speedup.axis("beta"):
        cells = [name for name in speedup.cells if name.endswith(f"beta={beta}")]
        yield Claim("Theorem 6.4", f"the error of the server's direction falls as 1/N, β = {beta}",
                    direction(speedup, beta), speedup, cells, True)  # fmt: skip


# What the paper does not compare with


def champion(tuning: Tuning, part: str) -> str | None:
    """FedSVRPG-M's β with the best mean return on the tuning seeds."""
    found = {}
    for name in named("fedsvrpg-m").values():
        one = tuning.choice(part, name)
        if one is None:
            return None
        found[name] = one.score
    return max(found, key=lambda name: found[name])


def of_rivals(parts: Parts, tuning: Tuning) -> Iterator[Claim]:
    for key, title, margin, seeds, digits in (
        ("best_cartpole", "CartPole", MARGIN["cartpole"], SEEDS["cartpole"], 1),
        ("best_mdp", "random MDPs", MARGIN["random_mdp"], SEEDS["tabular"], 3),
        ("long_halfcheetah", "HalfCheetah", MARGIN["halfcheetah"], SEEDS["mujoco"], 1),
    ):
        part = parts[key]
        ours = champion(tuning, tuning.after[key])
        for rival in (n for n in part.cells if not n.startswith(tuple(METHODS))):
            text, said, pair = None, "", [rival]
            if ours is not None:
                pair, said = [ours, rival], f" (β = {ours.partition('=')[2]})"
                text = better(part, ours, rival, margin, int(seeds), "area", digits)
            name = shown(rival) + (" without its filter" if rival == "fedpg-br" else "")
            yield Claim("Section 7", f"{title}: FedSVRPG-M{said} is better than {name} "
                        "over the run, each with the steps that its tuning found",
                        fair(tuning, part, pair, text), part, pair, True)  # fmt: skip


def of_unequal(parts: Parts) -> Iterator[Claim]:
    part, pair = parts["unequal_cartpole"], ("fedsvrpg-m beta=0.8", "fednova")
    text = better(part, *pair, MARGIN["cartpole"], int(SEEDS["cartpole"]))
    yield Claim("Section 7", "CartPole, clients with 2 to 24 local steps: FedSVRPG-M (β = 0.8) is "
                "better than FedNova over the run", unjudged(text, "steps as tuned for equal "
                "numbers"), part, pair, True)  # fmt: skip


def of_bodies(parts: Parts, tuning: Tuning) -> Iterator[Claim]:
    for task in ("cartpole", "halfcheetah"):
        part = parts[f"bodies_{task}"]
        for knob in part.axis("knob"):
            ours = champion(tuning, f"lambda_{task}") if task == "cartpole" else BETA_OF_CHEETAH
            known = ours is not None and f"{knob},{ours}" in part.cells
            pair = (f"{knob},{ours}", f"{knob},pavg")
            text = better(part, *pair, MARGIN[task], planned(task)) if known else None
            yield Claim("Section 7", f"{TASKS[task]}, clients that differ ({knob}): FedSVRPG-M "
                        "beats PAvg over the run", unjudged(text, "steps as tuned without "
                        "these"), part, pair, True)  # fmt: skip


BETA_OF_CHEETAH = "fedsvrpg-m beta=0.5"
