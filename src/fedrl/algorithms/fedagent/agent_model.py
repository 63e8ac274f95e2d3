"""The model behind language agents: loaded when it is needed, compared, asked and written.

What FedAgent is beside its algorithm: which tasks its model is judged on, what a node must have
alike, and the agent in use once it is trained.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedrl.algorithms.fedagent import held_out
from fedrl.algorithms.fedagent.evaluations import Evaluation, episodes_of
from fedrl.algorithms.fedagent.settings import Settings
from fedrl.core.abilities import GpuUse
from fedrl.core.agreement import digest
from fedrl.core.data_outline import DataOutline, outlined
from fedrl.core.registry import missing_extra
from fedrl.core.types import Json, Tensors, UserError
from fedrl.envs.client_worlds import ClientWorlds, described
from fedrl.envs.text import Alike, PartitionedWorld, Task, TextWorld

if TYPE_CHECKING:
    from fedrl.algorithms.fedagent.local_trainer import LocalTrainer
    from fedrl.llm.gpu_share import Reservation
    from fedrl.llm.text_policy import AgentPolicy, Answering

OWN = "personal"
"""Of what a client keeps: adapters of its own, which nobody else ever sees."""


PATIENCE = 300.0
"""Seconds that who only looks at an agent waits for room beside those who train."""


class Place:
    """On a GPU, which is given back with the model; of nothing where there is no GPU. At the
    process's end the entry stays: it counts until the process is dead, as its memory does."""

    def __init__(self, reservation: Reservation | None, whole: bool = True) -> None:
        self.whole = whole if reservation is None else reservation.whole
        if reservation is not None:
            weakref.finalize(self, reservation.give_back).atexit = False


