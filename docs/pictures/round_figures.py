"""Figures of the concepts, in the order of one round."""

from __future__ import annotations

import itertools

import numpy as np
from svg import BLUE, CLIENT, COLOURS, GREEN, GREY, INK, LINE, ORANGE, RED, SERVER, WHITE, Figure


def draw_broadcast() -> Figure:
    f = Figure(
        "Broadcast", "M of N clients are drawn; all of them get the same tensors", height=250
    )
    f.card(270, 70, 220, 62, "server", "θ_r, and what the method adds", fill=SERVER)
    for i in range(8):
        asked = i in (1, 4, 6)
        x = 30 + i * 90
        f.box(x, 180, 70, 44, fill=CLIENT if asked else WHITE, line=ORANGE if asked else LINE)
        f.text(x + 35, 207, f"client {i}", size=12, anchor="middle", colour=INK if asked else GREY)
        if asked:
            f.arrow(380, 134, x + 35, 176, ORANGE)
    f.text(510, 104, "cohort of this round: 1, 4, 6", size=12, colour=GREY)
    return f


def draw_local_training() -> Figure:
    f = Figure(
        "Local training", "every client goes K steps towards its own optimum: they drift apart"
    )
    ends = {BLUE: (560, 95), ORANGE: (580, 245)}
    for number, (colour, (x1, y1)) in enumerate(ends.items()):
        t = np.linspace(0, 1, 6)
        bend = (-1) ** (number + 1) * 26 * np.sin(np.pi * t)
        points = list(zip(90 + (430 - 90) * t + 0 * t, 175 + (y1 - 175) * t**1.3 * 0.8 + bend))
        for a, b in itertools.pairwise(points):
            f.arrow(*a, *b, colour)
        f.dot(*points[-1], colour)
        f.path([points[-1], (x1, y1)], colour, dashed=True)
        f.dot(x1, y1, colour, 7)
        f.text(x1 + 14, y1 + 5, f"optimum of client {number}", size=12.5)
        f.text(
            points[-1][0] - 40,
            points[-1][1] + (-16 if number == 0 else 24),
            "θ after K steps",
            size=12,
        )
    f.dot(90, 175, INK, 6)
    f.text(70, 205, "θ_r", size=14, weight=600)
    f.dot(500, 172, GREEN, 7)
    f.text(514, 177, "optimum of all", size=12.5, colour=GREEN)
    return f


def draw_aggregation() -> Figure:
    f = Figure(
        "Aggregation", "one number of the update, from seven clients; one of them lies", height=230
    )
    honest = np.array([0.8, 1.0, 1.1, 1.25, 1.4, 1.6])
    lie = -6.0
    everybody = np.append(honest, lie)
    place = lambda v: 640 + 80 * (v - 1)  # noqa: E731
    f.path([(40, 130), (720, 130)], LINE)
    for value in honest:
        f.dot(place(value), 130, BLUE)
    f.dot(place(lie), 130, RED, 6)
    f.text(place(lie), 112, "sends −6", size=12.5, anchor="middle", colour=RED)
    for value, name, colour, y in (
        (everybody.mean(), f"mean {everybody.mean():.2f}".replace("-", "−"), RED, 165),
        (float(np.median(everybody)), f"median {np.median(everybody):.2f}", GREEN, 165),
    ):
        f.path([(place(value), 118), (place(value), 150)], colour, 2.4)
        f.text(place(value), y + 4, name, size=12.5, anchor="middle", colour=colour, weight=600)
    f.text(
        40, 205, f"honest clients alone have the mean {honest.mean():.2f}", size=12.5, colour=GREY
    )
    return f


def draw_server_step() -> Figure:
    f = Figure(
        "Server step",
        "u = mean Δ / (ηK) is a direction; λ = ηK lands on the clients' mean",
        height=240,
    )
    f.dot(80, 190, INK, 6)
    f.text(64, 218, "θ_r", size=14, weight=600)
    for x, y in ((420, 110), (440, 165), (400, 205)):
        f.arrow(80, 190, x, y, BLUE)
        f.dot(x, y, BLUE)
    f.arrow(80, 190, 420, 160, GREEN, width=2.6)
    f.text(440, 134, "θ_{r+1} with λ = ηK", size=12.5, colour=GREEN)
    f.path([(420, 160), (640, 140.6)], GREEN, dashed=True)
    f.dot(640, 140.6, ORANGE, 6)
    f.lines(
        560,
        178,
        ["a larger λ, or an optimiser", "of the server's goes further"],
        size=12.5,
        colour=ORANGE,
    )
    return f


