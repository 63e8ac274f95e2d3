"""The paper's Figures 5 to 16: what 100 clients hold, with a mild and a strong knob each.

    FEDRL_DATA=… fedrl reproduce partitions

Nothing is trained and nothing sampled but the partitions themselves, by seed 0. The pictures show
counts of tasks by client; no task is named or quoted. Hardness is by the labels of the model that
the authors used, which lie beside the data.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrl.api.figures import draw
from fedrl.api.text_worlds import partition_tasks
from fedrl.core.types import UserError
from reproductions.pages import filled, markdown_table

CLIENTS, SIZE, SEED = 100, 100, 0
LABELS = "labels_qwen2.5-1.5b.json.gz"
DRAWN_LABELS = 0.4
"""Share of generated tasks that count as solved where there are no labels."""
NAMES = {"preference": "Preference", "coverage": "Coverage", "hardness": "Hardness"}
SYMBOLS = {"preference": ("ω", "omega"), "coverage": ("ξ", "xi"), "hardness": ("ξ′", "xi")}


@dataclass(frozen=True)
class Picture:
    """One figure of the paper."""

    number: int
    world: str
    strategy: str
    knob: float

    @property
    def name(self) -> str:
        return f"figure-{self.number:02d}"

    @property
    def title(self) -> str:
        symbol, _ = SYMBOLS[self.strategy]
        return f"{self.world}, {NAMES[self.strategy].lower()}, {symbol} = {self.knob:g}"


def pictures() -> list[Picture]:
    """In the paper's order."""
    knobs = {"preference": (0.1, 0.9), "coverage": (1.0, 256.0), "hardness": (1.0, 256.0)}
    told = ((strategy, world, knob) for strategy, both in knobs.items()
            for world in ("WebShop", "ALFWorld") for knob in both)  # fmt: skip
    return [Picture(5 + at, world, strategy, knob)
            for at, (strategy, world, knob) in enumerate(told)]  # fmt: skip


def world_of(picture: Picture, data: Path | None) -> dict[str, Any]:
    """The genuine world, or a generated one. Labels of the shop are of its faithful goals."""
    shop = picture.world == "WebShop"
    world: dict[str, Any] = {"name": "webshop" if shop else "household"}
    if data is not None:
        world["source"] = str(data / ("webshop" if shop else "alfworld"))
    return world | ({"faithful": True} if shop and data is not None else {})


def dealt(picture: Picture, data: Path | None) -> Any:
    _, key = SYMBOLS[picture.strategy]
    settings: dict[str, Any] = {"strategy": picture.strategy, "size": SIZE, key: picture.knob}
    world, rate = world_of(picture, data), None
    if picture.strategy == "hardness" and data is not None:
        labels = Path(world["source"]) / LABELS
        settings |= {"labels": str(labels), "unlabelled": "leave_out"}
    elif picture.strategy == "hardness":
        rate = DRAWN_LABELS
    return partition_tasks(world, CLIENTS, seed=SEED, success_rate=rate, **settings)


def row(picture: Picture, found: Any) -> list[str]:
    """What differs between clients, beside what chance alone would make of it."""
    m = found.measures
    success = "–"
    if m.success_mean is not None:
        success = f"{m.success_mean:.2f} ± {m.success_std:.3f} (by chance ± {m.success_chance:.3f})"
    return [
        f"[{picture.number}](#figure-{picture.number})", picture.title, f"{m.tasks:,}",
        f"{m.size_mean:.0f} ± {m.size_std:.1f}",
        f"{m.category_divergence:.3f} (by chance {m.category_chance:.3f})", success,
    ]  # fmt: skip


HEAD = ("figure", "", "tasks dealt", "tasks per client", "divergence of categories",
        "success rate of a client's tasks")  # fmt: skip


def write(page: Path, data: Path | None) -> None:
    """The page with its pictures in a folder beside it."""
    for name in ("webshop", "alfworld") if data else ():
        if data is not None and not (data / name).is_dir():
            raise UserError(f"FEDRL_DATA has no folder {name}")
    folder = page.with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    rows, sections = [], []
    for picture in pictures():
        found = dealt(picture, data)
        draw(found, folder / f"{picture.name}.png")
        rows.append(row(picture, found))
        link = f"![{picture.title}]({folder.name}/{picture.name}.png)"
        sections += [f"## Figure {picture.number}", f"{picture.title}.", link]
    page.write_text("\n\n".join([*introduction(data), markdown_table(HEAD, rows), *sections])
                    + "\n", encoding="utf-8")  # fmt: skip


def introduction(data: Path | None) -> Iterator[str]:
    whose = (
        "the genuine games of ALFWorld and the genuine catalogue of WebShop with 1,000 products"
        if data
        else "generated worlds, because FEDRL_DATA is not set: these are not the paper's tasks"
    )
    labels = (
        "the labels of Qwen2.5-1.5B, which the authors published; goals without one are left out"
        if data
        else f"labels that are drawn, {DRAWN_LABELS:.0%} of the tasks solved"
    )
    yield "# FedAgent's Figures 5 to 16: what clients hold"
    yield filled(
        f"Written by `fedrl reproduce partitions` from {whose}; {CLIENTS} clients with {SIZE} "
        f"tasks each on average, seed {SEED}. Hardness is by {labels}. The paper shows its clients "
        "for the same knobs; its draws are others. [The results](fedagent.md) say what became of "
        "it. Divergence is the share of a client's tasks to exchange for the mix of the pool."
    )
    yield filled(
        "Preference is the paper's Algorithm 2, whose log(p/(1 − p)) favours large categories: "
        "where one of them has most of the pool, clients hold even more of it at any ω, and are "
        "unlike the pool rather than unlike each other (`partition.anchor` has the other reading)."
    )
