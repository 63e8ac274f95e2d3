"""The household expert: the next good command in any state, for demonstrations and warm starts.

It plans backwards from the goal (treat what is in hand, carry it to the target, else fetch one)
over the receptacles whose content it knows. With `search=False` it knows them all and wins every
solvable game in about ten steps; with `search=True` it knows what the agent has seen, and looks
through the rest in a fixed order, likely places first: behaviour that an agent can imitate. A small
model imitates it better in the order of a list that it can read (`order`) than by what fits where.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fedrl.envs.household.game import Game
from fedrl.envs.household.layout import TREATMENTS


class Expert:
    """Advises one game. After every step of the game tell it by `watch` what was done."""

    def __init__(self, game: Game, search: bool = False, order: Sequence[str] = ()) -> None:
        self.game, self.layout = game, game.layout
        self.order = {name: i for i, name in enumerate(order)}
        every = range(len(self.layout.receptacle_names))
        self.known: set[int] = set() if search else set(every)

    def watch(self, command: str) -> None:
        """Learn the content of the receptacle that the last command showed."""
        for verb in ("go to ", "open ", "examine "):
            r = self.layout.goto.get("go to " + command.strip().removeprefix(verb))
            if r is not None and not self._shut(r) and self._here(r):
                self.known.add(r)

    def advise(self) -> str:
        layout, held = self.layout, self.game.holding
        if layout.problem.goal.kind == "look":
            return self._light() if held in layout.wanted else self._fetch(-1)
        target = self._target()
        if held < 0:
            return self._fetch(target)
        if held in layout.wanted:
            state = layout.goal_state
            if state is not None and state not in self.game.states_of(held):
                return self._treat()
            if held not in self.game.contents[target]:
                return self._put(target)
        return self._put_away(target)

    # The steps of a plan, the last first

    def _target(self) -> int:
        """Where to put: of the right type, the one that already holds most of what is asked."""
        layout, contents = self.layout, self.game.contents
        return max(
            layout.targets,
            key=lambda r: (r in self.known and len(layout.wanted.intersection(contents[r])), -r),
        )

    def _light(self) -> str:
        layout, contents = self.layout, self.game.contents
        lit = [r for r in sorted(self.known) if layout.lights.intersection(contents[r])]
        if not lit:
            return self._explore(layout.problem.goal.target)
        r = next((r for r in lit if self._here(r)), lit[0])
        if not self._here(r):
            return self._go(r)
        return f"use {layout.thing_names[min(layout.lights.intersection(contents[r]))]}"

    def _treat(self) -> str:
        """Clean, heat or cool what is in hand."""
        layout = self.layout
        types, (verb, _, _) = TREATMENTS[layout.problem.goal.kind]
        places = [r for r, p in enumerate(layout.problem.receptacles) if p.type in types]
        r = self._nearest(places)
        if not self._here(r):
            return self._go(r)
        return f"{verb} {layout.thing_names[self.game.holding]} with {layout.receptacle_names[r]}"

    def _put(self, r: int) -> str:
        if not self._here(r):
            return self._go(r)
        name, receptacle = (
            self.layout.thing_names[self.game.holding],
            self.layout.receptacle_names[r],
        )
        if self._shut(r):
            return f"open {receptacle}"
        return (
            f"move {name} to {receptacle}"
            if self.layout.newer
            else f"put {name} in/on {receptacle}"
        )

    def _put_away(self, target: int) -> str:
        """Free the hands of what the goal does not need, best right here."""
        layout = self.layout
        kind = layout.problem.things[self.game.holding].type
        fits = [r for r in range(len(layout.fits)) if kind in layout.fits[r] and r != target]
        ready = [r for r in fits if not self._shut(r)]
        return self._put(self._nearest(ready or fits)) if fits else "look"

    def _fetch(self, target: int) -> str:
        """Go and take an object that the goal asks for and that is not in its place yet."""
        layout, contents = self.layout, self.game.contents
        if self.game.holding >= 0:
            return self._put_away(target)
        placed = contents[target] if target >= 0 and layout.goal_state is None else ()
        lying = [
            (r, o)
            for r in sorted(self.known)
            for o in contents[r]
            if o in layout.wanted and layout.pickable[o] and o not in placed
        ]
        if not lying:
            return self._explore(layout.problem.goal.object)
        r, o = next(((r, o) for r, o in lying if self._here(r)), lying[0])
        if not self._here(r):
            return self._go(r)
        receptacle = layout.receptacle_names[r]
        if self._shut(r):
            return f"open {receptacle}"
        return f"take {layout.thing_names[o]} from {receptacle}"

    def _explore(self, kind: str) -> str:
        """Look into the next receptacle: first those that can hold this type of object."""
        layout = self.layout
        unknown = [r for r in range(len(layout.fits)) if r not in self.known]
        if not unknown:
            return "look"
        if self.order:
            names = layout.receptacle_names
            unknown.sort(key=lambda r: self.order.get(names[r], len(names)))
        likely = [] if self.order else [r for r in unknown if kind in layout.fits[r]]
        r = self._nearest(likely or unknown)
        if not self._here(r):
            return self._go(r)
        return f"{'open' if self._shut(r) else 'examine'} {layout.receptacle_names[r]}"

    # Where things are

    def _here(self, r: int) -> bool:
        return self.layout.place_of[r] == self.game.place

    def _shut(self, r: int) -> bool:
        return self.layout.openable[r] and not self.game.opened[r]

    def _nearest(self, receptacles: Iterable[int]) -> int:
        """One at the agent's place if there is one, else the first."""
        receptacles = list(receptacles)
        return next((r for r in receptacles if self._here(r)), receptacles[0])

    def _go(self, r: int) -> str:
        return f"go to {self.layout.receptacle_names[r]}"


def demonstrate(game: Game, search: bool = False, limit: int = 50) -> list[str]:
    """Play the game to its end with the expert's commands; `game.won` says whether it worked."""
    expert, commands = Expert(game, search), list[str]()
    while not game.won and len(commands) < limit:
        commands.append(expert.advise())
        game.step(commands[-1])
        expert.watch(commands[-1])
    return commands
