"""The parts of FedAgent's page that change one setting: how it is federated, and among whom."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedrl.core.number_format import si
from fedrl.runs.grid import Trained
from reproductions.fedagent import cells as plan
from reproductions.fedagent import figures
from reproductions.fedagent.claims import PARTITIONS, Found, Parts, success
from reproductions.fedagent.numbers import compared, shown
from reproductions.markdown import table

Lines = dict[str, Trained]
NOTHING = "Not measured at this scale yet."


def setting(found: Found) -> str:
    """What the runs have in common, in words."""
    cell = found["fedagent"].cell
    config = cell.config(cell.seeds[0], Path())
    algorithm, learner = config.algorithm, estimator(cell.recipe)
    text = f"""{parameters(Path(algorithm.model))}{config.federation.clients} clients with
        {config.partition.size} tasks each, M = {cell.clients_per_round} clients per round,
        τ = {algorithm.local_epochs} local epochs of {algorithm.tasks} tasks × {algorithm.group}
        episodes at temperature {algorithm.temperature:g}, paid by {algorithm.reward}, {learner}
        {"with every episode weighing the same" if algorithm.by_episode else "over tokens"},
        AdamW {algorithm.lr:g}, KL {algorithm.kl:g}, at most {config.world.max_steps} steps per
        episode. The run's `config.toml` has the rest."""
    return textwrap.fill(" ".join(text.split()), 100)


def estimator(recipe: Mapping[str, Any]) -> str:
    name = plan.estimator_of(recipe)
    return plan.ESTIMATORS.get(name, name)


def parameters(model: Path) -> str:
    """How large the model is and what it was shown, where its folder is at hand."""
    record = model / "warmstart.json"
    if not record.is_file():
        return ""
    about = json.loads(record.read_text(encoding="utf-8"))
    name = Path(about["settings"]["model"]).name
    model_name = "The built-in model" if name == "builtin" else name
    return (
        f"{model_name} of {si(about['parameters'], digits=2)} parameters has imitated the expert "
        f"on {len(about['tasks'])} public tasks. "
    )


def side_rounds(parts: Parts, part: str) -> int:
    """The rounds that a part's cells run when nothing else scales them."""
    return max(
        one.cell.rounds
        for one in parts[part].values()
        if one.cell.local_epochs == plan.LOCAL_EPOCHS
    )


def rows_of(lines: Mapping[str, Trained], rounds: int, base: str) -> list[list[str]]:
    """Name, success at the end, and the comparison with the line `base`."""
    ends = {
        name: one.value("eval/success", rounds if one.cell.part == "main" else None)
        for name, one in lines.items()
    }
    return [
        [name, shown(values), "–" if name == base else compared(values, ends[base])]
        for name, values in ends.items()
    ]


def usual(parts: Parts) -> Trained:
    return parts["main"]["fedagent"]


def begun(*several: Found) -> bool:
    return all(any(one.runs for one in found.values()) for found in several)


def decentralized(parts: Parts, pictures: Path) -> str:
    title = "### Decentralized settings"
    found = parts["decentralized"]
    if not begun(found, parts["main"]):
        return f"{title}\n\n{NOTHING}"
    rounds, share = side_rounds(parts, "decentralized"), usual_share(parts)
    (one, four), (little, much), (small, large) = plan.COHORTS, plan.EPOCHS, plan.SHARES
    main = usual(parts)
    settings: dict[str, Lines] = {
        "clients per round": {
            f"M = {one}": found[f"clients-{one}"], f"M = {plan.COHORT}": main,
            f"M = {four}": found[f"clients-{four}"],
        },
        "epochs per round": {
            f"τ = {little}": found[f"epochs-{little}"], f"τ = {plan.LOCAL_EPOCHS}": main,
            f"τ = {much}": found[f"epochs-{much}"],
        },
        "tasks per client": {
            f"{small} tasks": found[f"tasks-{small}"], f"{share} tasks": main,
            f"{large} tasks": found[f"tasks-{large}"],
        },
    }  # fmt: skip
    rows = []
    for name, lines in settings.items():
        base = list(lines)[1]
        rows += [[name, *row] for row in rows_of(lines, rounds, base)]
    image = figures.sides(settings, rounds, pictures, "decentralized", "decentralized settings")
    return f"""{title}

{rounds} rounds of τ = {plan.LOCAL_EPOCHS}; other τ have their rounds scaled to the same number of
local epochs. The paper (Qwen2.5-1.5B): 5 epochs per round do better than 1, 2 clients per round do
better than 1 or 4 on ALFWorld, and 100, 500 or 1,000 tasks per client make hardly a difference.

{table(("setting", "", "success", "against the middle row"), rows)}

{image}"""


