"""The result page about clients that lie: a table and two maps per world, and computed verdicts.

Every number comes from a run folder. What was not measured, or not to its end, is named.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fedrl.core.number_format import duration, is_share
from fedrl.report.run_groups import failure_count
from reproductions.fedagent.page import machine, plural
from reproductions.markdown import missing, number, table
from reproductions.robustness import figures
from reproductions.robustness.cells import CLEAN, CLIENTS, SHARE, name
from reproductions.robustness.shares import LINE, Board, percent

Boards = Mapping[str, Board]


def write(boards: Boards, scale: str, page: Path) -> None:
    pictures = page.with_suffix("")
    sections = [heading(boards, scale), verdicts(boards)]
    sections += [world(board, part, pictures) for part, board in boards.items()]
    sections += [limits(boards), left_out(boards), costs(boards)]
    page.write_text("\n\n".join(filter(None, sections)) + "\n", encoding="utf-8")


def heading(boards: Boards, scale: str) -> str:
    ran = [run for board in boards.values() for run in board.runs()]
    commits = sorted({str(run.meta["commit"]) for run in ran if run.meta.get("commit")})
    machines = sorted({machine(run) for run in ran})
    before = f"""No paper's numbers, but fedrl's own: what its rules of aggregation
        ([robustness.md](../robustness.md)) are worth when {SHARE:.0%} of the clients lie in every
        round. Everything below was written by"""
    liars = round(SHARE * CLIENTS)
    after = f"""which keeps every run and goes on where it was stopped (`--processes 0` writes the
        page of what is there, `--only PART` computes one world). Hardware:
        {"; ".join(machines) or "unknown"}. Commits (+: with local changes):
        {", ".join(commits) or "unknown"}.

        {CLIENTS} clients, all of them in every round; {liars} lie, drawn by the seed, at the
        default `attack.strength` of 10. Bulyan needs 4f + 3 = {4 * liars + 3} clients against
        f = {liars}, so that all rules have what they ask for; `trimmed` leaves out {liars} numbers
        on either side, `norm-bound` cuts to the median of the round's norms. The rules assume
        {liars} liars also where nobody lies. ± is a 95% t-interval over seeds; a seed changes who
        lies and everything that is sampled.

        *Clean* is the mean where nobody lies. A rule *keeps {LINE:.0%}* if its result under the
        attack, averaged over seeds, is at least {LINE:.0%} of the clean one (**bold**). Because an
        agent that learns nothing has a result, too, the share of the *gain* is told beside it:
        what a run has learned over the start, as a share of what the clean run has; below 0 it
        ends worse than it began."""
    return "\n\n".join([
        "# Clients that lie: what the rules keep", filled(before),
        f"    fedrl reproduce robustness --scale {scale}", filled(after),
    ])  # fmt: skip


def filled(text: str) -> str:
    """Paragraphs in lines of a page's width; a broken `norm-bound` would be read as two words."""
    plain = (" ".join(paragraph.split()) for paragraph in text.split("\n\n"))
    return "\n\n".join(textwrap.fill(one, 100, break_on_hyphens=False) for one in plain)


# Verdicts


def verdicts(boards: Boards) -> str:
    text = """In parentheses the share of the gain; after it, where there are several seeds, what is
        kept of the result in the worst of them. Shares are rounded down."""
    pieces = [f"## Does a rule keep {LINE:.0%} for every attack?", filled(text)]
    for board in boards.values():
        if not measured(board):
            continue
        rows = [verdict_row(board, attack) for attack in board.attacks]
        head = [
            board.world.title,
            "the mean keeps",
            "the best of the others keeps",
            f"keep {LINE:.0%}",
        ]
        pieces += [filled(in_words(board)), table(head, rows)]
    return "\n\n".join(pieces)


def in_words(board: Board) -> str:
    """The answer for one world, with numbers where it is no."""
    title = f"**{board.world.title}.**"
    failed = [attack for attack in board.attacks if not board.holding(attack)]
    told = []
    for attack in failed:
        best = board.best(attack)
        share = "nothing was measured" if best is None else f"{best} {kept(board, best, attack)}"
        told.append(f"{attack} ({share})")
    if told:
        answer = f"No: no rule does against {', '.join(told)}."
    else:
        always = "; ".join(at_worst(board, rule) for rule in board.always())
        single = f"for all of them, at worst: {always}" if always else "no single one for all"
        answer = f"Yes: for each of the {len(board.attacks)} attacks a rule does; {single}."
    harmless = [attack for attack in board.attacks if "mean" in board.holding(attack)]
    plain = f"The mean itself keeps it against {', '.join(harmless) or 'none'}."
    return f"{title} {answer} {plain} {priced(board)}"


def at_worst(board: Board, rule: str) -> str:
    """What a rule keeps under the attack that hurts it most."""
    attack = min(board.attacks, key=lambda one: board.kept(rule, one))
    return f"{rule} {kept(board, rule, attack)}{worst(board, rule, attack)}"


def priced(board: Board) -> str:
    """What a rule costs where nobody lies."""
    dear = [r for r in board.rules if r != "mean" and not board.kept(r, CLEAN) >= LINE]
    if not dear:
        return f"Where nobody lies, every rule keeps {LINE:.0%}, too."
    told = ", ".join(f"{rule} {kept(board, rule, CLEAN)}" for rule in dear)
    return f"Below {LINE:.0%} even where nobody lies: {told}."


