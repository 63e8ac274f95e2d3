"""A figure per method: what a client does that PAvg's does not."""

from __future__ import annotations

import numpy as np
from svg import BLUE, CLIENT, COLOURS, GREEN, GREY, INK, ORANGE, RED, SERVER, WHITE, Figure


def draw_momentum() -> Figure:
    f = Figure(
        "An anchored direction",
        "u = g(θ) + (1 − β) [u_r − w g(θ_{r−1})]: the server's last direction, corrected",
        height=290,
    )
    f.dot(80, 230, INK, 6)
    f.text(64, 258, "θ", size=14, weight=600)
    f.arrow(80, 230, 300, 120, BLUE, width=2.2)
    f.text(70, 138, "g(θ), fresh and noisy", size=12.5, colour=BLUE)
    f.arrow(80, 230, 330, 215, GREY, width=2.2)
    f.text(340, 220, "u_r, what everybody agreed on", size=12.5, colour=GREY)
    f.arrow(300, 120, 420, 150, ORANGE, dashed=True)
    f.text(360, 122, "(1 − β) [u_r − w g(θ_{r−1})]", size=12.5, colour=ORANGE)
    f.arrow(80, 230, 418, 152, GREEN, width=2.8)
    f.text(430, 162, "u: the step that is taken", size=12.5, colour=GREEN, weight=600)
    f.text(430, 256, "β = 1 takes the fresh gradient alone: PAvg", size=12.5, colour=GREY)
    return f


def draw_fedqhd() -> Figure:
    f = Figure(
        "FedQHD with encoders of their own",
        "clients whose features differ agree on values of common states, the anchors",
        height=330,
    )
    for i, (name, size) in enumerate((("client 0", 500), ("client 1", 2000), ("client 2", 10000))):
        y = 75 + 82 * i
        f.card(25, y, 210, 66, name, f"Φ_{i}: {size:,} features, W_{i}", fill=CLIENT)
        f.arrow(238, y + 33, 318, 190, BLUE)
        f.arrow(318, 207, 240, y + 50, ORANGE, dashed=True)
    f.text(255, 84, "Q on m anchors", size=12, colour=BLUE)
    f.text(255, 290, "the teacher comes back", size=12, colour=ORANGE)
    f.card(324, 155, 150, 74, "server", "mean of the values:", "the teacher", fill=SERVER)
    f.arrow(478, 192, 520, 192, ORANGE)
    f.card(
        526,
        120,
        210,
        146,
        "client i compiles it",
        "W_i = argmin over W of",
        "Σ (Φ_i(s)ᵀW − teacher(s))²",
        "+ λ ‖W‖²",
        "",
        "one ridge solve, no training",
        fill=CLIENT,
    )
    f.text(25, 322, "with one encoder for all, W itself is averaged", size=12, colour=GREY)
    return f


def draw_fedagent() -> Figure:
    f = Figure(
        "FedAgent",
        "a client plays its own tasks in groups and learns from the differences",
        height=300,
    )
    f.card(25, 75, 170, 74, "server", "θ_t to M clients", "θ_{t+1} = θ_t + mean Δ", fill=SERVER)
    f.box(230, 70, 505, 190, CLIENT)
    f.text(244, 93, "client: τ times", weight=600)
    f.card(244, 106, 130, 60, "tasks", "a batch of its own", fill=WHITE)
    f.arrow(376, 136, 396, 136)
    f.box(400, 106, 150, 60)
    f.text(412, 129, "G episodes each", weight=600)
    for i, won in enumerate((1, 0, 0, 1, 0, 0, 0, 1)):
        f.dot(416 + 16 * i, 150, GREEN if won else RED, 5)
    f.arrow(552, 136, 572, 136)
    f.card(576, 106, 146, 60, "advantages", "within each group", fill=WHITE)
    f.arrow(648, 168, 648, 188)
    f.card(
        470, 190, 252, 58, "one pass of clipped gradients", "AdamW on its own copy of θ", fill=WHITE
    )
    f.path([(466, 220), (110, 220), (110, 153)], BLUE, arrow=True)
    f.text(124, 212, "Δ = θ − θ_t", size=12.5, colour=BLUE)
    f.text(25, 285, "tasks, episodes and rewards stay with the client", size=12, colour=GREY)
    return f


