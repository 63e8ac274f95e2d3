"""What the clients of a partition hold, in one figure (FedAgent's Figures 5 to 16).

    preference, uniform   tasks of every category
    coverage              tasks
    hardness              tasks that succeed and tasks that fail
    scenes                tasks of every scene, coloured by the kind of room

Up to `CLIENT_BY_CLIENT` clients have a bar each; of more, the figure shows the distribution over
clients, since bars thinner than a dot say nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedrl.partition import Measures, Settings, TaskLike
from fedrl.partition.labels import successes
from fedrl.partition.measures import Table, codes, tabulate
from fedrl.report import plots

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

CLIENT_BY_CLIENT = 200
NUMBERED = 40
"""As many bars leave room for a number above each."""
SIZE = (8.6, 3.3)
REST = "#b4bac6"
"""The colour of what is not told apart: failed tasks, and categories beyond the palette."""


def figure(
    partition: Sequence[Sequence[str]],
    tasks: Sequence[TaskLike],
    settings: Settings,
    measures: Measures,
    labels: Mapping[str, bool] | None,
) -> Figure:
    """The strategy's own characteristic, by client."""
    import matplotlib

    table = tabulate(partition, tasks)
    result, (axes,) = plots.figure(1, SIZE)
    few = len(partition) <= CLIENT_BY_CLIENT
    with matplotlib.rc_context(plots.STYLE):
        axes.grid(visible=False, axis="x" if few else "both")
        if settings.strategy == "coverage":
            (_size_bars if few else _size_histogram)(axes, table)
        elif settings.strategy == "hardness":
            won = successes(tasks, labels)
            (_success_bars if few else _success_histogram)(axes, table, won)
        elif settings.strategy == "scenes":
            (_scene_bars if few else _scene_histogram)(axes, table, [task.scene for task in tasks])
        else:
            names, kind = _kinds([task.category for task in tasks])
            (_category_bars if few else _category_bands)(axes, table, names, kind)
        axes.set_title(title(settings, measures))
        if len(axes.get_legend_handles_labels()[1]) > 1:
            plots.legend(result, axes)
    return result


def title(settings: Settings, measures: Measures) -> str:
    """The strategy, its knob, and the heterogeneity that came of it."""
    category = (
        f"category divergence {measures.category_divergence:.3f} "
        f"(by chance {measures.category_chance:.3f})"
    )
    count = f"{measures.clients:,} client{'s' if measures.clients > 1 else ''}"
    if settings.strategy == "preference":
        return f"Preference, ω = {settings.omega:g}, {count}: {category}"
    if settings.strategy == "coverage":
        sizes = f"{measures.size_mean:.0f} ± {measures.size_std:.1f} tasks each"
        return f"Coverage, ξ = {settings.xi:g}, {count}: {sizes}"
    if settings.strategy == "hardness":
        assert measures.success_mean is not None
        rate = (
            f"success rate {measures.success_mean:.2f} ± {measures.success_std:.3f} "
            f"(by chance ± {measures.success_chance:.3f})"
        )
        return f"Hardness, ξ′ = {settings.xi:g}, {count}: {rate}"
    if settings.strategy == "scenes":
        scene = f"scene divergence {measures.scene_divergence:.3f}"
        return f"Scenes, {count}: {scene} (by chance {measures.scene_chance:.3f})"
    return f"{settings.strategy.capitalize()}, {count}: {category}"


def _kinds(names: Sequence[str]) -> tuple[list[str], np.ndarray]:
    """Names of the kinds of task, largest first, and each task's; the smallest share one colour."""
    kind = codes(names)
    order = np.argsort(-np.bincount(kind), kind="stable")
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    unique = np.unique(np.array(names, dtype=str))[order]
    shown = [name.replace("_", " ") or "(none)" for name in unique]
    most = len(plots.PALETTE)
    if len(shown) > most:
        rest = len(shown) - (most - 1)
        shown = [*shown[: most - 1], f"{rest} others"]
        place = np.minimum(place, most - 1)
    return shown, place[kind]


