"""What a page is made of: sections, tables, figures with their legend, and the style sheet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files

from fedrl.report import plots
from fedrl.report.groups import Group, plus_minus


def document(title: str, sections: Iterable[str]) -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><title>{escape(title)} · fedrl</title>'
        f"<style>{css()}</style></head><body><main>{''.join(sections)}</main></body></html>\n"
    )


def section(title: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{content}</section>"


def table(head: Iterable[str], body: Iterable[Sequence[str]], wrap: bool = False) -> str:
    """Cells of `body` are HTML already, `head` is text."""
    top = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    lines = "".join(
        f'<tr><th scope="row">{row[0]}</th>' + "".join(f"<td>{c}</td>" for c in row[1:]) + "</tr>"
        for row in body
    )
    kind = "wrap" if wrap else "nowrap"
    return (
        f'<div class=scroll tabindex="0"><table class={kind}>'
        f"<thead><tr>{top}</tr></thead><tbody>{lines}</tbody></table></div>"
    )


def tiles(row: Mapping[str, str]) -> str:
    cells = "".join(f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in row.items())
    return f"<dl class=tiles>{cells}</dl>"


def spans(numbers: Sequence[int]) -> str:
    """`3, 7–9, 12` of sorted numbers."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}–{b}" for a, b in runs)


def swatch(index: int) -> str:
    dash = {"-": "", "--": "6 3", ":": "2 2", "-.": "6 2 2 2"}[plots.line_style(index)[1]]
    colour = f"var(--c{index % len(plots.PALETTE)})"
    return (
        '<svg class=swatch width="22" height="8" aria-hidden="true">'
        f'<path d="M0 4H22" style="stroke:{colour};stroke-width:3;stroke-dasharray:{dash}"/></svg>'
    )


def legend(groups: Sequence[Group]) -> str:
    if len(groups) == 1:
        return ""
    names = "".join(f"<li>{swatch(i)}{escape(one.name)}</li>" for i, one in enumerate(groups))
    return f"<ul class=legend>{names}</ul>"


def gallery(panels: Iterable[plots.Panel]) -> str:
    return f"<div class=gallery>{''.join(map(image, panels))}</div>"


def image(one: plots.Panel) -> str:
    ends = "; ".join(
        f"{name} ends at {plus_minus(values[:, -1], one.share)}"
        for name, values in one.lines.items()
        if values.size
    )
    alt = f"Line plot of {one.title} against {one.x_label}: {ends}."
    uri = plots.as_data_uri(plots.curves([one], names=False))
    return f'<img alt="{escape(alt)}" src="{uri}">'


def css() -> str:
    def colours(palette: Sequence[str]) -> str:
        return "".join(f"--c{index}:{colour};" for index, colour in enumerate(palette))

    sheet = files(__package__).joinpath("report.css").read_text(encoding="utf-8")
    return (
        f":root{{{colours(plots.PALETTE)}--ink:{plots.INK};--paper:{plots.PAPER};--soft:#5b6472;"
        f"--line:#e1e4ea;--card:#f6f7f9;--warn:#fff3d6;--edge:#d99a00;--good:#1a7f4b;--bad:#b3402e}}"
        f"@media(prefers-color-scheme:dark){{:root{{{colours(plots.PALETTE_DARK)}"
        f"--ink:{plots.INK_DARK};--paper:#14171d;--soft:#a2aab8;--line:#2e343f;--card:#1c2028;"
        "--warn:#3a2f12;--edge:#d9a520;--good:#5fd39a;--bad:#f2917f}}\n" + sheet
    )
