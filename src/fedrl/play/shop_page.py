"""The shop as people see it: one HTML page per moment of a visit, without scripts.

Every button is a command of the text world. All text of products and visitors goes through
`escape`; nothing is loaded from elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable

from fedrl.envs.webshop import pages
from fedrl.envs.webshop.product import Product
from fedrl.play.shop_ending import ending
from fedrl.play.shop_parts import document, escape, form, note
from fedrl.play.shop_score import price_tag
from fedrl.play.shop_visitors import Visitor

SUB_EMPTY = {
    "description": "The product has no description.",
    "features": "The product has no list of features.",
    "reviews": "Nobody has written a review: reviews are empty in this shop.",
}


def page(visitor: Visitor) -> str:
    """The whole page of where the visitor is."""
    kinds = {"start": _start, "results": _results, "item": _item, "sub": _sub, "done": ending}
    title, content = kinds[visitor.visit.page.kind](visitor)
    above = "" if visitor.typed else note(visitor)
    main = above + content + _agent(visitor) + _footer(visitor)
    return document(title, _header(visitor), main)


def place(visitor: Visitor) -> str:
    """Where on the page the visitor was: an address, so that acting does not lose the place."""
    if visitor.typed:
        return "/#agent"
    return "/#chosen" if visitor.chosen and not visitor.note else "/"


def plain_page(title: str, text: str) -> str:
    """A page outside any visit: what could not be served, and the way back."""
    back = '<p><a class=button href="/">To the shop</a></p>'
    header = "<header><div class=top><a class=brand href='/'>fedrl · WebShop</a></div></header>"
    return document(title, header, f"<h1>{escape(title)}</h1><p>{escape(text)}</p>{back}")


def _header(visitor: Visitor) -> str:
    used, most = visitor.steps, visitor.shop.max_steps
    over = " over" if used > most else ""
    title = f"An agent may use {most} steps; you may use as many as you like."
    return (
        "<header><div class=top><a class=brand href='/'>fedrl · WebShop</a>"
        f'<span class="steps{over}" title="{title}"><b>{used}</b> of {most} steps</span>'
        + form(visitor, '<button class="quiet">Another goal</button>', "/goal")
        + '</div><section class=goal aria-label="Your goal"><span>Your goal</span>'
        f"<p>{escape(visitor.visit.goal)}</p></section></header>"
    )


def _start(visitor: Visitor) -> tuple[str, str]:
    text = "Search, open a product, choose its options, and buy it. You can buy once."
    return "Search", (
        f"<h1>What are you looking for?</h1>{_search(visitor, '', focus=True)}"
        f"<p class=soft>{text}</p>"
    )


def _search(visitor: Visitor, query: str, focus: bool = False) -> str:
    field = (
        f'<input type=search name=query value="{escape(query)}" aria-label="Search the shop" '
        f'placeholder="Search the shop" autocomplete=off enterkeyhint=search'
        f"{' autofocus' if focus else ''}>"
    )
    return form(visitor, field + "<button class=main>Search</button>", "/search", "search")


def _results(visitor: Visitor) -> tuple[str, str]:
    visit, shop = visitor.visit, visitor.shop
    rows = []
    for target, asin in visit.page.products.items():
        product = shop.store.by_asin[asin]
        seen = "<span class=seen>looked at</span>" if asin in visit.visited else ""
        rows.append(
            f'<li><button class=product name=do value="{escape(f"click[{target}]")}">'
            f"<span class=title>{escape(product.title)}</span>"
            f"<span class=price>{escape(price_tag(product, shop.prices[asin]))}</span>"
            f"<span class=id>{escape(asin)} {seen}</span></button></li>"
        )
    turning = _buttons(visitor, (pages.PREVIOUS, pages.NEXT))
    listed = f"<ol class=products>{''.join(rows)}</ol>"
    if not rows:
        listed = "<p class=empty>No products here. Search with other words, or turn back.</p>"
    turn = f'<nav class=row aria-label="Pages of results">{turning}</nav>'
    heading = f"<h1>Results <small>{escape(_count(visitor))}</small></h1>"
    below = turn if len(rows) > 3 else ""
    return f"Results, page {visit.number}", (
        _search(visitor, visit.query)
        + form(visitor, f"<div class=between>{heading}{turn}</div>{listed}{below}")
        + form(visitor, f"<nav class=row>{_buttons(visitor, (pages.BACK,))}</nav>")
    )


def _count(visitor: Visitor) -> str:
    """In the world's own words: `Page 1 (Total results: 50)`."""
    return next(piece.text for piece in visitor.visit.page.pieces if piece.text[:5] == "Page ")


