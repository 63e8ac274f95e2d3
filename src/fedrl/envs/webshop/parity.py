"""Replays recordings of the original WebShop and counts where ours answers differently.

A folder of recordings holds `webshop_{goals,rewards,search,sessions,title_nouns}.jsonl.xz`: the
seeds are in the first record of the goals, and the table of nouns stands in for the tagger that the
original ran with. The recordings are of the 1,000-product catalogue.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from fedrl.envs.parity import Line, Record, records, transcript
from fedrl.envs.text import Turn
from fedrl.envs.webshop.goals import Goal
from fedrl.envs.webshop.nouns import lookup
from fedrl.envs.webshop.pages import PER_PAGE
from fedrl.envs.webshop.reward import reward
from fedrl.envs.webshop.shop import Settings, WebShop

FIRST_PAGES = 0.95  # share of queries whose first page must be the same, in the same order
OVERLAP = 0.99  # share of the original's results that must be among ours


def replay(folder: Path, data: Path) -> list[Line]:
    """One line per file in `folder`; `data` is the catalogue's folder, or the one above it."""
    with transcript(_path(folder, "goals")):
        shop = recorded_shop(folder, data / "webshop" if (data / "webshop").is_dir() else data)
    lines = []
    for name, check in CHECKS.items():
        path = _path(folder, name)
        with transcript(path):
            lines.append(check(shop, path))
    return lines


def recorded_shop(folder: Path, catalogue: Path) -> WebShop:
    """The shop that was recorded: faithful, with the recording's seeds and nouns."""
    meta = next(records(_path(folder, "goals")))
    nouns = {record["name"]: record["nouns"] for record in records(_path(folder, "title_nouns"))}
    settings = Settings(
        source=str(catalogue),
        products=meta["n_products"],
        goal_seed=meta["seed_before_loading"],
        order_seed=meta["seed_before_shuffle"],
        faithful=True,
    )
    return WebShop(settings, tagger=lookup(nouns))


def goals_line(shop: WebShop, path: Path) -> Line:
    line = Line(path.name, unit="records")
    for record in records(path):
        if record["kind"] == "price":
            asin = record["asin"]
            line.compare(asin, {"price": record["price"]}, {"price": shop.prices[asin]})
        elif record["kind"] == "goal":
            got = shop.goals[record["index"]].to_record()
            line.compare(f"goal {record['index']}", record["goal"], got)
        else:
            line.compare("all goals", _recorded_summary(record), _summary(shop))
    line.note = f"{len(shop.goals)} goals by sha256"
    return line


def _recorded_summary(record: Record) -> Record:
    names = ("n_products", "n_goals", "sha256_all_goals", "asin_order_sha256")
    return {name: record[name] for name in names}


def _summary(shop: WebShop) -> Record:
    listed = [goal.to_record() for goal in shop.goals]
    text = json.dumps(listed, sort_keys=True, ensure_ascii=False)
    order = "\n".join(goal.asin for goal in shop.goals)
    return {
        "n_products": len(shop.store.products),
        "n_goals": len(listed),
        "sha256_all_goals": hashlib.sha256(text.encode()).hexdigest(),
        "asin_order_sha256": hashlib.sha256(order.encode()).hexdigest(),
    }


def rewards_line(shop: WebShop, path: Path) -> Line:
    line = Line(path.name, unit="purchases")
    for number, record in enumerate(records(path), start=1):
        product = shop.store.by_asin[record["asin"]]
        goal = Goal.from_record(record["goal"])
        value, parts = reward(product, goal, record["price"], record["options"], shop.rules)
        expected = {"reward": record["reward"], "info": record["info"]}
        line.compare(f"line {number}", expected, {"reward": value, "info": parts})
    return line


def search_line(shop: WebShop, path: Path) -> Line:
    """A mismatch is another first hit; deeper ranks pass by their shares.

    The original hides digits of its scores, so near-ties may come in another order.
    """
    line = Line(path.name, unit="queries")
    same_pages = wanted = shared = 0
    for record in records(path):
        ours = [product.asin for product in shop.store.find(record["query"])]
        theirs = record["asins"]
        line.compare(record["query"], {"first hit": theirs[:1]}, {"first hit": ours[:1]})
        same_pages += ours[:PER_PAGE] == theirs[:PER_PAGE]
        wanted += len(theirs)
        shared += len(set(theirs) & set(ours))
    pages, overlap = same_pages / max(line.checked, 1), shared / max(wanted, 1)
    line.note = f"same first page {pages:.1%}, overlap at 50 {overlap:.2%}"
    line.failed = pages < FIRST_PAGES or overlap < OVERLAP
    return line


def sessions_line(shop: WebShop, path: Path) -> Line:
    line = Line(path.name)
    sessions = 0
    for sessions, record in enumerate(records(path), start=1):
        goal = shop.goals[record["goal_index"]]
        episode, turn = shop.episode(goal)
        expected = {**record["reset"], "goal": record["goal"]}
        line.compare(
            f"session {sessions}, start", expected, {**_turn_record(turn), "goal": goal.to_record()}
        )
        for step in record["steps"]:
            expected = {"purchase": None, **step}
            action = expected.pop("action")
            line.compare(
                f"session {sessions}, {action}", expected, _turn_record(episode.step(action))
            )
    line.note = f"{sessions} sessions"
    return line


def _turn_record(turn: Turn) -> Record:
    """A turn in the recording's terms."""
    available = turn.info["available"]
    purchase = turn.info.get("purchase")
    return {
        "observation": turn.observation,
        "available": {**available, "clickables": list(available["clickables"])},
        "reward": turn.reward,
        "done": turn.done,
        "purchase": purchase and {**purchase, "info": turn.info["reward_parts"]},
    }


def _path(folder: Path, name: str) -> Path:
    return folder / f"webshop_{name}.jsonl.xz"


CHECKS = {
    "goals": goals_line,
    "rewards": rewards_line,
    "search": search_line,
    "sessions": sessions_line,
}
"""The files of a folder of recordings, and what each is compared with."""
