"""Figures of several panels side by side are marked: on a phone they scroll (`site.css`).

Shrunk to its width nobody could read their numbers. Drawings (.svg) scroll in any case.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

FIGURE = re.compile(r"<img(?=[^>]*\ssrc=\"([^\":]+\.png)\")")
WIDE = 2.0
"""Width by height from which on a figure has panels beside one another."""


def on_page_content(content: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    places = {file.url: file.abs_src_path for file in files.media_files()}

    def marked(found: re.Match[str]) -> str:
        place = places.get(posixpath.normpath(posixpath.join(page.url, found[1])))
        wide = place is not None and shape(Path(place)) >= WIDE
        return "<img data-wide" if wide else found[0]

    return FIGURE.sub(marked, content)


def shape(png: Path) -> float:
    """Width by height, which stand in a PNG's first bytes."""
    with png.open("rb") as file:
        head = file.read(24)
    return int.from_bytes(head[16:20], "big") / int.from_bytes(head[20:24], "big")