def _item(visitor: Visitor) -> tuple[str, str]:
    product = _product(visitor)
    groups = "".join(
        _options(visitor, name, values) for name, values in product.options.items() if values
    )
    more = (
        f"<nav class=row aria-label='About the product'>{_buttons(visitor, pages.SUB_PAGES)}</nav>"
    )
    missing = sorted(name for name in product.options if name not in visitor.visit.options)
    hint = (
        f"<span class=soft>Not chosen yet: {escape(', '.join(missing))}</span>" if missing else ""
    )
    buy = (
        '<div class=buy><button class=main name=do value="click[buy now]">Buy Now</button>'
        f"{hint}</div>"
    )
    content = f"{_title(visitor, product)}{more}{groups}{buy}{_leave(visitor)}"
    return product.title, form(visitor, content)


def _options(visitor: Visitor, name: str, values: Iterable[str]) -> str:
    chosen = visitor.visit.options.get(name)
    buttons = "".join(
        f'<button class=option name=do value="{escape(f"click[{value}]")}" '
        f'aria-pressed="{str(value == chosen).lower()}">{escape(value)}</button>'
        for value in dict.fromkeys(values)
    )
    mark = " id=chosen" if name == visitor.chosen else ""
    return (
        f"<fieldset{mark}><legend>{escape(name)}</legend><div class=row>{buttons}</div></fieldset>"
    )


def _sub(visitor: Visitor) -> tuple[str, str]:
    product = _product(visitor)
    texts = [piece.text for piece in visitor.visit.page.pieces if piece.kind == "text"]
    if not texts:
        text = f"<p class=empty>{SUB_EMPTY[visitor.sub]}</p>"
    elif visitor.sub == "features":
        text = f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in texts)}</ul>"
    else:
        text = "".join(f"<p>{escape(line)}</p>" for line in texts)
    name = visitor.sub.capitalize()
    content = f"<article class=text><h2>{name}</h2>{text}</article>"
    title = _title(visitor, product)
    return f"{name}: {product.title}", form(visitor, title + content + _leave(visitor))


def _title(visitor: Visitor, product: Product) -> str:
    price = price_tag(product, visitor.shop.prices[product.asin])
    return (
        f"<h1 class=name>{escape(product.title)}</h1><p class=under>"
        f"<span class=price>{escape(price)}</span><span class=id>{escape(product.asin)}</span></p>"
    )


def _leave(visitor: Visitor) -> str:
    to = "the product" if visitor.visit.page.kind == "sub" else "the results"
    previous = (
        f'<button name=do value="click[&lt; prev]" aria-label="&lt; Prev: back to {to}">'
        f"&lt; Prev</button>"
    )
    return f"<nav class=row>{previous}{_buttons(visitor, (pages.BACK,))}</nav>"


def _agent(visitor: Visitor) -> str:
    """What the same moment is to an agent, for people who build one."""
    turn = visitor.turn
    sent = visitor.way[-1] if visitor.way else "none yet"
    field = (
        '<input type=hidden name=typed value=1><input name=do placeholder="click[next &gt;]" '
        'aria-label="A command of your own" autocomplete=off spellcheck=false>'
        "<button>Send</button>"
    )
    own = "" if turn.done else form(visitor, field, "/command", "command")
    commands = "\n".join(turn.admissible) or "none: the episode has ended"
    return (
        f"<details class=agent id=agent{' open' if visitor.typed else ''}>"
        f"<summary>What an agent sees</summary>{note(visitor) if visitor.typed else ''}"
        f"<h2>Command sent</h2><pre>{escape(sent)}</pre>"
        f"<h2>Observation</h2><pre>{escape(turn.observation)}</pre>"
        f"<p class=soft>reward {turn.reward:g}, done {str(turn.done).lower()}</p>"
        f"<h2>Available actions ({len(turn.admissible)})</h2><pre>{escape(commands)}</pre>{own}"
        "</details>"
    )


def _footer(visitor: Visitor) -> str:
    return (
        f"<footer><span>{escape(visitor.task)}</span><form method=get action='/'>"
        "<label>Go to a goal <input name=task placeholder='goal-00017' size=11 autocomplete=off>"
        "</label><button class=quiet>Go</button></form></footer>"
    )


def _buttons(visitor: Visitor, names: Iterable[str]) -> str:
    """Those of the named buttons that the page has."""
    return "".join(
        f'<button name=do value="{escape(f"click[{name.lower()}]")}">{escape(name)}</button>'
        for name in names
        if name.lower() in visitor.visit.page.clickables
    )


def _product(visitor: Visitor) -> Product:
    return visitor.shop.store.by_asin[visitor.visit.asin]