def usual_share(parts: Parts) -> int:
    return int(usual(parts).cell.recipe["partition"]["size"])


def heterogeneity(parts: Parts, pictures: Path) -> str:
    title = "### Heterogeneity"
    found = parts["heterogeneity"]
    if not begun(found, parts["main"]):
        return f"{title}\n\n{NOTHING}"
    rounds = side_rounds(parts, "heterogeneity")
    rows, panels = [], {}
    for name, symbol in PARTITIONS.items():
        key = "omega" if name == "preference" else "xi"
        mild, extreme = found[f"{name}-mild"], found[f"{name}-extreme"]
        first, second = success(found, f"{name}-mild"), success(found, f"{name}-extreme")
        rows.append([
            f"{name} ({symbol} = {plan.MILD[key]:g} and {plan.EXTREME[key]:g})",
            shown(first), shown(second), compared(second, first),
        ])  # fmt: skip
        panels[f"{name} ({symbol})"] = {"mild": mild, "extreme": extreme, "uniform": usual(parts)}
    image = figures.sides(panels, rounds, pictures, "heterogeneity", "three kinds of heterogeneity")
    uniform = shown(usual(parts).value("eval/success", rounds))
    return f"""{title}

{rounds} rounds. Uniform clients reach {uniform} in as many. Hardness is by what the warm-started
model solves. The paper: hardly a difference between mild and extreme, for all three.

{table(("clients differ in", "mild", "extreme", "extreme against mild"), rows)}

{image}"""


def estimators(parts: Parts, pictures: Path) -> str:
    title = "### Estimators"
    found = parts["estimators"]
    if not begun(found, parts["main"]):
        return f"{title}\n\n{NOTHING}"
    rounds = side_rounds(parts, "estimators")
    main = usual(parts)
    base = estimator(main.cell.recipe)
    lines = {base: main} | {plan.ESTIMATORS[name]: one for name, one in found.items()}
    image = figures.sides({"estimators": lines}, rounds, pictures, "estimators", "estimators")
    return f"""{title}

{rounds} rounds. {base} is what the other parts use; the paper uses GRPO.

{table(("", "success", f"against {base}"), rows_of(lines, rounds, base))}

{image}"""


def momentum(parts: Parts, pictures: Path) -> str:
    title = "### Momentum against heterogeneity"
    found = parts["momentum"]
    if not begun(found):
        return f"{title}\n\n{NOTHING}"
    rounds = side_rounds(parts, "momentum")
    plain, anchored = (plan.REMEDIES[name][0] for name in ("unanchored", "anchored"))
    hard: Lines = {"FedAgent": found["extreme"]} | {
        label: found[f"extreme-{name}"]
        for name, (label, _) in plan.REMEDIES.items()
        if f"extreme-{name}" in found
    }
    mild: Lines = {
        "FedAgent": parts["heterogeneity"]["preference-mild"],
        plain: found["mild-unanchored"],
        anchored: found["mild-anchored"],
    }
    rows = [["extreme", *row] for row in rows_of(hard, rounds, plain)]
    rows += [["mild", *row] for row in rows_of(mild, rounds, plain)]
    panels = {"extreme": hard, "mild": mild}
    image = figures.sides(panels, rounds, pictures, "momentum", "momentum and heterogeneity")
    return f"""{title}

Not in the paper: FedSVRPG-M's anchored momentum (`algorithm.beta`) carried over to language agents,
and other remedies for clients that differ. {rounds} rounds. *Extreme*: ω = {
        plan.EXTREME["omega"]
    } with {plan.FEW} tasks
per client. *Mild*: ω = {plan.MILD["omega"]} with {usual_share(parts)}. The anchored objective is
another one than GRPO's (no clipped ratio, a sum over an answer's tokens), so β = 0.5 stands against
the same objective with β all but 1.

{table(("clients", "", "success", "against β → 1"), rows)}

{image}"""
