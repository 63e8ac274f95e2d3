"""Who is in the shop: every visitor has a goal and an episode of their own.

What a visitor does is one command of the text world, or nothing at all. Pages carry the number of
the moment they were made for (`at`), so that a page from before, by the back button, another tab or
a double click, can never act on the shop as it is now.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict, deque
from collections.abc import Sequence

from fedrl.core.types import UserError
from fedrl.envs.text import Task
from fedrl.envs.webshop import pages
from fedrl.envs.webshop.shop import WebShop

LONGEST_QUERY = 300
LONGEST_COMMAND = 2000
REMEMBERED = 200  # commands of a visitor's way; a person buys within twenty

STALE = "That was a page from before, so it was not sent to the shop. This is where you are now."
PUT_AWAY = "Your visit was put away to make room for others, or the shop was opened anew."
NOTHING = "Nothing happened: this page knows no such command. It cost a step, as it costs an agent."
OVER = "The goal is over: what was bought is bought. Take another goal."
NO_WORDS = "Type a few words of what you are looking for first."


class Visitor:
    """One person: the goal, the episode, and what the last action led to."""

    def __init__(self, shop: WebShop, task: str, note: str = "") -> None:
        self.shop = shop
        # From anywhere: what a page of somebody put away says must not fit the new visit.
        self.at = secrets.randbelow(2**31)
        self.take_goal(task)
        self.note = note

    def take_goal(self, task: str) -> None:
        """Take this goal. One that the shop does not have raises UserError and changes nothing."""
        self.episode, self.turn = self.shop.start(task)
        self.task = task
        self.at += 1
        self.steps = 0
        self.way: deque[str] = deque(maxlen=REMEMBERED)
        self.sub = ""  # which sub-page is shown, where one is
        self.chosen = ""  # the option that the last command chose
        self.typed = False  # whether the last command was typed as the agent types it
        self.note = ""

    def search(self, query: str) -> None:
        """Brackets would end the command early, so they are blanks; much too much is cut."""
        words = "".join(" " if c in "[]" or not c.isprintable() else c for c in query).split()
        cut = " ".join(words)[:LONGEST_QUERY].strip()
        if not cut:
            self.note, self.typed = NO_WORDS, False
            return
        self.send(f"search[{cut}]")
        if len(query) > LONGEST_QUERY and not self.note:
            self.note = f"Only the first {LONGEST_QUERY} characters of the search were used."

    def send(self, command: str, typed: bool = False) -> None:
        """One step of the world."""
        if self.turn.done:
            self.note = OVER
            return
        command = command.strip()[:LONGEST_COMMAND]
        name, argument = pages.parse(command, nested=not self.shop.rules.faithful)
        searched = name == "search" and argument
        known = searched or f"{name}[{argument}]" in self.turn.admissible
        self.chosen = self.episode.page.options.get(argument, "") if known else ""
        self.turn = self.episode.step(command)
        self.at += 1
        self.steps += 1
        self.way.append(command)
        self.typed = typed
        self.note = "" if known else NOTHING
        if known and self.episode.page.kind == "sub":
            self.sub = argument


class Visitors:
    """Everybody, by the secret in their cookie; who was not seen for longest goes first."""

    def __init__(self, shop: WebShop, task: str | None, split: str, most: int) -> None:
        self.shop = shop
        self.tasks: Sequence[Task] = shop.tasks(split)
        if not self.tasks:
            raise UserError(f"split is {split!r}, which has no goals in this shop")
        if task is not None:
            shop.goal(task)
        self.first = task
        self.most = most
        self.inside: OrderedDict[str, Visitor] = OrderedDict()

    def another(self) -> str:
        return secrets.choice(self.tasks).id

    def find(self, token: str) -> Visitor | None:
        if token in self.inside:
            self.inside.move_to_end(token)
        return self.inside.get(token)

    def admit(self, note: str = "") -> tuple[str, Visitor]:
        token = secrets.token_urlsafe(24)
        self.inside[token] = Visitor(self.shop, self.first or self.another(), note)
        while len(self.inside) > self.most:
            self.inside.popitem(last=False)
        return token, self.inside[token]
