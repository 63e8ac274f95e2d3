"""Help texts that fit the terminal: paragraphs are filled anew, tables keep their columns."""

import argparse
import re
import shutil
import textwrap

MOST = 100
"""Columns of a help text, however wide the terminal is: longer lines are hard to follow."""
ROW = re.compile(r"(\s*\S+(?: \S+)* {2,})(\S.*)")
"""What is explained, two spaces or more, and the explanation."""


def fitted(text: str, width: int | None = None) -> str:
    """The text in lines of at most `width`: those of the terminal, if it is not said.

    A line that begins with spaces, or has two of them in its middle, is a row of its own; what
    follows under its explanation belongs to it. Other lines are a paragraph together.
    """
    width = width or min(MOST, shutil.get_terminal_size().columns)
    rows: list[tuple[int, str]] = []  # where its further lines begin (-1: a paragraph), its text
    for line in map(str.rstrip, text.splitlines()):
        found, indent = ROW.fullmatch(line), len(line) - len(line.lstrip())
        before = rows[-1][0] if rows else 0
        if not line:
            rows.append((0, ""))
        elif found:
            rows.append((len(found[1]), line))
        elif indent and before > 0 and indent == before:
            rows[-1] = (before, f"{rows[-1][1]} {line.strip()}")
        elif indent:
            rows.append((indent + 2, line))
        elif before == -1:
            rows[-1] = (-1, f"{rows[-1][1]} {line}")
        else:
            rows.append((-1, line))
    return "\n".join(line for hang, row in rows for line in _wrapped(row, hang, width))


def _wrapped(row: str, hang: int, width: int) -> list[str]:
    hang = max(hang, 0) if hang < width - 25 else 8
    lines = textwrap.wrap(
        row, width, subsequent_indent=" " * hang, break_long_words=False, break_on_hyphens=False
    )
    return lines or [""]


class Filled(argparse.HelpFormatter):
    """Descriptions and epilogs of several paragraphs."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return textwrap.indent(fitted(text, width - len(indent)), indent)
