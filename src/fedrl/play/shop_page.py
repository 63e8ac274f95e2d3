"""The shop as people see it: one HTML page per moment of a visit (shop_page.html.jinja)."""

from __future__ import annotations

from fedrl.core.package_files import render
from fedrl.envs.webshop import pages
from fedrl.play.shop_score import limit, money, price_tag, score_breakdown
from fedrl.play.shop_visitors import Visitor

SUB_EMPTY = {
    "description": "The product has no description.",
    "features": "The product has no list of features.",
    "reviews": "Nobody has written a review: reviews are empty in this shop.",
}


def page(visitor: Visitor) -> str:
    """The whole page of where the visitor is."""
    kinds = {"start": _start, "results": _results, "item": _item, "sub": _sub, "done": _done}
    title, shown = kinds[visitor.episode.page.kind](visitor)
    return render(
        __package__,
        "shop_page.html.jinja",
        title=title,
        visitor=visitor,
        pages=pages,
        price_tag=price_tag,
        **shown,
    )


def place(visitor: Visitor) -> str:
    """Where on the page the visitor was: an address, so that acting does not lose the place."""
    if visitor.typed:
        return "/#agent"
    return "/#chosen" if visitor.chosen and not visitor.note else "/"


def refusal(title: str, text: str) -> str:
    """A page outside any visit: what could not be served, and the way back."""
    return render(__package__, "shop_refusal.html.jinja", title=title, text=text)


Shown = tuple[str, dict[str, object]]
"""A page's title, and what its template shows beside the visitor."""


def _start(visitor: Visitor) -> Shown:
    return "Search", {}


def _results(visitor: Visitor) -> Shown:
    # In the world's own words: `Page 1 (Total results: 50)`.
    texts = (piece.text for piece in visitor.episode.page.pieces)
    count = next(text for text in texts if text.startswith("Page "))
    return f"Results, page {visitor.episode.number}", {"count": count}


def _item(visitor: Visitor) -> Shown:
    product = visitor.shop.store.by_asin[visitor.episode.asin]
    missing = sorted(name for name in product.options if name not in visitor.episode.options)
    return product.title, {"product": product, "missing": missing}


def _sub(visitor: Visitor) -> Shown:
    product = visitor.shop.store.by_asin[visitor.episode.asin]
    texts = [piece.text for piece in visitor.episode.page.pieces if piece.kind == "text"]
    title = f"{visitor.sub.capitalize()}: {product.title}"
    return title, {"product": product, "texts": texts, "empty": SUB_EMPTY[visitor.sub]}


def _done(visitor: Visitor) -> Shown:
    """The score, and what made it."""
    shop, goal, bought = visitor.shop, visitor.episode.wanted, visitor.turn.info["purchase"]
    product = shop.store.by_asin[bought["asin"]]
    scored = score_breakdown(product, goal, bought["price"], bought["options"], shop.rules)
    options = len(scored.points) - len(goal.attributes) - 1
    parts = ["attribute"] * len(goal.attributes) + ["option"] * options + ["price"]
    # Two decimals, but never a rounded 1.00 that is not a success.
    score = "1.00" if scored.score == 1.0 else f"{min(scored.score, 0.99):.2f}"
    return f"Score {score}", {
        "product": product,
        "price": bought["price"],
        "scored": scored,
        "score": score,
        "won": visitor.turn.info["won"],
        "points": zip(parts, scored.points, strict=True),
        "factor": f"{scored.factor:g}",
        "ways": {"The expert's way": shop.demonstrate(visitor.task), "Your way": visitor.way},
        "money": money,
        "limit": limit,
    }