class AgentModel:
    """`trainer` remembers nothing: every call sets its weights."""

    settings: Settings
    world: TextWorld
    dealt: PartitionedWorld
    shares: Sequence[list[str]]
    client_env_ids: Sequence[Sequence[int]]
    keep_episodes: Callable[[list[Json]], None] | None = None
    _trainer: LocalTrainer | None
    _place: Place | None = None

    @cached_property
    def eval_tasks(self) -> list[Task]:
        """What the server's model is evaluated on."""
        tasks = self._some_held_out(self.world.tasks(self.settings.eval_split))
        if not tasks:
            raise UserError(f"algorithm.eval_split: {self.settings.eval_split!r} has no tasks")
        if self.dealt.own:  # what is dealt out is looked at as a whole
            held_out.check_contents(described(self.world), tasks, self.settings.model)
        return tasks

    @cached_property
    def more_eval_tasks(self) -> dict[str, list[Task]]:
        """By split, what else it is evaluated on."""
        found = {}
        for split in self.settings.eval_splits:
            found[split] = self._some_held_out(self.world.tasks(split))
            if not found[split]:
                raise UserError(f"algorithm.eval_splits: {split!r} has no tasks")
        return found

    def _some_held_out(self, tasks: Sequence[Task]) -> list[Task]:
        return held_out.some(tasks, self.settings)

    def own_held_out(self, client: int) -> list[Task]:
        """What a client with a world or data of its own does not train on."""
        assert isinstance(self.world, ClientWorlds)
        public = self.eval_tasks if self.world.alike else ()
        return [
            task
            for owner in self.client_env_ids[client]
            for task in held_out.own_tasks(self.world, owner, self.settings, public)
        ]

    def contents_in_common(self, client: int) -> int:
        """How many of the tasks that the model is evaluated on a client trains on."""
        if not isinstance(self.world, ClientWorlds) or self.dealt.held_out == "clients":
            return 0
        return sum(
            held_out.contents_in_common(self.world, owner, self.eval_tasks)
            for owner in self.client_env_ids[client]
        )

    def own_theta(self, state: Tensors, kept: Tensors) -> Tensors | None:
        """The model of a client that keeps adapters for itself."""
        return state["theta"] | kept[OWN] if OWN in kept else None

    # The agent in use

    def policy(self, state: Tensors, client: int | None = None) -> AgentPolicy[Any]:
        """The agent with these weights, which answers as it does in evaluation."""
        from fedrl.llm.text_policy import AgentPolicy

        trainer = self.trainer
        return AgentPolicy(trainer.actor, state["theta"], self._answering(), trainer.loop.format)

    def own_policy(self, kept: Tensors, state: Tensors, client: int) -> AgentPolicy[Any]:
        """The agent of a client that keeps adapters for itself."""
        theta = self.own_theta(state, kept)
        if theta is None:
            raise UserError(f"client {client} keeps no adapters (algorithm.personal_rank)")
        return self.policy({"theta": theta})

    def save(self, theta: Tensors, out: Path, adapters: bool = False) -> None:
        """The model with these weights as an ordinary folder, or its adapters alone."""
        from fedrl.algorithms.fedagent.local_trainer import adapters as trained
        from fedrl.llm.export import save

        settings = self.settings
        save(settings.model, trained(settings), theta, out, self._answering(), adapters)

    def _answering(self) -> Answering:
        from fedrl.algorithms.fedagent.local_trainer import chosen_format
        from fedrl.llm.text_policy import agent_answering

        settings = self.settings
        return agent_answering(
            chosen_format(settings, self.world), described(self.world), self.eval_tasks[0].id,
            settings.answer_tokens, settings.eval_temperature, settings.prompt_tokens,
        )  # fmt: skip

    def first_messages(self) -> Sequence[Json]:
        """What an endpoint is asked first in a task that the model is evaluated on; nothing where
        clients alone hold tasks."""
        if self.dealt.held_out == "clients":
            return []
        from fedrl.algorithms.fedagent.local_trainer import chosen_format
        from fedrl.llm.prompts.outline import messages

        format = chosen_format(self.settings, self.world)
        episode, turn = described(self.world).start(self.eval_tasks[0].id)
        return messages(format, format.start(episode.goal, turn))

    def prompt_outline(self) -> str:
        return self._answering().outline

    def data_outline(self) -> DataOutline:
        shares = [] if self.dealt.own else self.shares  # their owners' to count
        trained = held_out.plain_names(self.world, shares)
        tasks = [] if self.dealt.held_out == "clients" else self.eval_tasks
        evaluated, kinds = [task.id for task in tasks], len({task.category for task in tasks})
        held = [len(share) for share in shares]
        return outlined("tasks", held, trained, evaluated, kinds, "eval/success")

    def evaluations(self, use: GpuUse) -> list[Evaluation]:
        """What a process plays beside its rollouts: of the server's model where it evaluates, as a
        client where it learns."""
        found, settings = list[Evaluation](), self.settings
        apart = self.dealt.held_out == "clients"
        if use.evaluates and not apart:
            worlds = sum(map(len, self.client_env_ids))
            for tasks in (self.eval_tasks, *self.more_eval_tasks.values()):
                found.append(Evaluation("eval_tasks", 1, len(tasks)))
            found.append(Evaluation("eval_own", worlds, settings.eval_own * worlds))
        if use.learns and settings.eval_trained:  # in the world of all, and in its own
            found.append(Evaluation("eval_trained", 2, 2 * settings.eval_trained))
        if use.learns and apart:
            with contextlib.suppress(UserError, IndexError):  # a driver of nodes has no such data
                for client, owners in enumerate(self.client_env_ids):
                    held = len(self.own_held_out(client))
                    found.append(Evaluation("eval_tasks", len(owners), held))
        return found

    def outline(self) -> tuple[Tensors, list[str]]:
        """The server's state in shapes alone, and what a client needs; no weights are read."""
        if not self.settings.model:
            raise UserError("algorithm.model is empty; name a model folder (`fedrl warmstart`)")
        try:
            from fedrl.algorithms.fedagent.local_trainer import chosen_format, require_template
            from fedrl.algorithms.fedagent.memory_advice import estimate_lines
            from fedrl.algorithms.fedagent.memory_estimate import estimate_memory
            from fedrl.llm.policy import look_at_folder
        except ModuleNotFoundError as error:
            raise missing_extra(error, f"algorithm.name = {self.settings.name!r}", "llm") from error
        evaluations = self.evaluations(GpuUse(learns=True))
        estimate = estimate_memory(self.settings, episodes_of(evaluations))
        nothing = np.zeros((), np.float32)  # seen as if it were an array, without one's memory
        theta = {name: np.broadcast_to(nothing, shape) for name, shape in estimate.trained.items()}
        state = {"theta": theta, "previous": theta, "u": theta}
        lines = estimate_lines(estimate, self.settings, evaluations)
        tokenizer, absent = look_at_folder(self.settings.model)
        if tokenizer is not None:
            require_template(chosen_format(self.settings, self.world), tokenizer)
        if absent:
            missing = " and ".join(absent)
            lines.append(f"not in a folder here, so not looked at: the model's {missing}")
        return state, lines

    def agreement(self, client: int | None = None) -> dict[str, str]:
        """Of the model and its tokenizer, and of what the world's agents can do."""
        world = self.world
        if isinstance(world, ClientWorlds):
            world = world.plain if client is None else world.of(client)
        actions = world.agreement() if isinstance(world, Alike) else {}
        return {**self._model_agreement, "world": digest([world.name]), **actions}

    @cached_property
    def _model_agreement(self) -> dict[str, str]:
        from fedrl.llm.model_agreement import model_agreement

        trainer = self.trainer
        base = trainer.policy.model if self.settings.lora_rank else trainer.reference
        return model_agreement(trainer.policy, base)

    def warm_up(self) -> None:
        """In a worker, what is wrong with the model is said at once, not as a client's error."""
        assert self.trainer

    def take_gpu(self, use: GpuUse) -> bool:
        """Reserve what this needs, if the model runs on a GPU: before anything is loaded. Whether
        there was room for the learner's CUDA graphs, too."""
        if self._place is None and self.settings.model:
            self._place = Place(None, use.whole) if use.reserved else Place(self._admitted(use))
        return self._place is None or self._place.whole

    def _admitted(self, use: GpuUse) -> Reservation | None:
        try:
            from fedrl.algorithms.fedagent.gpu_admission import admit
        except ModuleNotFoundError as error:
            raise missing_extra(error, f"algorithm.name = {self.settings.name!r}", "llm") from error
        return admit(self.settings, self.evaluations, use)

    @property
    def trainer(self) -> LocalTrainer:
        """The model is loaded when it is first needed, in the process that needs it."""
        if self._trainer is None:
            captures = self.take_gpu(GpuUse(patience=PATIENCE))
            try:
                from fedrl.algorithms.fedagent.local_trainer import LocalTrainer

                self._trainer = LocalTrainer(self.settings, self.world, captures)
            except ModuleNotFoundError as error:
                raise missing_extra(
                    error, f"algorithm.name = {self.settings.name!r}", "llm"
                ) from error
        return self._trainer

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_trainer": None, "_place": None, "keep_episodes": None}
