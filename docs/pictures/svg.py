"""A small pen for the figures of the documentation: text, boxes, arrows and curves as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

HERE = Path(__file__).parent
INK, GREY, LINE = "#1d2733", "#5b6b7b", "#c7d0da"
SERVER, CLIENT, WHITE = "#f6f8fb", "#fbf7f0", "#ffffff"
BLUE, ORANGE, GREEN, RED = "#2f6db3", "#c9702b", "#3d8b5f", "#b5403a"
COLOURS = (BLUE, ORANGE, GREEN, "#7a5ba8", RED, "#6b7580")
MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace"
NARROW = "\u00a0\u00a0"
"""Two spaces, which SVG would make one."""
SANS = "Inter, Segoe UI, Helvetica, Arial, sans-serif"


class Figure:
    """One picture on a white card, with a title and a line below it."""

    def __init__(self, title: str, below: str = "", width: int = 760, height: int = 300) -> None:
        self.width, self.height = width, height
        self.title, self.parts = title, []
        self.text(20, 32, title, size=16, weight=600)
        if below:
            self.text(20, 52, below, size=12.5, colour=GREY)

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        size: float = 13,
        colour: str = INK,
        weight: int = 400,
        anchor: str = "start",
        mono: bool = False,
    ) -> None:
        family = f' font-family="{MONO}"' if mono else ""
        words = escape(words).replace("  ", NARROW)
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" font-size="{size:g}" fill="{colour}" '
            f'font-weight="{weight}" text-anchor="{anchor}"{family}>{words}</text>'
        )

    def lines(self, x: float, y: float, words: Sequence[str], step: float = 17, **style) -> None:
        for number, line in enumerate(words):
            self.text(x, y + number * step, line, **style)

    def box(
        self, x: float, y: float, width: float, height: float, fill: str = WHITE, line: str = LINE
    ) -> None:
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="8" '
            f'fill="{fill}" stroke="{line}"/>'
        )

    def card(
        self, x: float, y: float, width: float, height: float, name: str, *below: str, **style
    ) -> None:
        """A box with a name in it and lines under that."""
        self.box(x, y, width, height, **style)
        self.text(x + 12, y + 23, name, size=13, weight=600)
        self.lines(x + 12, y + 42, below, size=12, colour=GREY)

    def bar(self, x: float, y: float, width: float, height: float, fill: str) -> None:
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{fill}"/>'
        )

    def path(
        self,
        points: Sequence[tuple[float, float]],
        colour: str = GREY,
        width: float = 1.6,
        *,
        arrow: bool = False,
        dashed: bool = False,
    ) -> None:
        d = "M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        end = f' marker-end="url(#{colour[1:]})"' if arrow else ""
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self.parts.append(
            f'<path d="{d}" fill="none" stroke="{colour}" stroke-width="{width:g}" '
            f'stroke-linejoin="round"{dash}{end}/>'
        )

    def arrow(
        self, x0: float, y0: float, x1: float, y1: float, colour: str = GREY, **style
    ) -> None:
        self.path([(x0, y0), (x1, y1)], colour, arrow=True, **style)

    def dot(self, x: float, y: float, colour: str = INK, radius: float = 4.5) -> None:
        self.parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="{radius:g}" fill="{colour}"/>')

    def ring(self, x: float, y: float, radius: float, colour: str = GREY) -> None:
        self.parts.append(
            f'<circle cx="{x:g}" cy="{y:g}" r="{radius:g}" fill="none" stroke="{colour}" '
            'stroke-dasharray="5 4"/>'
        )

    def save(self, name: str) -> None:
        heads = "".join(
            f'<marker id="{colour[1:]}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" '
            f'markerHeight="7" orient="auto-start-reverse"><path d="M0 0L10 5L0 10z" '
            f'fill="{colour}"/></marker>'
            for colour in (GREY, INK, *COLOURS)
        )
        text = "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
                f'width="{self.width}" height="{self.height}" font-family="{SANS}">',
                f"<title>{escape(self.title)}</title>",
                f'<rect width="{self.width}" height="{self.height}" rx="8" fill="{WHITE}"/>',
                f"<defs>{heads}</defs>",
                *self.parts,
                "</svg>\n",
            ]
        )
        (HERE / f"{name}.svg").write_text(text, encoding="utf-8")
