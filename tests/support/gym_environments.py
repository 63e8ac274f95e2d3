"""Environments of a package that is not Gymnasium's: `support.gym_environments:Toy-v0`."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

OBSERVED: dict[str, spaces.Space] = {
    "box": spaces.Box(-2.0, 6.0, (3,)),
    "table": spaces.Box(-1.0, 1.0, (2, 2)),
    "dict": spaces.Dict({"cell": spaces.Discrete(3), "speed": spaces.Box(-1.0, 1.0, (2,))}),
    "image": spaces.Box(0, 255, (4, 4, 3), np.uint8),
    "sequence": spaces.Sequence(spaces.Box(-1.0, 1.0, (1,))),
    "open": spaces.Box(-np.inf, np.inf, (2,)),
}
CHOSEN: dict[str, spaces.Space] = {
    "three": spaces.Discrete(3),
    "from5": spaces.Discrete(3, start=5),
    "box": spaces.Box(np.float32([-4.0, 0.0]), np.float32([4.0, 1.0])),
    "open": spaces.Box(-np.inf, np.inf, (1,)),
    "table": spaces.Box(-1.0, 1.0, (2, 2)),
    "many": spaces.MultiDiscrete([2, 3]),
}


class Toy(gymnasium.Env[Any, Any]):
    """Shows draws of its spaces, remembers what it was told, ends after `length` steps."""

    def __init__(
        self,
        observed: str = "box",
        chosen: str = "three",
        length: int = 7,
        forgetful: bool = True,
        pull: float = 1.0,
    ) -> None:
        self.observation_space, self.action_space = OBSERVED[observed], CHOSEN[chosen]
        self.length, self.forgetful, self.pull = length, forgetful, pull
        self.told: list[Any] = []
        self.steps = self.lived = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.steps = 0
        self.observation_space.seed(int(self.np_random.integers(2**31)))
        return self.look(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        self.told.append(action)
        self.steps, self.lived = self.steps + 1, self.lived + 1
        reward = self.pull if self.forgetful else self.pull + self.lived
        return self.look(), reward, self.steps >= self.length, False, {}

    def look(self) -> Any:
        return self.observation_space.sample()


gymnasium.register("Toy-v0", Toy, max_episode_steps=20)
gymnasium.register("Endless-v0", Toy)
