"""FedAgent's tables and figures of one setting changed, beside the main comparison."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, partial
from typing import Any

from reproductions.fedagent import figures
from reproductions.fedagent.claims import (
    PARTITIONS,
    SUCCESS,
    compared_rows,
    labels,
    points,
    shown,
    strengths,
)
from reproductions.fedagent.run_settings import ESTIMATORS
from reproductions.fedagent.tables import Analysis, any_runs
from reproductions.results import Runs, Trained
from reproductions.verdicts import signed

REMEDIES = {
    "unanchored": "anchored momentum, β → 1",
    "anchored": "anchored momentum, β = 0.5",
    "prox": "FedProx, μ = 0.01",
    "server": "server momentum 0.9, step 0.3",
}
"""What is tried against clients that differ, as tables name it."""


class SideParts:
    """What the page's template shows of them."""

    def __init__(self, analysis: Analysis) -> None:
        self.a = analysis

    @property
    def usual(self) -> Trained:
        return self.a.parts["main"]["fedagent"]

    def _rounds(self, part: str) -> int:
        """The rounds that a part's cells run when nothing else scales them."""
        epochs = self.usual.cell.local_epochs
        several = self.a.parts[part].values()
        return max(one.cell.rounds for one in several if one.cell.local_epochs == epochs)

    def _side(self, part: str, alt: str, panels: Mapping[str, Runs], **more: Any) -> dict[str, Any]:
        rounds, own = self._rounds(part), self.a.parts[part]
        lines = [one for panel in panels.values() for one in panel.values()]
        draw = partial(figures.sides, panels, rounds)
        main = {"FedAgent of the main comparison": self.usual} if self.usual in lines else {}
        return {
            "rounds": rounds,
            "settings": self.a.settings(part, list(own.values()), main),
            "picture": self.a.picture(part, alt, lines, draw),
            **more,
        }

    @cached_property
    def decentralized(self) -> dict[str, Any]:
        found, cell = self.a.parts["decentralized"], self.usual.cell
        share = cell.recipe["partition"]["size"]
        settings: dict[str, Runs] = {}
        for title, axis, form, name, middle in (
            ("clients per round", "clients", "M = {}", "clients", cell.clients_per_round),
            ("epochs per round", "epochs", "τ = {}", "epochs", cell.local_epochs),
            ("tasks per client", "size", "{} tasks", "tasks", share),
        ):
            low, high = labels(found, axis)
            settings[title] = {
                form.format(low): found[f"{name}-{low}"],
                form.format(middle): self.usual,
                form.format(high): found[f"{name}-{high}"],
            }
        rounds = self._rounds("decentralized")
        rows = [[title, *row] for title, lines in settings.items()
                for row in compared_rows(lines, rounds, list(lines)[1])]  # fmt: skip
        head = ("setting", "", "success", "against the middle row")
        table = self.a.page.table("decentralized", head, rows, keys=2)
        return self._side("decentralized", "decentralized settings", settings,
                          rows=table, epochs=cell.local_epochs)  # fmt: skip

    @cached_property
    def heterogeneity(self) -> dict[str, Any]:
        found, rows, panels = self.a.parts["heterogeneity"], [], {}
        for name in PARTITIONS:
            symbol, (weak, strong) = strengths(found, name)
            mild, extreme = (found[f"{name}-{word}"] for word in ("mild", "extreme"))
            first, second = mild.value(SUCCESS), extreme.value(SUCCESS)
            label = f"{name} ({symbol} = {weak:g} and {strong:g})"
            difference = points(second, first)
            apart = None if difference is None else signed(difference)
            rows.append([label, shown(first), shown(second), apart])
            panels[f"{name} ({symbol})"] = {"mild": mild, "extreme": extreme, "uniform": self.usual}
        uniform = shown(self.usual.value(SUCCESS, self._rounds("heterogeneity")))
        head = ("clients differ in", "mild", "extreme", "extreme − mild, points")
        return self._side("heterogeneity", "three kinds of heterogeneity", panels,
                          rows=self.a.page.table("heterogeneity", head, rows),
                          uniform=self.a.page.text("uniform", uniform))  # fmt: skip

    @cached_property
    def estimators(self) -> dict[str, Any]:
        base = estimator(self.usual)
        lines = {base: self.usual}
        lines |= {ESTIMATORS[name]: one for name, one in self.a.parts["estimators"].items()}
        rows = compared_rows(lines, self._rounds("estimators"), base)
        table = self.a.page.table("estimators", ("", "success", f"against {base}"), rows)
        return self._side("estimators", "estimators", {"estimators": lines}, rows=table, base=base)

    @cached_property
    def drift(self) -> str:
        """FedProx and a server optimiser beside the plain average; nothing without records."""
        found = self.a.parts.get("drift", {})
        if not any_runs(found):
            return ""
        lines = {"FedAgent": self.usual} | {REMEDIES[name]: one for name, one in found.items()}
        rows = compared_rows(lines, self.usual.cell.rounds, "FedAgent")
        return self.a.page.table("drift", ("", "success", "against FedAgent"), list(rows))

    @property
    def drift_settings(self) -> str:
        lines = list(self.a.parts["drift"].values())
        return self.a.settings("drift", lines, {"FedAgent of the main comparison": self.usual})

    @cached_property
    def momentum(self) -> dict[str, Any]:
        found, mild = self.a.parts["momentum"], self.a.parts["heterogeneity"]["preference-mild"]
        if not any_runs(found):  # what was published of these rows was beside an earlier run
            mild = Trained(mild.cell, {})
        hard = found["extreme"]
        panels: dict[str, Runs] = {
            word: {"FedAgent": base}
            | {label: found[f"{word}-{name}"] for name, label in REMEDIES.items()
               if f"{word}-{name}" in found}
            for word, base in (("extreme", hard), ("mild", mild))
        }  # fmt: skip
        rounds, plain = self._rounds("momentum"), REMEDIES["unanchored"]
        rows = [[word, *row] for word, lines in panels.items()
                for row in compared_rows(lines, rounds, plain)]  # fmt: skip
        head = ("clients", "", "success", "against β → 1")
        return self._side("momentum", "momentum and heterogeneity", panels,
                          rows=self.a.page.table("momentum", head, rows, keys=2),
                          extreme=hard.cell.recipe["partition"],
                          mild=mild.cell.recipe["partition"])  # fmt: skip


def estimator(one: Trained) -> str:
    name = str(one.cell.recipe["algorithm"].get("estimator", "grpo"))
    return ESTIMATORS.get(name, name)