def draw_federations() -> Figure:
    f = Figure(
        "Four federations of one method",
        "federation.kind says who shares a server's state; the code is the same",
        height=250,
    )
    kinds = ("federated", "independent", "local", "centralized")
    for k, kind in enumerate(kinds):
        x = 25 + 184 * k
        f.text(x + 80, 90, kind, weight=600, anchor="middle")
        servers = {"independent": 3}.get(kind, 1)
        for s in range(servers):
            f.box(x + (60 if servers == 1 else 8 + 56 * s), 105, 40, 26, SERVER)
            f.text(x + (80 if servers == 1 else 28 + 56 * s), 123, "θ", anchor="middle", size=13)
        clients = {"local": [1], "centralized": [1]}.get(kind, [0, 1, 2])
        for c in clients:
            wide = kind == "centralized"
            cx = x + 8 + 56 * c
            f.box(cx - (50 if wide else 0), 180, 140 if wide else 40, 34, CLIENT)
            if wide:
                for d, colour in enumerate(COLOURS[:3]):
                    f.dot(x + 40 + 40 * d, 197, colour, 6)
            else:
                f.dot(cx + 20, 197, COLOURS[c], 6)
            top = x + (80 if servers == 1 else cx + 20 - x)
            f.path([(cx + 20, 178), (top, 133)], GREY)
        if kind == "local":
            for c in (0, 2):
                f.box(x + 8 + 56 * c, 180, 40, 34)
    f.text(
        25, 238, "a dot is one client's data; empty boxes do not take part", size=12, colour=GREY
    )
    return f


