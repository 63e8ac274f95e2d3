"""Reading a result page as its reader does."""

from __future__ import annotations


def row(text: str, start: str) -> list[str]:
    found = next(line for line in text.splitlines() if line.startswith(f"| {start}"))
    return [part.strip() for part in found.strip("|").split("|")]
