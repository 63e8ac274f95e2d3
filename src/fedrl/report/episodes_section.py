"""The section "Episodes" of a report: what the agent does, in its own words."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from fedrl.core.number_format import counted, sentence_case
from fedrl.core.package_files import render
from fedrl.core.types import UserError
from fedrl.engines.in_process import one_line
from fedrl.llm.transcripts import Episode
from fedrl.report.episodes import Played, episodes
from fedrl.report.run_groups import Group, curve, trains_agents

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


def agents_episodes(
    groups: Sequence[Group], metric: str, asked: bool = False
) -> list[tuple[str, str]]:
    """Names of groups and the HTML of what their agents played; none where none is trained.

    `asked` plays them also where that is slow.
    """
    agents = [group for group in groups if trains_agents(group.config)]
    if len(agents) > MOST_GROUPS:
        agents = [max(agents, key=lambda g: _final(g, metric))]
    return [(group.name, agent_html(group.runs[0].path, asked)) for group in agents]


def _final(group: Group, metric: str) -> float:
    values = curve(group.runs, metric)[1]
    final = float(values[:, -1].mean()) if values.size else math.nan
    return -math.inf if math.isnan(final) else final


def agent_html(path: Path, asked: bool = False) -> str:
    """One run's agent; one line where it is not played here."""
    try:
        return played_html(episodes(path, asked))
    except UserError as error:
        why = str(error).splitlines()[0]
    except Exception as error:  # noqa: BLE001 - playing may fail in any way; the curves are there
        why = one_line(error)
    return f"<p class=note>No episodes: {escape(why)}.</p>"


def played_html(played: Played) -> str:
    return render(
        __package__,
        "episodes.html.jinja",
        played=played,
        won=sum(won for won, _ in played.kinds.values()),
        count=sum(count for _, count in played.kinds.values()),
        share=lambda won, count: f"{won / count:.0%}",
        **_words(),
    )


def episode_html(episode: Episode) -> str:
    """One episode: its outcome and task, and folded what was said and seen."""
    return render(__package__, "one_episode.html.jinja", one=episode, **_words())


def _words() -> dict[str, Callable[..., object]]:
    """What the template of an episode calls."""
    return {
        "heading": heading, "counted": counted, "fold": fold, "turns": turns,
        "without_goal": without_goal, "ending": ending,
    }  # fmt: skip


def heading(episode: Episode) -> str:
    """The goal as a sentence; a prompt, which is all that its world shows, as it is."""
    goal = episode.goal
    return goal if episode.begin.strip() == goal.strip() else sentence_case(goal)


def without_goal(episode: Episode) -> str:
    """What the world showed first, less the paragraphs that only repeat the goal above them."""
    goal = episode.goal.strip().rstrip(".")
    kept = [p for p in episode.begin.split("\n") if goal not in p or len(p) > len(goal) + ANNOUNCED]
    return readable("\n".join(kept), episode.goal)


class Fold(NamedTuple):
    """A text and, where it is long, the beginning that stays visible."""

    whole: str
    head: str = ""


def fold(text: str) -> Fold:
    text = text.strip()
    return Fold(text, text[:HEAD].rsplit(" ", 1)[0] if len(text) > LONG else "")


class Turn(NamedTuple):
    """A step, or several in a row that are all the same."""

    command: str
    valid: bool
    times: int
    thought: Fold | None
    rest: Fold | None  # what was said beside the thought
    saw: Fold | None  # None: the same as before


def turns(episode: Episode) -> Iterator[Turn]:
    before = episode.begin
    for _, same in itertools.groupby(episode.steps, key=lambda step: (step.said, step.saw)):
        step, *again = same
        thought = " ".join(match.strip() for match in THOUGHT.findall(step.said))
        rest = THOUGHT.sub("", step.said).strip()
        repeated = step.saw == before and len(before) > SHORT
        yield Turn(
            step.command,
            step.valid,
            1 + len(again),
            fold(thought) if thought else None,
            fold(rest) if rest else None,
            None if repeated else fold(readable(step.saw, episode.goal)),
        )
        before = step.saw


def readable(text: str, goal: str) -> str:
    """A shop's page repeats the goal and separates its parts by a token."""
    return text.replace(" [SEP] ", " · ").replace(goal, "(the task)" if len(goal) > SHORT else goal)


def ending(episode: Episode) -> str:
    """The outcome in words."""
    count = counted(episode.length, "step")
    if episode.won:
        return f"Won after {count}."
    invalid = sum(not step.valid for step in episode.steps)
    again = episode.trouble - invalid
    parts = []
    if invalid:
        parts.append(f"{counted(invalid, 'answer')} not well formed")
    if again:
        parts.append(f"{counted(again, 'command')} repeated to no new effect")
    if episode.reward > 0:
        parts.append(f"reward {episode.reward:.2g}")
    return f"Lost after {count}" + (f": {', '.join(parts)}." if parts else ".")
