"""What the shop's pages are made of: the frame, forms, notes, and text made safe."""

from __future__ import annotations

from html import escape as quoted
from importlib.resources import files

from fedrl.play.shop_visitors import Visitor

ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32" fill="none" stroke="#0072b2" '
    'stroke-width="2.6" stroke-linejoin="round" stroke-linecap="round"><path '
    'd="M6 11h20l-2 16H8z"/><path d="M11 14V9a5 5 0 0 1 10 0v5"/></svg>'
)


def css() -> str:
    return files(__package__).joinpath("shop.css").read_text(encoding="utf-8")


def escape(text: str) -> str:
    """HTML cannot carry control characters, not even escaped."""
    return quoted(
        "".join(c if c >= " " or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)
    )


def document(title: str, header: str, main: str) -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(title)} · fedrl shop</title>"
        '<link rel="icon" href="/icon.svg"><link rel="stylesheet" href="/shop.css"></head>'
        f'<body><a class=skip href="#main">Skip to the shop</a>{header}'
        f'<main id="main">{main}</main></body></html>\n'
    )


def note(visitor: Visitor) -> str:
    return f"<p class=note role=status>{escape(visitor.note)}</p>" if visitor.note else ""


def form(visitor: Visitor, content: str, action: str = "/command", kind: str = "") -> str:
    """A form knows the moment that it was made for; see `Visitor.at`."""
    role = " role=search" if kind == "search" else ""
    return (
        f'<form method=post action="{action}" class="{kind}"{role}>'
        f"<input type=hidden name=at value={visitor.at}>{content}</form>"
    )
