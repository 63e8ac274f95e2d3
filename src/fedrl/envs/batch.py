"""Many episodes of a text world side by side: what a rollout steps, hundreds per call.

An episode that is over stays in its place and costs nothing until `reset` gives it a new task, so
slot i of every answer belongs to the same episode as slot i of the commands.
"""

from __future__ import annotations

from collections.abc import Sequence

from fedrl.core.types import UserError
from fedrl.envs.side_by_side import StartsMany
from fedrl.envs.text import Episode, StepsMany, Task, TextWorld, Turn


class Batch:
    """`turns[i]` is what slot i saw last, `steps[i]` how many commands it has taken."""

    def __init__(self, world: TextWorld, max_steps: int | None = None) -> None:
        self.world = world
        self.max_steps = world.max_steps if max_steps is None else max_steps
        self.episodes: list[Episode] = []
        self.turns: list[Turn] = []
        self.steps: list[int] = []
        self.over: list[bool] = []

    def reset(self, tasks: Sequence[str | Task], seed: int = 0) -> list[Turn]:
        """One episode per task or task id; one may come many times (the group of GRPO)."""
        if isinstance(tasks, str):
            raise UserError(f"a batch needs a list of tasks: [{tasks!r}]")
        ids = [task.id if isinstance(task, Task) else task for task in tasks]
        begun = (
            self.world.start_many(ids, seed)
            if isinstance(self.world, StartsMany)
            else [self.world.start(id, seed) for id in ids]
        )
        self.episodes = [episode for episode, _ in begun]
        self.turns = [turn for _, turn in begun]
        self.steps = [0] * len(begun)
        self.over = [turn.done for turn in self.turns]
        return list(self.turns)

    def step(
        self, commands: Sequence[str], tokens: Sequence[Sequence[int]] | None = None
    ) -> list[Turn]:
        """One command per slot, and the tokens that a model wrote it in.

        Slots that are over ignore theirs and repeat their last turn.
        """
        if isinstance(commands, str) or len(commands) != len(self.episodes):
            raise UserError(f"{len(commands)} commands for {len(self.episodes)} episodes")
        self.advance(self.running, commands, tokens)
        return list(self.turns)

    def advance(
        self,
        slots: Sequence[int],
        commands: Sequence[str],
        tokens: Sequence[Sequence[int]] | None = None,
    ) -> None:
        """`step` of these slots alone, which must be running; commands are those of all slots."""
        for i, turn in zip(slots, self._turns(slots, commands, tokens), strict=True):
            self.turns[i] = turn
            self.steps[i] += 1
            self.over[i] = turn.done or self.steps[i] >= self.max_steps

    def _turns(
        self,
        slots: Sequence[int],
        commands: Sequence[str],
        tokens: Sequence[Sequence[int]] | None,
    ) -> list[Turn]:
        if not isinstance(self.world, StepsMany):
            return [self.episodes[i].step(commands[i]) for i in slots]
        return self.world.step_many(
            [self.episodes[i] for i in slots],
            [commands[i] for i in slots],
            [tokens[i] if tokens else () for i in slots],
        )

    @property
    def running(self) -> list[int]:
        """The slots that still play: the ones to ask a policy about."""
        return [i for i, over in enumerate(self.over) if not over]
