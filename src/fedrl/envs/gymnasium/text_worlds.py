"""Text worlds as Gymnasium environments: `import fedrl; gymnasium.make("fedrl/Household-v0")`."""

from __future__ import annotations

import dataclasses
from typing import Any, SupportsFloat, TypeVar

import gymnasium
from gymnasium import spaces

from fedrl.core.limits import one_of
from fedrl.core.registry import suggestion
from fedrl.core.types import UserError
from fedrl.envs.text import Episode, TextWorld, Turn

LONGEST = 100_000
"""Characters of an observation or command that the spaces declare; nothing here comes near."""


Chosen = TypeVar("Chosen")
Setting = str | int | bool
Info = dict[str, Any]
"""As Gymnasium has it: whatever an environment has to say."""


class AnyText(spaces.Text):
    """Text of any script. Gymnasium's own space wants a closed list of characters."""

    def contains(self, x: Any) -> bool:
        return isinstance(x, str) and len(x) <= self.max_length


class TextEnv(gymnasium.Env[str, str]):
    """One text world with the usual `reset` and five-part `step`.

    `reset(seed=…)` draws a task of the split; `reset(options={"task": id})` plays a certain one.
    `info` holds `admissible_commands`, `won`, `goal`, `task`, and the reward's parts at the end.
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012

    def __init__(
        self,
        world: TextWorld,
        split: str = "train",
        max_steps: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        one_of("split", split, world.splits)
        self.world, self.split, self.render_mode = world, split, render_mode
        self.max_steps = world.max_steps if max_steps is None else max_steps
        self.observation_space = AnyText(LONGEST, min_length=0)
        self.action_space = AnyText(200, min_length=0)
        self._ids = [task.id for task in world.tasks(split)]
        if not self._ids:
            raise UserError(f"split is {split!r}, which has no tasks in this world")
        self._episode: Episode | None = None
        self._task, self._steps, self._seen = "", 0, ""

    def reset(
        self, *, seed: int | None = None, options: dict[str, str] | None = None
    ) -> tuple[str, Info]:
        super().reset(seed=seed)
        chosen = int(self.np_random.integers(len(self._ids)))
        draw = int(self.np_random.integers(2**31))  # also where the task is given: one stream
        if unknown := set(options or {}) - {"task"}:
            raise UserError(f"options has {', '.join(sorted(unknown))}; there is only 'task'")
        self._task = str((options or {}).get("task", self._ids[chosen]))
        self._episode, turn = self.world.start(self._task, draw)
        self._steps = 0
        return self._answer(turn)

    def step(self, action: str) -> tuple[str, SupportsFloat, bool, bool, Info]:
        if self._episode is None:
            raise gymnasium.error.ResetNeeded("call reset before step")
        turn = self._episode.step(action)
        self._steps += 1
        observation, info = self._answer(turn)
        cut = not turn.done and self._steps >= self.max_steps
        return observation, turn.reward, turn.done, cut, info

    def render(self) -> str | None:
        return self._seen if self.render_mode == "ansi" else None

    def _answer(self, turn: Turn) -> tuple[str, Info]:
        assert self._episode is not None
        self._seen = turn.observation
        info = {
            **turn.info,
            "admissible_commands": list(turn.admissible),
            "goal": self._episode.goal,
            "task": self._task,
        }
        return turn.observation, info


def household(
    split: str = "train",
    render_mode: str | None = None,
    max_steps: int | None = None,
    **world: Setting,
) -> TextEnv:
    """`world` are the settings of the household: size="tiny", source="alfworld", …"""
    from fedrl.envs.household.world import Household, Settings

    return TextEnv(Household(_settings(Settings, world)), split, max_steps, render_mode)


def webshop(
    split: str = "train",
    render_mode: str | None = None,
    max_steps: int | None = None,
    **world: Setting,
) -> TextEnv:
    """`world` are the settings of the shop: products=5000, observation="text_rich", …"""
    from fedrl.envs.webshop.shop import Settings, WebShop

    return TextEnv(WebShop(_settings(Settings, world)), split, max_steps, render_mode)


def _settings(cls: type[Chosen], given: dict[str, Setting]) -> Chosen:
    """The settings of a world from keywords; a wrong one is named, as in a recipe."""
    names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
    for name in given:
        if name not in names:
            raise UserError(f"the world has no setting {name!r}; {suggestion(name, names)}")
    return cls(**given)
