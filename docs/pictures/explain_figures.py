"""Figures with numbers for the pages that explain: features, groups of episodes, shares."""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np
from svg import BLUE, COLOURS, GREEN, GREY, LINE, ORANGE, RED, Figure

from fedrl.algorithms.qhd import encoders
from fedrl.algorithms.qhd.ridge import Compiler


def value(x: np.ndarray) -> np.ndarray:
    """A value function of one number that is worth learning."""
    return np.exp(-((x - 0.35) ** 2) / 0.03) - 0.6 * np.exp(-((x + 0.4) ** 2) / 0.02) + 0.3 * x


def axes(f: Figure, left: float, top: float, width: float, height: float, low: float, high: float):
    f.box(left, top, width, height)
    return lambda x, y: (
        left + (x + 1) / 2 * width,
        top + height - (y - low) / (high - low) * height,
    )


def numbers_below(f: Figure, place: Callable, low: float, words: Collection[float]) -> None:
    """A scale of x below a panel."""
    for x in words:
        left, bottom = place(x, low)
        f.path([(left, bottom), (left, bottom + 4)], GREY, 1)
        said = f"{x:g}".replace("-", "−")
        f.text(left, bottom + 17, said, size=11, anchor="middle", colour=GREY)


def draw_one_feature() -> Figure:
    f = Figure(
        "Six random features of one number",
        "cos(ω x + b), with ω and b drawn once, for x from −1 to 1: σ says how quickly they wave",
        height=275,
    )
    grid = np.linspace(-1, 1, 200)
    for column, sigma in enumerate((0.5, 0.15)):
        encoder = encoders.draw(1, 6, sigma, 1)
        place = axes(f, 30 + 365 * column, 90, 335, 140, -1.1, 1.1)
        f.text(30 + 365 * column, 82, f"bandwidth σ = {sigma}", size=12.5, weight=600)
        numbers_below(f, place, -1.1, (-1, -0.5, 0, 0.5, 1))
        (start, bottom), (end, _) = place(0, -1.1), place(sigma, -1.1)
        f.path([(start, bottom + 27), (end, bottom + 27)], RED, 3)
        f.text(end + 6, bottom + 31, "σ", size=12, colour=RED)
        rows = encoders.design(encoder, grid[:, None]) * np.sqrt(6)
        for j in range(6):
            f.path([place(x, y) for x, y in zip(grid, np.real(rows[:, j]))], COLOURS[j], 1.4)
    return f


def draw_fourier_features() -> Figure:
    f = Figure(
        "A value function from random features",
        "40 noisy values (dots), the truth (grey), and Φ(x)ᵀW by one ridge solve (blue)",
        height=270,
    )
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, 40)
    y = value(x) + rng.normal(0, 0.05, 40)
    grid = np.linspace(-1, 1, 200)
    for column, features in enumerate((5, 30, 1000)):
        encoder = encoders.draw(1, features, 0.25, 2)
        weights = Compiler(encoders.design(encoder, x[:, None]), 1e-3).compile(y[:, None])
        fitted = np.real(encoders.design(encoder, grid[:, None]) @ weights)[:, 0]
        error = float(np.sqrt(np.mean((fitted - value(grid)) ** 2)))
        place = axes(f, 25 + 245 * column, 90, 225, 150, -1.1, 1.5)
        f.text(25 + 245 * column, 82, f"D = {features:,}: error {error:.2f}", size=12.5, weight=600)
        f.path([place(a, b) for a, b in zip(grid, value(grid))], GREY, 1.4, dashed=True)
        f.path([place(a, float(np.clip(b, -1.1, 1.5))) for a, b in zip(grid, fitted)], BLUE, 2)
        for a, b in zip(x, y):
            f.dot(*place(a, b), ORANGE, 2.4)
    return f


