"""A prompt as the data has it, and the whole completion as the answer: for the world `prompts`.

As in TRL, a text is the prompt itself and chat messages go through the model's own chat template;
with `format = "chat"` a text becomes a user's message first. The answer is not parsed: what it is
worth is for the reward functions to say. A prompt that is too long loses its beginning. Texts may
stand in a `template` of one's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedrl.core.types import Shareable, UserError
from fedrl.envs.text import Turn
from fedrl.llm.model_types import Tokenizer
from fedrl.llm.prompts.prompt_format import tokenize
from fedrl.llm.prompts.template import KEY, read_template


@dataclass(frozen=True)
class Notes:
    prompt: str | Sequence[Mapping[str, str]]
    readable: str


class SingleTurn:
    """See the module's docstring; `chat` makes messages of texts."""

    def __init__(self, chat: bool = False, template: str = "") -> None:
        self.chat = chat
        self.template = read_template(template, ("prompt",), ("prompt",)) if template else None

    def start(self, goal: str, turn: Turn) -> Notes:
        prompt = turn.info.get("prompt", goal)
        if self.template is None:
            return Notes(prompt, goal)
        if not isinstance(prompt, str):
            raise UserError(
                Shareable(f"{KEY} is for prompts that are texts, and these are chat messages")
            )
        text = self.template.fill({"prompt": prompt})
        return Notes(text, text)

    def observe(self, notes: Notes, command: str, turn: Turn, said: str = "") -> None:
        """The episode is over."""

    def prompt(self, notes: Notes) -> str:
        return notes.readable

    def encode(self, tokenizer: Tokenizer, notes: Sequence[Notes], limit: int) -> list[list[int]]:
        return tokenize(tokenizer, [self._text(tokenizer, each.prompt) for each in notes], limit)

    def _text(self, tokenizer: Tokenizer, prompt: str | Sequence[Mapping[str, str]]) -> str:
        if isinstance(prompt, str):
            if not self.chat:
                return prompt
            prompt = ({"role": "user", "content": prompt},)
        require_template(tokenizer)
        messages = [dict(message) for message in prompt]
        return str(
            tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        )

    def parse(self, notes: Notes, completion: str) -> tuple[str, bool]:
        return completion, True

    def render(self, notes: Notes, command: str) -> str:
        return command


def require_template(tokenizer: Tokenizer) -> None:
    """Messages are written by the model's own template alone."""
    if not getattr(tokenizer, "chat_template", None):
        raise UserError(
            Shareable(
                "algorithm.model has no chat template, and the prompts are chat messages: use "
                'an instruction-tuned model, or prompts that are texts and format = "compact"'
            )
        )