def draw_engines() -> Figure:
    f = Figure("Engines", "where clients compute; the method does not know", height=280)
    f.card(
        25,
        75,
        220,
        180,
        "inprocess",
        "one process, clients compiled",
        "together where the method can",
        fill=SERVER,
    )
    for i in range(6):
        f.box(45 + 62 * (i % 3), 160 + 42 * (i // 3), 52, 32, CLIENT)
    f.card(
        270,
        75,
        220,
        180,
        "workers",
        "processes of their own: a client",
        "that hangs is stopped",
        fill=SERVER,
    )
    for i in range(3):
        f.box(285 + 66 * i, 155, 58, 80, WHITE)
        f.box(293 + 66 * i, 165, 42, 26, CLIENT)
        f.box(293 + 66 * i, 200, 42, 26, CLIENT)
    f.card(
        515,
        75,
        220,
        180,
        "flower",
        "other machines: TLS, node keys,",
        "data that stays in its folder",
        fill=SERVER,
    )
    f.box(590, 145, 70, 26, WHITE)
    f.text(625, 163, "SuperLink", size=11.5, anchor="middle")
    for i in range(3):
        f.box(530 + 68 * i, 205, 58, 38, CLIENT, ORANGE)
        f.text(559 + 68 * i, 229, ("North", "South", "West")[i], size=12, anchor="middle")
        f.arrow(559 + 68 * i, 203, 625, 174, ORANGE)
    return f


def draw_heterogeneity() -> Figure:
    from fedrl.envs.household.world import Household, Settings
    from fedrl.partition import Settings as Partition
    from fedrl.partition import partition

    tasks = Household(Settings(size="tiny", train=2000)).tasks("train")
    kinds = sorted({task.category for task in tasks})
    category = {task.id: task.category for task in tasks}
    f = Figure(
        "Clients that differ",
        "types of the household's tasks in the hands of eight clients, dealt by fedrl partition",
        height=330,
    )
    for column, (title, omega) in enumerate(
        (("uniform", None), ("preference, ω = 0.1", 0.1), ("preference, ω = 0.9", 0.9))
    ):
        settings = (
            Partition(strategy="uniform", size=60)
            if omega is None
            else Partition(strategy="preference", omega=omega, size=60)
        )
        dealt = partition(tasks, 8, settings, 0)
        left = 25 + 245 * column
        f.text(left, 88, title, weight=600)
        for client, own in enumerate(dealt):
            y, at = 100 + 22 * client, left
            for number, kind in enumerate(kinds):
                share = np.mean([category[task] == kind for task in own])
                f.bar(at, y, 215 * share, 16, COLOURS[number % len(COLOURS)])
                at += 215 * share
    for number, kind in enumerate(kinds):
        x = 25 + 120 * number
        f.bar(x, 297, 12, 12, COLOURS[number % len(COLOURS)])
        f.text(x + 18, 308, kind.replace("_", " ")[:16], size=11.5, colour=GREY)
    return f


def draw_randomness() -> Figure:
    f = Figure(
        "Randomness", "every draw has its own seed, so nothing has to be carried along", height=270
    )
    f.card(
        25,
        75,
        200,
        150,
        "a draw is named by",
        "run seed       3",
        "round          7",
        "client         2",
        "purpose        local",
    )
    f.arrow(228, 150, 288, 150, INK)
    f.card(292, 115, 150, 70, "SeedSequence", "a stream of its own")
    for y, words, colour in (
        (95, "another engine", BLUE),
        (135, "clients in another order", GREEN),
        (175, "killed and resumed", ORANGE),
        (215, "one client more", "#7a5ba8"),
    ):
        f.path([(444, 150), (500, y)], colour)
        f.dot(500, y, colour)
        f.text(514, y + 4, f"{words}: the same numbers", size=12.5)
    return f


def draw_privacy() -> Figure:
    f = Figure(
        "Privacy",
        "an update is bounded, then noise is added: to the sum, or by the client",
        height=270,
    )
    f.ring(150, 165, 62, GREY)
    f.dot(150, 165, INK, 3)
    for dx, dy, long in ((95, -50, True), (30, 40, False), (-40, 22, False)):
        x, y = 150 + dx, 165 + dy
        if long:
            s = 62 / np.hypot(dx, dy)
            f.arrow(150, 165, 150 + dx * s, 165 + dy * s, BLUE, width=2.4)
            f.path([(150 + dx * s, 165 + dy * s), (x, y)], RED, dashed=True)
            f.text(x + 6, y, "cut to C", size=12, colour=RED)
        else:
            f.arrow(150, 165, x, y, BLUE, width=2.4)
    f.text(92, 252, "clip: no longer than C", size=12.5, colour=GREY)
    f.arrow(300, 165, 350, 165, INK)
    f.card(358, 128, 130, 74, "sum", "+ noise of z · C", "(central)", fill=SERVER)
    f.arrow(492, 165, 540, 165, INK)
    f.card(
        546,
        128,
        190,
        74,
        "ε after this round",
        "in every record; the run",
        "ends before its target",
        fill=SERVER,
    )
    return f


def draw_secure_sum() -> Figure:
    """Four numbers and their masks, modulo 100, which cancel."""
    f = Figure(
        "A secure sum, modulo 100",
        "each pair of clients has a common mask; one adds it, the other takes it away",
        height=350,
    )
    names, values = ("North", "South", "East", "West"), (12, 30, 25, 7)
    pair = {(0, 1): 58, (0, 2): 21, (0, 3): 40, (1, 2): 94, (1, 3): 17, (2, 3): 66}
    masked = []
    for i, name in enumerate(names):
        total, words = values[i], [f"  {values[i]:>2}  its number"]
        for (a, b), mask in pair.items():
            if i in (a, b):
                sign = 1 if i == a else -1
                total += sign * mask
                other = names[b if i == a else a]
                words.append(f"{'+' if sign > 0 else '−'} {mask:>2}  with {other}")
        masked.append(total % 100)
        x = 20 + 184 * i
        f.box(x, 75, 168, 150, CLIENT)
        f.text(x + 14, 98, name, weight=600)
        f.lines(x + 14, 122, words, size=12.5, mono=True, step=20)
        f.text(x + 14, 210, f"sends {total % 100}", weight=600, colour=ORANGE)
        f.arrow(x + 84, 228, 380 + (i - 1.5) * 60, 258, ORANGE)
    added = " + ".join(map(str, masked))
    plain = " + ".join(map(str, values))
    f.card(
        170,
        262,
        420,
        70,
        "server",
        f"{added} = {sum(masked)}, modulo 100: {sum(masked) % 100} = {plain}",
        "and learns nothing else",
        fill=SERVER,
    )
    return f


def draw_organisations() -> Figure:
    f = Figure(
        "Three organisations, one agent",
        "a model goes out, changes of it come back; data stays where it is",
        height=330,
    )
    f.card(265, 75, 230, 72, "coordinator", "averages the changes,", "sees no data", fill=SERVER)
    for i, (name, colour) in enumerate(zip(("North", "South", "West"), COLOURS)):
        x, away = 25 + 250 * i, 100 * (1 - i)
        f.arrow(372 - away, 149, x + 92, 216, GREY)
        f.arrow(x + 118, 216, 390 - away, 150, colour)
        f.card(x, 218, 210, 92, name, "trains on its own folder", fill=CLIENT)
        f.box(x + 12, 272, 186, 26, WHITE)
        f.text(x + 105, 289, f"data/{name.lower()}", size=12, anchor="middle", mono=True)
    f.text(30, 172, "grey: the model", size=12, colour=GREY)
    f.text(30, 189, "colour: a change of it", size=12, colour=GREY)
    return f