def _colour(index: int, names: Sequence[str]) -> str:
    return REST if names[index].endswith(" others") else plots.PALETTE[index]


def _stack(axes: Axes, counts: np.ndarray, names: Sequence[str], colours: Sequence[str]) -> None:
    """One bar per client: counts [K, C] on top of each other."""
    at = np.arange(len(counts))
    floor = np.zeros(len(counts))
    for column, name, colour in zip(counts.T, names, colours, strict=True):
        axes.bar(at, column, 0.86, floor, color=colour, label=name, linewidth=0)
        floor += column
    _client_axis(axes, floor)


def _client_axis(axes: Axes, heights: np.ndarray) -> None:
    """Axes around a bar for each client, with ticks at clients that there are."""
    from matplotlib.ticker import MaxNLocator

    clients = len(heights)
    axes.set_xlabel("client")
    axes.set_ylabel("tasks")
    axes.set_xlim(-1, clients)
    axes.set_ylim(0, 1.05 * max(heights.max(), 1))
    ticks = MaxNLocator(7, integer=True, steps=[1, 2, 5, 10]).tick_values(0, max(clients - 1, 1))
    axes.set_xticks([tick for tick in ticks if 0 <= tick < clients])
    _whole(axes.yaxis)


def _whole(axis: Axis) -> None:
    """Ticks at whole numbers: there are no half tasks."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator("auto", integer=True, steps=[1, 2, 2.5, 5, 10]))


def _category_bars(axes: Axes, table: Table, names: Sequence[str], kind: np.ndarray) -> None:
    """Bars, and to their right the pool in the same height for the eye to compare with."""
    counts = table.counts(kind)
    colours = [_colour(index, names) for index in range(len(names))]
    _stack(axes, counts, names, colours)
    share = np.bincount(kind) / len(kind)
    clients, height, floor = len(counts), float(table.sizes.mean()), 0.0
    width = max(0.8, 0.035 * clients)
    where = clients - 0.5 + width
    for part, colour in zip(share * height, colours, strict=True):
        axes.bar(where, part, width, floor, color=colour, linewidth=0)
        floor += part
    axes.set_xlim(-1 - 0.01 * clients, where + 0.8 * width)
    near = where - max(0.9, 0.06 * clients)  # a number there would run into the word
    ticks = [tick for tick in axes.get_xticks() if 0 <= tick <= near]
    axes.set_xticks([*ticks, where], [*(f"{tick:.0f}" for tick in ticks), "pool"])


def _category_bands(axes: Axes, table: Table, names: Sequence[str], kind: np.ndarray) -> None:
    """Of every category's share: the middle half and nine tenths of the clients, and the pool's."""
    held = table.sizes > 0
    shares = table.counts(kind)[held] / table.sizes[held, None]
    low, lower, middle, upper, high = np.quantile(shares, (0.05, 0.25, 0.5, 0.75, 0.95), axis=0)
    pool = np.bincount(kind) / len(kind)
    for start, stop, alpha, name in (
        (low, high, 0.3, "nine tenths of the clients"),
        (lower, upper, 1.0, "the middle half"),
    ):
        for index in range(len(names)):
            axes.barh(
                index,
                stop[index] - start[index],
                0.5,
                start[index],
                color=_colour(index, names),
                alpha=alpha,
                linewidth=0,
                label=name if index == 0 else "_",  # one entry of the legend for all categories
            )
    at = np.arange(len(names))
    axes.plot(middle, at, "|", color=plots.INK, markersize=14, markeredgewidth=1.6, label="median")
    axes.plot(pool, at, "d", color=plots.INK, markersize=5, label="pool")
    axes.set_yticks(at, names)
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    axes.grid(visible=True, axis="x")
    axes.set_xlabel("share of a client's tasks")


def _size_bars(axes: Axes, table: Table) -> None:
    _stack(axes, table.sizes[:, None], ["tasks"], plots.PALETTE[:1])
    mean = float(table.sizes.mean())
    axes.axhline(mean, color=plots.INK, linewidth=1, linestyle="--", label="mean")


def _size_histogram(axes: Axes, table: Table) -> None:
    _histogram(axes, table.sizes, 1, float(table.sizes.mean()), "mean")
    axes.set_xlabel("tasks of a client")
    _whole(axes.xaxis)


def _success_bars(axes: Axes, table: Table, won: np.ndarray) -> None:
    counts = table.counts(np.where(won, 0, 1))
    _stack(axes, counts, ["succeed", "fail"], [plots.PALETTE[2], REST])
    mean = float(table.sizes.mean() * won.mean())
    axes.axhline(mean, color=plots.INK, linewidth=1, linestyle="--", label="pool's success rate")


def _success_histogram(axes: Axes, table: Table, won: np.ndarray) -> None:
    wins = table.counts(np.where(won, 0, 1))[:, 0]
    _histogram(axes, wins, int(table.sizes.max()), float(won.mean()), "pool")
    axes.set_xlim(0, 1)
    axes.set_xlabel("success rate of a client's tasks")


def room_kind(scene: str) -> str:
    """`kitchen-12` and `kitchen12` are kitchens: what a scene's name is without its number."""
    return scene.rstrip("0123456789").rstrip("-_ ") or scene


