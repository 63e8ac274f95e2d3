"""The index at a glance: a bar for each paper, divided by what became of its statements.

An SVG of fixed sizes, so that the same verdicts give the same file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from reproductions.pages import NOT_MEASURED
from reproductions.statements import NOT_JUDGED, WORDS
from reproductions.verdicts import FAILS, HOLDS, OPEN

COLOURS = {
    HOLDS: ("#2f8f5b", "#ffffff"),
    FAILS: ("#c2483f", "#ffffff"),
    OPEN: ("#e6b54a", "#3b2c00"),
    NOT_JUDGED: ("#9aa5b1", "#16202b"),
    NOT_MEASURED: ("#e3e7eb", "#4a5560"),
}
"""A verdict's bar, and the number on it."""
WIDTH, LEFT, BAR, STEP, TOP = 760, 20, 30, 64, 58
NARROW = 18
"""Pixels below which a part has no room for its number."""
FONT = "system-ui, -apple-system, 'Segoe UI', Arial, sans-serif"


def drawn(papers: Sequence[tuple[str, Mapping[str, int]]]) -> str:
    """Of papers by title: how many statements there are of each verdict."""
    height = TOP + STEP * len(papers) + 4
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" font-family="{FONT}" font-size="13">',
        f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#ffffff"/>',
        *legend(),
    ]
    for at, (title, counts) in enumerate(papers):
        parts += bar(TOP + at * STEP, title, counts)
    return "\n".join([*parts, "</svg>", ""])


def legend() -> list[str]:
    parts, x = [], LEFT
    for word in WORDS:
        parts.append(
            f'<rect x="{x}" y="18" width="13" height="13" rx="3" fill="{COLOURS[word][0]}"/>'
        )
        parts.append(f'<text x="{x + 19}" y="29" fill="#26323d">{word}</text>')
        x += 19 + 8 * len(word) + 24
    return parts


def bar(y: int, title: str, counts: Mapping[str, int]) -> list[str]:
    whole = sum(counts[word] for word in WORDS)
    parts = [
        f'<text x="{LEFT}" y="{y + 10}" fill="#26323d" font-weight="600">{escape(title)}</text>',
        f'<text x="{WIDTH - LEFT}" y="{y + 10}" fill="#5b6874" text-anchor="end">'
        f"{whole} statements</text>",
    ]
    x = float(LEFT)
    for word in WORDS:
        if not counts[word]:
            continue
        wide = (WIDTH - 2 * LEFT) * counts[word] / whole
        colour, ink = COLOURS[word]
        parts.append(
            f'<rect x="{x:.1f}" y="{y + 18}" width="{wide - 2:.1f}" height="{BAR}" rx="4" '
            f'fill="{colour}"><title>{counts[word]} {word}</title></rect>'
        )
        if wide >= NARROW:
            parts.append(
                f'<text x="{x + wide / 2 - 1:.1f}" y="{y + 38}" fill="{ink}" font-weight="600" '
                f'text-anchor="middle">{counts[word]}</text>'
            )
        x += wide
    return parts