def verdict_row(board: Board, attack: str) -> list[str]:
    best = board.best(attack)
    return [
        attack,
        kept(board, "mean", attack),
        f"{best}: {kept(board, best, attack)}{worst(board, best, attack)}" if best else "missing",
        ", ".join(board.holding(attack)) or "**none**",
    ]


def kept(board: Board, rule: str, attack: str) -> str:
    """`98% (96%)`: of the result, and of the gain."""
    share, gain = board.kept(rule, attack), board.gained(rule, attack)
    if not np.isfinite(share):
        return "missing"
    of_gain = f"{percent(gain)}%" if np.isfinite(gain) else "no gain to keep"
    return f"{percent(share)}% ({of_gain})"


def worst(board: Board, rule: str, attack: str) -> str:
    least = board.worst(rule, attack)
    several = len(board.result(rule, attack)) > 1 and np.isfinite(least)
    return f", worst seed {percent(least)}%" if several else ""


# A world


def world(board: Board, part: str, pictures: Path) -> str:
    if not measured(board):
        return missing(board.world.title)
    unit = "success on unseen tasks, %" if is_share(board.world.metric) else "return"
    head = [unit, "nobody lies", *board.attacks]
    shares = [
        [rule, *(strong(board, rule, a, kept(board, rule, a)) for a in (CLEAN, *board.attacks))]
        for rule in board.rules
    ]
    results = [
        [rule, *(strong(board, rule, a, result(board, rule, a)) for a in (CLEAN, *board.attacks))]
        for rule in board.rules
    ]
    return "\n\n".join([
        f"## {board.world.title}", filled(setting(board)), table(head, results),
        "Kept of the clean result, and of its gain in parentheses:",
        table(["kept (of the gain)", *head[1:]], shares),
        figures.maps(board, pictures, part),
    ])  # fmt: skip


def setting(board: Board) -> str:
    """How these runs were made, and where they begin and end where nobody lies."""
    one = board.found[name("mean", CLEAN)]
    config = next(iter(one.runs.values())).config
    several = plural(len(one.cell.seeds), "seed")
    text = f"""Recipe `{board.world.recipe}` ({config["algorithm.name"]}), {one.cell.rounds} rounds,
        {several}: {", ".join(map(str, one.cell.seeds))}."""
    start, clean = shown(board, board.start()), shown(board, board.result("mean"))
    if board.world.imitation is not None:
        episodes = config["algorithm.tasks"] * config["algorithm.group"]
        tasks = config["algorithm.eval_tasks"] or config["world.unseen"]
        text += f""" All runs start from one warm-started model. Each client holds
            {config["partition.size"]} tasks and plays {config["algorithm.tasks"]} of them
            {config["algorithm.group"]} times in a round, {CLIENTS * episodes} episodes in all;
            learning rate {config["algorithm.lr"]:g}. Success is on the same {tasks} tasks in every
            run, which nobody trains on. It is {start} at the start and {clean} in the clean run;
            for {tasks} tasks alone, a success of one half has a standard error of
            {50 / tasks**0.5:.1f} points."""
    else:
        best = config.get("world.horizon")
        text += f""" The return is of {CLIENTS * config["algorithm.eval_episodes"]} episodes per
            evaluation, over all clients' carts and the last two evaluations; {best} is the best
            there is. It is {start} at the start and {clean} in the clean run."""
    return text


def measured(board: Board) -> bool:
    return bool(board.result("mean"))


def result(board: Board, rule: str, attack: str) -> str:
    return shown(board, board.result(rule, attack))


def shown(board: Board, values: Mapping[int, float]) -> str:
    factor = 100 if is_share(board.world.metric) else 1
    return number(factor * np.array(list(values.values())), 1) if values else "missing"


def strong(board: Board, rule: str, attack: str, text: str) -> str:
    return f"**{text}**" if board.kept(rule, attack) >= LINE else text


# The rest


def limits(boards: Boards) -> str:
    text = """These attacks are rehearsals at one strength, by clients that know neither the rule
        nor each other. One that stays just inside what a rule lets through can do more harm than
        any of them."""
    single = [b.world.title for b in boards.values() if len(b.world.seeds) == 1 and measured(b)]
    if single:
        text += f""" One seed has no interval ({", ".join(single)}): a difference of a few points
            between two cells of that table says nothing."""
    return f"## What this does not tell\n\n{filled(text)}"


def left_out(boards: Boards) -> str:
    """Runs that are not there, or not to their end."""
    told = [
        f"{part}, {one.cell.name}: {line}"
        for part, board in boards.items()
        for one in board.found.values()
        if (line := one.missing())
    ]
    return "## Missing\n\n" + "\n".join(f"- {line}" for line in told) if told else ""


def costs(boards: Boards) -> str:
    rows = []
    for part, board in boards.items():
        ran = list(board.runs())
        if ran:
            rows.append([
                part, str(len(ran)), duration(sum(run.seconds for run in ran)),
                str(sum(map(failure_count, ran))),
                ", ".join(sorted({str(run.meta.get("commit")) for run in ran})),
            ])  # fmt: skip
    text = """Seconds of computation added up over runs, which may share the machine; a failure is
        an update that a client did not give or that was refused."""
    head = ("part", "runs", "time", "failures", "commit")
    return "\n\n".join(["## What it took", filled(text), table(head, rows)])
