"""The section "Episodes" of a report: what the agent does, in its own words."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path

from fedrl.core.types import UserError
from fedrl.engines.in_process import one_line
from fedrl.report.episodes import Episode, Played, Step, episodes
from fedrl.report.groups import Group, curve
from fedrl.report.html import section, table

MOST_GROUPS = 3
"""With more groups than this, only the best one's agent is shown."""
LONG = 320
"""Characters from which a text is folded."""
HEAD = 140
"""Characters of a folded text that stay visible."""
SHORT = 40
"""Characters up to which a text may well come twice."""
ANNOUNCED = 30
"""Characters around the goal in a line that says no more than "Your task is to: …"."""
THOUGHT = re.compile(r"<think>(.*?)(?:</think>|$)", re.DOTALL | re.IGNORECASE)


def episodes_section(groups: Sequence[Group], metric: str, asked: bool = False) -> str:
    """Nothing for runs that train no language agent; `asked` plays them also where that is slow."""
    agents = [group for group in groups if group.config.get("algorithm.name") == "fedagent"]
    if not agents:
        return ""
    shown = agents if len(agents) <= MOST_GROUPS else [max(agents, key=lambda g: _final(g, metric))]
    parts = []
    for group in shown:
        title = f"<h3>{escape(group.name)}</h3>" if len(groups) > 1 else ""
        parts.append(title + agent_html(group.runs[0].path, asked))
    return section("Episodes", "".join(parts))


def _final(group: Group, metric: str) -> float:
    values = curve(group.runs, metric)[1]
    final = float(values[:, -1].mean()) if values.size else math.nan
    return -math.inf if math.isnan(final) else final


def agent_html(path: Path, asked: bool = False) -> str:
    """One run's agent; one line where it is not played here."""
    try:
        played = episodes(path, asked)
    except UserError as error:
        return f"<p class=note>No episodes: {escape(str(error).splitlines()[0])}.</p>"
    except Exception as error:  # noqa: BLE001 - playing may fail in any way; the curves are there
        return f"<p class=note>No episodes: {escape(one_line(error))}.</p>"
    return intro(played) + success_table(played) + selected_episodes(played)


def intro(played: Played) -> str:
    won = sum(won for won, _ in played.kinds.values())
    count = sum(count for _, count in played.kinds.values())
    return (
        f"<p>The model of round {played.round} played {count} evaluation tasks "
        f"(“{escape(played.split)}”, which no client trains on) once each at temperature "
        f"{played.temperature:g} and won <strong>{won}</strong> of them "
        f"(<strong>{won / count:.0%}</strong>).</p>"
    )


def success_table(played: Played) -> str:
    rows = [
        [escape(kind), str(count), str(won), bar(won / count)]
        for kind, (won, count) in played.kinds.items()
    ]
    return table(["type of task", "tasks", "won", "success"], rows)


def bar(share: float) -> str:
    return (
        f'<span class=meter><span style="width:{share:.0%}"></span></span>'
        f"<span class=share>{share:.0%}</span>"
    )


def selected_episodes(played: Played) -> str:
    parts = []
    for title, some in (
        ("Won in the fewest steps", played.best),
        ("Lost, with the most trouble", played.worst),
    ):
        if some:
            parts.append(f"<h4>{title}</h4>" + "".join(map(episode_html, some)))
    return "".join(parts)


def episode_html(episode: Episode) -> str:
    outcome = "won" if episode.won else "lost"
    rows, before = "", episode.begin
    for _, same in itertools.groupby(episode.steps, key=_alike):
        steps = list(same)
        rows += turn_html(steps, before, episode.goal)
        before = steps[-1].saw
    return (
        f"<details class=episode><summary><span class={outcome}>{outcome}</span> "
        f"{escape(_sentence(episode.goal))} <span class=about>{escape(episode.kind)}, "
        f"{_count(len(episode.steps), 'step')}</span></summary>"
        f"<div class=turns><div class=world>{folded(without_goal(episode))}</div>{rows}"
        f"<p class=outcome>{ending(episode)}</p></div></details>"
    )


def without_goal(episode: Episode) -> str:
    """What the world showed first, less the paragraphs that only repeat the goal above them."""
    goal = episode.goal.strip().rstrip(".")
    kept = [p for p in episode.begin.split("\n") if goal not in p or len(p) > len(goal) + ANNOUNCED]
    return readable("\n".join(kept), episode.goal)


def _alike(step: Step) -> tuple[str, str]:
    return step.said, step.saw


def turn_html(same: Sequence[Step], before: str, goal: str) -> str:
    """A step, or several in a row that are all the same; `before` is what the agent saw."""
    step = same[0]
    thought = " ".join(match.strip() for match in THOUGHT.findall(step.said))
    times = f" <span class=times>× {len(same)}</span>" if len(same) > 1 else ""
    said = f"<code>{escape(step.command)}</code>"
    if not step.valid and step.command:
        said += " <span class=invalid>without reasoning</span>"
    elif not step.valid:
        rest = THOUGHT.sub("", step.said).strip()
        said = f"<span class=invalid>no valid answer</span> {folded(rest) if rest else '(nothing)'}"
    quiet = f"<div class=thought>{folded(thought)}</div>" if thought else ""
    saw = folded(readable(step.saw, goal))
    if step.saw == before and len(before) > SHORT:
        saw = "<span class=about>(the same again)</span>"
    return f"<div class=said>{quiet}<div>{said}{times}</div></div><div class=world>{saw}</div>"


def readable(text: str, goal: str) -> str:
    """A shop's page repeats the goal and separates its parts by a token."""
    return text.replace(" [SEP] ", " · ").replace(goal, "(the task)" if len(goal) > SHORT else goal)


def ending(episode: Episode) -> str:
    """The outcome in words."""
    count = _count(len(episode.steps), "step")
    if episode.won:
        return f"Won after {count}."
    invalid = sum(not step.valid for step in episode.steps)
    again = episode.trouble - invalid
    parts = []
    if invalid:
        parts.append(f"{_count(invalid, 'answer')} not well formed")
    if again:
        parts.append(f"{_count(again, 'command')} repeated to no new effect")
    if episode.reward > 0:
        parts.append(f"reward {episode.reward:.2g}")
    return f"Lost after {count}" + (f": {', '.join(parts)}." if parts else ".")


def folded(text: str) -> str:
    """The text, or its beginning to unfold where it is long."""
    text = text.strip()
    if len(text) <= LONG:
        return f"<span class=text>{escape(text)}</span>"
    head = text[:HEAD].rsplit(" ", 1)[0]
    return (
        f"<details class=long><summary><span class=head>{escape(head)} …</span></summary>"
        f"<span class=text>{escape(text)}</span></details>"
    )


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _count(number: int, word: str) -> str:
    return f"{number} {word}" + ("" if number == 1 else "s")