def draw_anchors() -> Figure:
    """Two clients with other encoders that have seen other halves, and their mean on anchors."""
    f = Figure(
        "Agreeing on anchors",
        "each has seen one half; the mean of their values on 30 anchors, compiled by both",
        height=330,
    )
    bottom, top = -1.1, 2.2
    grid, anchors = np.linspace(-1, 1, 200), np.linspace(-1, 1, 30)
    rng = np.random.default_rng(1)
    own, models = [], []
    for client, (low, high, features) in enumerate(((-1, 0.15, 200), (-0.15, 1, 600))):
        x = rng.uniform(low, high, 40)
        encoder = encoders.draw(1, features, 0.25, 10 + client)
        compiler = Compiler(encoders.design(encoder, x[:, None]), 1e-3)
        own.append(compiler.compile(value(x)[:, None]))
        models.append((encoder, low, high))
    said = [
        np.real(encoders.design(e, anchors[:, None]) @ w)[:, 0] for (e, _, _), w in zip(models, own)
    ]
    teacher = np.mean(said, axis=0)
    names = ("client 0 before", "client 1 before", "both after")
    for column in range(3):
        place = axes(f, 25 + 245 * column, 90, 225, 180, bottom, top)
        f.text(25 + 245 * column, 82, names[column], size=12.5, weight=600)
        f.path([place(a, b) for a, b in zip(grid, value(grid))], GREY, 1.4, dashed=True)
        for x in anchors[1:-1]:  # the first and the last are the frame itself
            f.path([place(x, bottom), place(x, bottom + 0.12)], GREY, 1)
        for client, (encoder, low, high) in enumerate(models):
            if column == 2:
                rows = encoders.design(encoder, anchors[:, None])
                weights = Compiler(rows, 1e-3).compile(teacher[:, None])
            elif client == column:
                weights = own[client]
                left, right = place(low, 0)[0], place(high, 0)[0]
                f.bar(left, 274, right - left, 4, COLOURS[client])
            else:
                continue
            fitted = np.real(encoders.design(encoder, grid[:, None]) @ weights)[:, 0]
            f.path([place(a, b) for a, b in zip(grid, fitted)], COLOURS[client], 2)
        for x, y in zip(anchors, teacher if column == 2 else said[column]):
            f.dot(*place(x, y), GREEN if column == 2 else COLOURS[column], 2.4)
    below = (
        "grey: the truth; ticks: the anchors; the bar below a panel is what that client has seen",
        "dots: what each client sends, and on the right the teacher, the mean of the two",
    )
    f.lines(25, 300, below, size=12, colour=GREY)
    return f


def draw_grpo() -> Figure:
    from fedrl.llm.rl.advantages import normalised

    f = Figure(
        "Advantages within groups",
        "three tasks, eight episodes each; dots: won or lost, bars: (R − mean) / std",
        height=290,
    )
    groups = {
        "an easy task": (1, 1, 0, 1, 1, 1, 1, 1),
        "a hard task": (0, 0, 0, 1, 0, 0, 0, 0),
        "all lost: nothing to compare": (0,) * 8,
    }
    for column, (name, returns) in enumerate(groups.items()):
        left = 30 + 245 * column
        f.text(left, 84, name, size=12.5, weight=600)
        f.path([(left, 175), (left + 215, 175)], LINE)
        for i, (won, a) in enumerate(zip(returns, normalised(returns, [0] * 8, scale=True))):
            x = left + 6 + 27 * i
            height = 26 * float(a)
            if abs(height) > 0.1:
                f.bar(x, 175 - max(height, 0), 16, abs(height), GREEN if a > 0 else RED)
                f.text(
                    x + 8,
                    175 - height + (-5 if a > 0 else 14),
                    f"{a:+.2f}".replace("-", "−"),
                    size=9.5,
                    anchor="middle",
                    colour=GREY,
                )
            f.dot(x + 8, 268, GREEN if won else RED, 5)
    return f


def draw_shares() -> Figure:
    f = Figure(
        "A secret in shares, 3 of 4",
        "the secret is where the curve meets 0; any three points give the curve, two give nothing",
        height=300,
    )
    curve = np.polynomial.Polynomial([4, 3, -0.5])
    left, bottom, unit = 90, 260, 20
    f.path([(left, 80), (left, bottom), (left + 480, bottom)], GREY)
    place = lambda x: (left + 105 * x, bottom - unit * float(curve(x)))  # noqa: E731
    f.path([place(x) for x in np.linspace(0, 4.4, 60)], BLUE, 2)
    f.dot(*place(0), RED, 6)
    f.text(left - 12, place(0)[1] + 4, "4", anchor="end", colour=RED, weight=600)
    f.text(left + 14, place(0)[1] + 22, "the secret", size=12.5, colour=RED)
    for i, name in enumerate(("North", "South", "East", "West"), 1):
        x, y = place(i)
        f.dot(x, y, ORANGE, 6)
        f.text(x - 8, y + 26, f"{name} has {curve(i):g}", size=12.5)
        f.text(x, bottom + 18, str(i), size=12, anchor="middle", colour=GREY)
    f.lines(
        590,
        110,
        ["North, South and East,", "without West:", "3 · 6.5 − 3 · 8 + 8.5 = 4"],
        size=12.5,
        colour=GREY,
    )
    return f
