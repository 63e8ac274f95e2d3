"""A trained language model to be asked: it answers as it does in evaluation.

    policy = run.policy()
    policy.act("task put a mug in fridge 1 ; …")            a prompt, as the agent is given it
    policy.act([{"role": "user", "content": "…"}])          messages, as an endpoint is given them
    policy.act([prompt, prompt, …])                         several of either

    episode, turn = world.start(task)                       an agent, turn by turn
    agent = policy.start(episode.goal, turn)
    while not turn.done:
        turn = episode.step(agent.act())
        agent.observe(turn)

Prompts are written and tokenized by the same format, shortened to the same length and ended by the
same tokens as in evaluation. Without `rng` the most likely answer is given; with it one is drawn at
the evaluation's temperature.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic

import numpy as np

from fedrl.core.types import Json, Tensors, UserError
from fedrl.envs.text import TextWorld, Turn
from fedrl.llm.actor import Actor
from fedrl.llm.model_types import Tokenizer
from fedrl.llm.out_of_memory import explain_out_of_memory
from fedrl.llm.prompts.chat_template import chat_template, written
from fedrl.llm.prompts.conversation import Conversation
from fedrl.llm.prompts.outline import messages, prompt_outline
from fedrl.llm.prompts.prompt_format import Notes, PromptFormat, require_tokens, tokenize
from fedrl.llm.prompts.single_turn import SingleTurn

Prompt = str | Sequence[Json]
"""A text, or chat messages with role and content."""


@dataclass(frozen=True)
class Answering:
    """How a policy is asked and answers: in evaluation, here and at an endpoint."""

    template: Callable[[Tokenizer], str]  # what makes messages the prompt of its format
    answer_tokens: int
    temperature: float
    prompt_tokens: int | None = None  # longer prompts lose their beginning; None: none does
    tools: bool = False  # answers may hold calls, which servers read
    outline: str = ""  # a prompt with words that stand for a task's own


def agent_answering(
    format: PromptFormat[Any],
    world: TextWorld,
    task: str,
    answer_tokens: int,
    temperature: float,
    prompt_tokens: int,
) -> Answering:
    """Of an agent in this world; `task` is one of its tasks."""
    conversations = False
    if isinstance(format, SingleTurn) and not format.chat:
        _, turn = world.start(task)
        conversations = not isinstance(turn.info.get("prompt", ""), str)
    return Answering(
        partial(chat_template, format, messages=conversations), answer_tokens, temperature,
        prompt_tokens, isinstance(format, Conversation), prompt_outline(format),
    )  # fmt: skip


class TextPolicy:
    """See the module's docstring. The actor may be others' too: what it holds is set by version."""

    def __init__(self, actor: Actor, theta: Tensors, answering: Answering) -> None:
        self.actor, self.theta, self.answering = actor, theta, answering
        self.template = answering.template(actor.policy.tokenizer)
        self._version = -1

    def __repr__(self) -> str:
        return f"<fedrl {type(self).__name__} of {self.actor.policy.name}>"

    def act(
        self,
        observation: Prompt | Sequence[Prompt],
        rng: np.random.Generator | None = None,
        tools: Sequence[Json] = (),
    ) -> Any:
        """The answer to a prompt, or those to several; `tools` are JSON schemas for a template."""
        single = isinstance(observation, str) or (
            len(observation) > 0 and isinstance(observation[0], Mapping)
        )
        prompts: Any = [observation] if single else observation
        said = self.answers([self._tokens(each, tools) for each in prompts], rng)
        return said[0] if single else said

    def answers(
        self, prompts: Sequence[Sequence[int]], rng: np.random.Generator | None = None
    ) -> list[str]:
        """What is said to prompts that are tokens already."""
        if not prompts:
            return []
        actor, temperature = self.actor, self.answering.temperature if rng is not None else 0.0
        generator = actor.generator(0 if rng is None else int(rng.integers(2**63)))
        with explain_out_of_memory(doing="answering"):
            if self._version != actor.version:
                actor.load(self.theta)
                self._version = actor.version
            said = actor.sampler.generate(
                prompts, self.answering.answer_tokens, temperature, generator
            )
        return list(actor.policy.tokenizer.batch_decode(said.tokens, skip_special_tokens=True))

    def _tokens(self, prompt: Prompt, tools: Sequence[Json]) -> list[int]:
        tokenizer = self.actor.policy.tokenizer
        asked = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        if not isinstance(asked, Sequence) or not all(map(_is_message, asked)):
            raise UserError("a prompt is a text, or messages with a role and content each")
        text = written(tokenizer, self.template, asked, tools)
        limit = self.answering.prompt_tokens
        (row,) = tokenize(tokenizer, [text], len(text) + 1 if limit is None else limit)
        if not row:
            raise UserError("the prompt is empty")
        return row


def _is_message(said: object) -> bool:
    return isinstance(said, Mapping) and {"role", "content"} <= said.keys()


class AgentPolicy(TextPolicy, Generic[Notes]):
    """A text policy that also plays episodes, in the format that it was trained in."""

    def __init__(
        self, actor: Actor, theta: Tensors, answering: Answering, format: PromptFormat[Notes]
    ) -> None:
        super().__init__(actor, theta, answering)
        self.format = format

    def start(self, goal: str, turn: Turn) -> AgentEpisode[Notes]:
        """An agent at the beginning of an episode: what it is told to do, what it sees first."""
        return AgentEpisode(self, self.format.start(goal, turn))


class AgentEpisode(Generic[Notes]):
    """An agent in the middle of an episode. `said` is its last answer, `command` what it meant."""

    def __init__(self, policy: AgentPolicy[Notes], notes: Notes) -> None:
        self.policy, self.notes = policy, notes
        self.said = self.command = ""

    @property
    def messages(self) -> Sequence[Json]:
        """What the agent is asked now, as an endpoint is asked."""
        return messages(self.policy.format, self.notes)

    def act(self, rng: np.random.Generator | None = None) -> str:
        """The command that it gives; "" where its answer holds none."""
        policy = self.policy
        longest = policy.answering.prompt_tokens
        assert longest is not None
        row = policy.format.encode(policy.actor.policy.tokenizer, [self.notes], longest)
        require_tokens(row, ["this episode"])
        (self.said,) = policy.answers(row, rng)
        self.command, _ = policy.format.parse(self.notes, self.said)
        return self.command

    def observe(self, turn: Turn) -> None:
        """What the world answered to the last command."""
        self.policy.format.observe(self.notes, self.command, turn, self.said)
