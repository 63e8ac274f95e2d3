"""The last page: the score, and what made it."""

from __future__ import annotations

from fedrl.envs.webshop.product import Product
from fedrl.play.shop_parts import escape, form
from fedrl.play.shop_score import Point, Verdict, judge, limit, money, price_tag
from fedrl.play.shop_visitors import Visitor


def ending(visitor: Visitor) -> tuple[str, str]:
    shop, goal = visitor.shop, visitor.visit.wanted
    bought = visitor.turn.info["purchase"]
    product = shop.store.by_asin[bought["asin"]]
    verdict = judge(product, goal, bought["price"], bought["options"], shop.rules)
    won = visitor.turn.info["won"]
    title = "Exactly what was asked for" if won else "Not quite what was asked for"
    again = form(visitor, "<button class=main>Another goal</button>", "/goal")
    content = (
        f"<h1>{title}</h1>{_bar(verdict.score, won)}<p class=soft>You bought "
        f"<b>{escape(product.title)}</b> ({escape(product.asin)}) for {money(bought['price'])}. "
        "A purchase succeeds only with the full score, exactly 1.</p>"
        f"<h2>How the score came about</h2>{_points(verdict, len(goal.attributes))}"
        f"{'' if won else _target(visitor, product)}{_ways(visitor)}{again}"
    )
    return f"Score {_number(verdict.score)}", content


def _bar(score: float, won: bool) -> str:
    kind = "won" if won else "lost"
    return (
        f'<div class="score {kind}" role=img aria-label="Score {_number(score)} of 1">'
        f"<b>{_number(score)}</b>"
        '<svg width="100%" height="14" aria-hidden="true"><rect class=track width="100%" '
        f'height="14" rx="7"/><rect class=fill width="{100 * score:.1f}%" height="14" rx="7"/>'
        "</svg></div>"
    )


def _points(verdict: Verdict, attributes: int) -> str:
    last = len(verdict.points) - 1
    rows = []
    for index, point in enumerate(verdict.points):
        part = "attribute" if index < attributes else "price" if index == last else "option"
        rows.append(_row(part, point))
    share = f"{verdict.earned} of {len(verdict.points)} points"
    factor = f"{verdict.factor:g}"
    fits = "yes" if verdict.factor == 1 else "no"
    return (
        "<table class=points><thead><tr><th scope=col>Part</th><th scope=col>Wanted</th>"
        "<th scope=col>Bought</th><th scope=col>Point</th></tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table><p class=soft>An attribute counts where the title, "
        "the features or the description say it, or where the catalogue has one close to it; an "
        "option counts where a chosen value is close to the wanted one, or of its colour.</p>"
        f'<p class="kind {fits}"><b>Kind of product: × {factor}</b> {escape(verdict.kind)}</p>'
        f"<p class=sum>{share} × {factor} = <b>{_number(verdict.score)}</b></p>"
    )


def _row(part: str, point: Point) -> str:
    mark = "<td class=yes>✓ earned</td>" if point.earned else "<td class=no>✗ missed</td>"
    why = f"<small>{escape(point.why)}</small>" if point.why else ""
    return (
        f"<tr><th scope=row>{part}</th><td data-head=Wanted>{escape(point.wanted)}</td>"
        f"<td data-head=Bought>{escape(point.bought)}{why}</td>{mark}</tr>"
    )


def _target(visitor: Visitor, product: Product) -> str:
    shop, goal = visitor.shop, visitor.visit.wanted
    target = shop.store.by_asin[goal.asin]
    tag = price_tag(target, shop.prices[target.asin])
    text = "The goal was made from this product; others may earn the full score as well."
    if target.asin == product.asin:
        text = "It was the right product."
    values = goal.values
    choose = f"<p>Choose: <b>{escape(', '.join(values))}</b></p>" if values else ""
    return (
        f"<h2>What would have been right</h2><div class=card><p><b>{escape(target.title)}</b></p>"
        f"<p class=under><span class=price>{escape(tag)}</span>"
        f"<span class=id>{escape(target.asin)}</span><span>{escape(limit(goal))}</span></p>"
        f"{choose}<p class=soft>{text}</p></div>"
    )


def _ways(visitor: Visitor) -> str:
    ways = {"The expert's way": visitor.shop.demonstrate(visitor.task), "Your way": visitor.way}
    return "".join(
        f"<details><summary>{name} ({len(way)} steps)</summary>"
        f"<ol class=way>{''.join(f'<li><code>{escape(one)}</code></li>' for one in way)}</ol>"
        "</details>"
        for name, way in ways.items()
    )


def _number(score: float) -> str:
    """Two decimals, but never a rounded 1.00 that is not a success."""
    return "1.00" if score == 1.0 else f"{min(score, 0.99):.2f}"