def draw_fedrlhf() -> Figure:
    f = Figure(
        "FedRLHF",
        "each client asks its own person; only the change of the policy leaves",
        height=290,
    )
    f.card(25, 75, 170, 74, "server", "θ_t to clients", "θ_{t+1} = θ_t + mean Δ", fill=SERVER)
    f.box(230, 70, 505, 190, CLIENT)
    f.text(244, 93, "client k", weight=600)
    f.card(250, 106, 130, 60, "a person", "rates and compares", fill=WHITE)
    f.arrow(384, 136, 414, 136)
    f.card(418, 106, 130, 60, "reward model", "H_k in [−1, 1]", fill=WHITE)
    f.arrow(552, 136, 582, 136)
    f.card(586, 106, 136, 60, "reward", "R0 + λ_k H_k", fill=WHITE)
    f.arrow(654, 168, 654, 188)
    f.card(470, 190, 252, 58, "policy π_k", "Q-learning or policy gradients", fill=WHITE)
    f.path([(466, 220), (110, 220), (110, 153)], BLUE, arrow=True)
    f.text(124, 212, "Δ = θ − θ_t", size=12.5, colour=BLUE)
    f.text(25, 278, "answers, reward model and personal policy stay", size=12, colour=GREY)
    return f


def spring(x0: float, y0: float, x1: float, y1: float, turns: int = 9) -> list[tuple[float, float]]:
    t = np.linspace(0, 1, turns * 2 + 1)
    dx, dy = x1 - x0, y1 - y0
    n = np.hypot(dx, dy)
    side = 7 * np.where(np.arange(t.size) % 2 == 0, 1, -1) * (np.sin(np.pi * t) > 0.15)
    return list(zip(x0 + dx * t - dy / n * side, y0 + dy * t + dx / n * side))


def draw_fedprox() -> Figure:
    f = Figure(
        "FedProx",
        "a spring of strength μ pulls every local step back to where the round began",
        height=250,
    )
    f.dot(110, 170, INK, 6)
    f.text(92, 198, "θ_r", size=14, weight=600)
    f.path(spring(116, 168, 430, 120), GREY, 1.4)
    f.dot(436, 119, BLUE, 6)
    f.text(426, 104, "θ", size=14, weight=600, anchor="end")
    f.arrow(436, 119, 586, 169, BLUE, width=2.2)
    f.text(594, 174, "g(θ)", size=12.5, colour=BLUE)
    f.arrow(436, 119, 344, 133, ORANGE, width=2.2)
    f.text(270, 172, "− μ (θ − θ_r)", size=12.5, colour=ORANGE)
    f.arrow(436, 119, 494, 183, GREEN, width=2.4)
    f.text(470, 203, "u, their sum", size=12.5, colour=GREEN)
    f.text(110, 232, "μ = 0 is PAvg to the last bit", size=12.5, colour=GREY)
    return f


def draw_scaffold() -> Figure:
    f = Figure(
        "SCAFFOLD",
        "u = g(θ) − c_i + c: what is this client's own is taken out of its steps",
        height=270,
    )
    for x, colour, sign, name in ((60, BLUE, -1, "client 0"), (420, ORANGE, 1, "client 1")):
        y = 175
        f.dot(x + 20, y, INK, 6)
        f.arrow(x + 20, y, x + 190, y + sign * 62, colour, width=2.2)
        f.text(
            x + 120,
            y + sign * 62 + (-12 if sign < 0 else 22),
            f"g of {name}",
            size=12.5,
            colour=colour,
        )
        f.arrow(x + 190, y + sign * 62, x + 196, y + 3 * sign, GREY, dashed=True)
        f.text(x + 202, y + sign * 34 + 4, "− c_i + c", size=12.5, colour=GREY)
        f.arrow(x + 20, y, x + 190, y, GREEN, width=2.8)
        f.text(x + 40, y + (20 if sign < 0 else -10), "u", size=13, colour=GREEN, weight=600)
    f.text(
        60,
        255,
        "c_i: the client's mean gradient of its last round; c: the mean of all c_i",
        size=12.5,
        colour=GREY,
    )
    return f