def _scene_bars(axes: Axes, table: Table, scenes: Sequence[str]) -> None:
    """A bar of the client's scenes, neighbours in two shades of their room's colour."""
    names, kind = _kinds([room_kind(scene) for scene in scenes])
    scene = codes(scenes)
    # One piece per client and scene, in the order in which they lie on each other.
    pieces, tasks = np.unique(
        np.stack([table.client, kind[table.task], scene[table.task]]), axis=1, return_counts=True
    )
    client, room = pieces[0], pieces[1]
    bottom = np.cumsum(tasks) - tasks
    bottom -= bottom[_firsts(client)]
    light = (np.arange(len(client)) - _firsts(client * len(names) + room)) % 2 == 1
    for index, name in enumerate(names):
        colour = _colour(index, names)
        for which, shade, label in ((~light, colour, name), (light, _lighter(colour), "_")):
            here = which & (room == index)
            if here.any():
                axes.bar(
                    client[here], tasks[here], 0.86, bottom[here], color=shade, label=label, lw=0
                )
    _client_axis(axes, table.sizes)
    axes.set_xlabel("client (every band is a scene)")
    if len(table.sizes) <= NUMBERED:
        axes.set_xlabel("client (every band is a scene; above the bar: how many)")
        held = np.bincount(client, minlength=len(table.sizes))
        for where, (height, number) in enumerate(zip(table.sizes, held, strict=True)):
            axes.annotate(
                f"{number}", (where, height), (0, 2), textcoords="offset points", ha="center"
            )


def _firsts(values: np.ndarray) -> np.ndarray:
    """Where in sorted values each one's equals begin."""
    return np.searchsorted(values, values)


def _lighter(colour: str) -> tuple[float, ...]:
    """Half way to the paper; mixed, since a grid shines through what is transparent."""
    from matplotlib.colors import to_rgb

    return tuple((np.array(to_rgb(colour)) + to_rgb(plots.PAPER)) / 2)


def _scene_histogram(axes: Axes, table: Table, scenes: Sequence[str]) -> None:
    held = np.count_nonzero(table.counts(codes(scenes)), axis=1)
    _histogram(axes, held, 1, float(held.mean()), "mean")
    axes.set_xlabel("scenes of a client")
    _whole(axes.xaxis)


def _histogram(axes: Axes, values: np.ndarray, unit: int, mark: float, name: str) -> None:
    """Whole numbers, shown divided by `unit`: every bin holds as many of them as the next."""
    step = -(-(int(np.ptp(values)) + 1) // 50)
    edges = np.arange(values.min(), values.max() + step + 1, step) - 0.5
    axes.hist(
        values / unit, list(edges / unit), color=plots.PALETTE[0], linewidth=0, label="clients"
    )
    axes.axvline(mark, color=plots.INK, linewidth=1, linestyle="--", label=name)
    axes.grid(visible=True, axis="y")
    axes.set_ylabel("clients")
