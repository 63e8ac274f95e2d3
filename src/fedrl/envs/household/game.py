"""The household engine: plays a problem with the sentences of the real ALFWorld engine.

State is what the PDDL actions change and no more; the odd corners (an object listed in two
receptacles, one located away from its receptacle) fall out of keeping the same facts as the
original: `contents` is inReceptacle, `places` is objectAtLocation, and `left` holds the pairs whose
inReceptacle was taken back, because the original's "next to it" list looks for just those.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable

from fedrl.envs.household.layout import HELP, Layout, listed

NOTHING = "Nothing happens."
ALWAYS = ("help", "inventory", "look")

STATE_WORDS: tuple[tuple[set[str], str], ...] = (
    ({"isClean", "isHot", "isSliced"}, "This is a hot and clean sliced {}."),
    ({"isClean", "isCool", "isSliced"}, "This is a cool and clean sliced {}."),
    ({"isClean", "isSliced"}, "This is a clean sliced {}."),
    ({"isHot", "isSliced"}, "This is a hot sliced {}."),
    ({"isCool", "isSliced"}, "This is a cool sliced {}."),
    ({"isClean", "isHot"}, "This is a hot and clean {}."),
    ({"isClean", "isCool"}, "This is a cool and clean {}."),
    ({"isHot"}, "This is a hot {}."),
    ({"isClean"}, "This is a clean {}."),
    ({"isCool"}, "This is a cold {}."),
    ({"isToggled"}, "This {} is on."),
    ({"isSliced"}, "This is a sliced {}."),
    (set(), "There's nothing special about {}."),
)
"""What `examine` says of an object: the first line whose states all hold."""

Action = tuple[Callable[[int, int], str], int, int]
"""What a command does, and the two numbers it does it with; 0 where one is not needed."""


class Game:
    """One episode: `step` answers with the observation, `won` says whether the goal holds."""

    __slots__ = (
        "_actions",
        "_admissible",
        "contents",
        "holding",
        "layout",
        "left",
        "opened",
        "place",
        "places",
        "states",
        "won",
    )

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.reset()

    def reset(self) -> str:
        layout = self.layout
        self.place = layout.start
        self.holding = -1
        self.opened = layout.opened[:]
        self.contents = [content[:] for content in layout.contents]
        self.places: dict[int, frozenset[int]] = {}  # only of things that have been moved
        self.left: set[tuple[int, int]] = set()
        self.states: dict[int, frozenset[str]] = {}  # only of things whose state has changed
        self.won = self._goal_holds()
        self._admissible: list[str] | None = None
        self._actions: dict[str, Action] = {}
        return layout.intro()

    def step(self, command: str) -> str:
        """The observation; a command that is not admissible does nothing."""
        command = command.strip()
        layout = self.layout
        receptacle = layout.goto.get(command)
        if receptacle is not None:
            return self._go(receptacle)
        if command == "look":
            return self._look()
        if command == "inventory":
            held = self.holding
            if held < 0:
                return "You are not carrying anything."
            return f"You are carrying: a {layout.thing_names[held]}."
        if command == "help" and layout.newer:
            return HELP
        if self._admissible is None:
            self._admissible = self._commands()
        action = self._actions.get(command)
        return NOTHING if action is None else action[0](action[1], action[2])

    # What the agent may do

    @property
    def admissible(self) -> list[str]:
        """Every command that would do something now, sorted. Not to be changed by the caller."""
        if self._admissible is None:
            self._admissible = self._commands()
        return self._admissible

    def _commands(self) -> list[str]:
        layout, place, held = self.layout, self.place, self.holding
        names, things = layout.receptacle_names, layout.thing_names
        actions: dict[str, Action] = {}
        for r in layout.receptacles_at[place]:
            name, content = names[r], self.contents[r]
            actions[f"examine {name}"] = (self._examine, r, 0)
            shut = False
            if layout.openable[r]:
                shut = not self.opened[r]
                actions[f"{'open' if shut else 'close'} {name}"] = (self._turn, r, shut)
            if held >= 0:
                self._offer(actions, r, shut)
            elif not shut:
                for o in content:
                    if layout.pickable[o]:
                        actions[f"take {things[o]} from {name}"] = (self._take, o, r)
            for o in content:
                if layout.lamp[o]:
                    actions[f"use {things[o]}"] = (self._use, o, 0)
        if held >= 0:
            actions[f"examine {things[held]}"] = (self._inspect, held, 0)
            if layout.knife[held]:
                for o in layout.sliceable:
                    if place in self.places.get(o, layout.thing_places[o]):
                        actions[f"slice {things[o]} with {things[held]}"] = (self._slice, o, 0)
        self._actions = actions
        return sorted((*actions, *layout.goto_at[place], *(ALWAYS if layout.newer else ALWAYS[1:])))

    def _offer(self, actions: dict[str, Action], r: int, shut: bool) -> None:
        """What can be done at a receptacle with the thing in hand."""
        layout = self.layout
        thing, name = layout.problem.things[self.holding], layout.thing_names[self.holding]
        receptacle = layout.receptacle_names[r]
        if not shut and thing.type in layout.fits[r]:
            words = f"move {name} to" if layout.newer else f"put {name} in/on"
            actions[f"{words} {receptacle}"] = (self._put, r, 0)
        for i, (verb, flag, _) in enumerate(layout.treats[r]):
            if flag in thing.flags:
                actions[f"{verb} {name} with {receptacle}"] = (self._treat, r, i)

    # What then happens

    def _changed(self, observation: str) -> str:
        self._admissible = None
        self.won = self._goal_holds()
        return observation

    def _go(self, r: int) -> str:
        layout = self.layout
        place = layout.place_of[r]
        if place == self.place:
            return NOTHING
        self.place = place
        arrived = layout.receptacle_names[r] if layout.newer else layout.place_names[place]
        return self._changed(f"You arrive at {arrived}. {self._examine(r)}")

    def _turn(self, r: int, open: int) -> str:
        self.opened[r] = bool(open)
        name = self.layout.receptacle_names[r]
        if open:
            return self._changed(f"You open the {name}. {self._examine(r)}")
        return self._changed(f"You close the {name}.")

    def _take(self, o: int, r: int) -> str:
        self.contents[r].remove(o)
        self.left.add((o, r))
        self.places[o] = self.places_of(o) - {self.place}
        self.holding = o
        layout = self.layout
        return self._changed(
            f"You pick up the {layout.thing_names[o]} from the {layout.receptacle_names[r]}."
        )

    def _put(self, r: int, _: int) -> str:
        o, layout = self.holding, self.layout
        if o not in self.contents[r]:  # it can still lie there: some are listed in two receptacles
            insort(self.contents[r], o)
        self.left.discard((o, r))
        self.places[o] = self.places_of(o) | {self.place}
        self.holding = -1
        thing, receptacle = layout.thing_names[o], layout.receptacle_names[r]
        if layout.newer:
            return self._changed(f"You move the {thing} to the {receptacle}.")
        return self._changed(f"You put the {thing} in/on the {receptacle}.")

    def _treat(self, r: int, number: int) -> str:
        o, layout = self.holding, self.layout
        verb, _, state = layout.treats[r][number]
        undone = {"isHot": "isCool", "isCool": "isHot"}.get(state)
        self.states[o] = (self.states_of(o) | {state}) - {undone}
        return self._changed(
            f"You {verb} the {layout.thing_names[o]} using the {layout.receptacle_names[r]}."
        )

    def _use(self, o: int, _: int) -> str:
        self.states[o] = self.states_of(o) | {"isToggled"}
        return self._changed(f"You turn on the {self.layout.thing_names[o]}.")

    def _slice(self, o: int, _: int) -> str:
        self.states[o] = self.states_of(o) | {"isSliced"}
        names = self.layout.thing_names
        return self._changed(f"You sliced the {names[o]} with the {names[self.holding]}.")

    # What the agent sees

    def _examine(self, r: int, _: int = 0) -> str:
        layout = self.layout
        name = layout.receptacle_names[r]
        if layout.openable[r] and not self.opened[r]:
            return f"The {name} is closed."
        names = layout.thing_names
        seen = listed([names[o] for o in self.contents[r]])
        if layout.openable[r]:
            return f"The {name} is open. In it, you see {seen}."
        return f"On the {name}, you see {seen}."

    def _inspect(self, o: int, _: int) -> str:
        layout = self.layout
        name = layout.thing_names[o]
        if "isReceptacleObject" in layout.problem.things[o].flags:
            inner = listed([layout.thing_names[i] for i in layout.inner.get(o, ())])
            return f"This is a normal {name}. In it, you see {inner}."
        states = self.states_of(o)
        return next(words for needed, words in STATE_WORDS if needed <= states).format(name)

    def _look(self) -> str:
        layout, place = self.layout, self.place
        here = layout.receptacles_at[place]
        if not here:
            return "You are in the middle of a room. Looking quickly around you, you see nothing."
        aside = sorted(
            {o for o, r in self.left if layout.place_of[r] == place and place in self.places_of(o)}
        )
        facing = [layout.receptacle_names[r] for r in here]
        faced = facing[0] if len(facing) == 1 else ", ".join(facing[:-1]) + f", and {facing[-1]}"
        beside = listed([layout.thing_names[o] for o in aside])
        return f"You are facing the {faced}. Next to it, you see {beside}."

    # The facts behind it

    def places_of(self, o: int) -> frozenset[int]:
        return self.places.get(o, self.layout.thing_places[o])

    def states_of(self, o: int) -> frozenset[str]:
        return self.states.get(o, self.layout.problem.things[o].states)

    def goal_parts(self) -> dict[str, bool]:
        """What the goal asks for, in words, and which of it holds: for people who watch."""
        layout, goal = self.layout, self.layout.problem.goal
        thing, target = goal.object.lower(), goal.target.lower()
        if goal.kind == "look":
            lit = any("isToggled" in self.states_of(o) for o in layout.lights)
            return {
                f"a {thing} in hand": self.holding in layout.wanted,
                f"a {target} is on": lit,
                "both at the same place": self.won,
            }
        moved = {o for o, _ in self.left} & layout.wanted
        parts = {f"a {thing} was picked up": bool(moved)}
        if layout.goal_state is not None:
            word = layout.goal_state.removeprefix("is").lower()
            treated = any(layout.goal_state in self.states_of(o) for o in layout.wanted)
            parts[f"a {thing} is {word}"] = treated
        if layout.needed == 2:
            there = [layout.wanted.intersection(self.contents[r]) for r in layout.targets]
            parts[f"a {thing} in/on a {target}"] = any(there)
            parts[f"two {thing} in/on the same {target}"] = self.won
        else:
            parts[f"it is in/on a {target}"] = self.won
        return parts

    def _goal_holds(self) -> bool:
        layout = self.layout
        if layout.problem.goal.kind == "look":
            return self.holding in layout.wanted and any(
                o in layout.lights and "isToggled" in self.states_of(o)
                for r in layout.receptacles_at[self.place]
                for o in self.contents[r]
            )
        state = layout.goal_state
        for r in layout.targets:
            there = layout.wanted.intersection(self.contents[r])
            if state is not None:
                there = frozenset(o for o in there if state in self.states_of(o))
            if len(there) >= layout.needed:
                return True
        return False