def draw_fednova() -> Figure:
    f = Figure(
        "FedNova", "clients take K_i steps; what is averaged is a step's worth of each", height=270
    )
    f.text(40, 88, "sent by PAvg: Δ_i", weight=600)
    f.text(410, 88, "sent by FedNova: Δ_i / K_i", weight=600)
    for i, (steps, length) in enumerate(((2, 20), (5, 22), (12, 21))):
        y = 120 + 42 * i
        for s in range(steps):
            f.arrow(110 + length * s, y, 110 + length * (s + 1), y, COLOURS[i])
        f.text(40, y + 4, f"K = {steps}", size=12.5)
        f.arrow(430, y, 430 + 5 * length, y, COLOURS[i], width=2.4)
    f.text(40, 252, "the mean of Δ_i leans to whoever takes more steps", size=12.5, colour=GREY)
    f.text(410, 252, "then the server goes τ_eff = mean K_i such steps", size=12.5, colour=GREY)
    return f


def draw_qavg() -> Figure:
    f = Figure(
        "QAvg",
        "same states, actions and rewards, other transitions; tables of Q are averaged",
        height=280,
    )
    rng = np.random.default_rng(3)
    tables = [rng.uniform(0.2, 1, (4, 3)) for _ in range(3)]
    tables.append(np.mean(tables, axis=0))
    for i, (table, name) in enumerate(
        zip(tables, ("client 0, P_0", "client 1, P_1", "client 2, P_2", "server: the mean"))
    ):
        x = (40, 210, 380, 590)[i]
        f.text(x, 88, name, size=12.5, weight=600)
        for s in range(4):
            for a in range(3):
                shade = int(255 - 150 * table[s, a])
                f.parts.append(
                    f'<rect x="{x + 36 * a}" y="{100 + 32 * s}" width="34" height="30" '
                    f'fill="rgb({shade},{shade + 10 if shade < 245 else 255},235)"/>'
                )
                f.text(
                    x + 36 * a + 17, 120 + 32 * s, f"{table[s, a]:.1f}", size=11.5, anchor="middle"
                )
    f.arrow(500, 165, 578, 165, INK)
    f.text(
        40,
        262,
        "E updates between two exchanges; with E = 1 the mean converges to Q* of the mean P",
        size=12.5,
        colour=GREY,
    )
    return f


def draw_fedpg_br() -> Figure:
    f = Figure(
        "FedPG-BR",
        "gradients that lie together are kept; then the server plays in its own world",
        height=290,
    )
    rng = np.random.default_rng(5)
    centre = np.array([210.0, 165.0])
    f.ring(*centre, 62, GREEN)
    for point in centre + rng.normal(0, 22, (7, 2)):
        f.dot(*point, BLUE)
    for point in ((360, 110), (345, 230)):
        f.dot(*point, RED, 5.5)
        f.text(point[0] + 10, point[1] + 4, "left out", size=12, colour=RED)
    f.text(150, 252, "more than half lie within d", size=12.5, colour=GREEN)
    f.arrow(440, 165, 484, 165, INK)
    f.card(
        490,
        95,
        245,
        140,
        "server",
        "μ: the mean of those kept",
        "N ~ Geom(b / (B + b)) steps of",
        "v = g(θ_n) − w g(θ_0) + μ",
        "on b trajectories of its own",
        fill=SERVER,
    )
    f.text(490, 262, "a client sends one gradient, of B trajectories", size=12, colour=GREY)
    return f
