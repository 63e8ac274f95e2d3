"""The chat template of a trained agent: it makes of a message the prompt that evaluation writes.

A served model gets its prompts through a chat template. So the one that goes along with an exported
agent makes of a user's message the very tokens that its format makes of the same prompt:

    chat       the model's own; without one the text and an empty line
    compact    the text itself, whatever template the model has
    messages   (tools, verifiers, prompts that are conversations) the model's own; without one a
               line for each message, as `conversation.plain` writes it
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedrl.core.types import Json, Shareable, UserError
from fedrl.llm.model_types import Tokenizer
from fedrl.llm.prompts.prompt_format import PromptFormat

TEXT = "{{ messages | map(attribute='content') | join('\\n') }}"
"""What the messages say, and nothing else."""

AFTER_BEGIN = "{{ bos_token }}" + TEXT

PARAGRAPH = TEXT + "{{ '\\n\\n' }}"

LINES = (
    "{%- for tool in tools or [] %}tool {{ tool.function | tojson(ensure_ascii=true) }}{{ '\\n' }}"
    "{%- endfor %}"
    "{%- for message in messages %}{{ message.role }}:"
    "{%- if message.content %}{{ ' ' + message.content }}{% endif %}"
    "{%- for call in message.tool_calls or [] %}"
    "{{ ' ' + call.function | tojson(ensure_ascii=true) }}{% endfor %}{{ '\\n' }}"
    "{%- endfor %}assistant:"
)

OWN = "base"
"""What the model's own template is called where another one is the default."""


def chat_template(format: PromptFormat[Any], tokenizer: Tokenizer, messages: bool = False) -> str:
    """See the module's docstring; `messages` says that prompts are conversations already."""
    from fedrl.llm.prompts.chat import Chat
    from fedrl.llm.prompts.conversation import Conversation
    from fedrl.llm.prompts.single_turn import SingleTurn

    own = own_template(tokenizer)
    if isinstance(format, Conversation):
        return own or LINES
    if isinstance(format, Chat):
        return own or PARAGRAPH
    if isinstance(format, SingleTurn) and (format.chat or messages):
        return own or TEXT
    return TEXT


def beginning_template(tokenizer: Tokenizer) -> str:
    """For a text that is to be written on: itself, after what the model expects before any."""
    begin = tokenizer.bos_token_id
    begins = begin is not None and tokenizer("a")["input_ids"][:1] == [begin]
    return AFTER_BEGIN if begins else TEXT


def own_template(tokenizer: Tokenizer) -> str:
    """The template that the tokenizer uses; "" if it has none."""
    return str(tokenizer.get_chat_template()) if tokenizer.chat_template else ""


def written(
    tokenizer: Tokenizer, template: str, messages: Sequence[Json], tools: Sequence[Json] = ()
) -> str:
    """The prompt that the template makes of these messages."""
    from jinja2 import TemplateError

    try:
        return str(
            tokenizer.apply_chat_template(
                list(messages), tools=list(tools) or None, chat_template=template, tokenize=False,
                add_generation_prompt=True,
            )
        )  # fmt: skip
    except TemplateError as error:
        raise UserError(
            Shareable("the model's chat template cannot write these messages")
        ) from error


def keep_template(tokenizer: Tokenizer, template: str) -> None:
    """Make it the tokenizer's, and the model's own a further one that can be named."""
    own = own_template(tokenizer)
    if template != own:
        tokenizer.chat_template = {"default": template, OWN: own} if own else template


def keep_whole_answers(tokenizer: Tokenizer, end: Sequence[int]) -> None:
    """Tell servers that an answer is one text.

    Those of transformers take the answers of some models apart, into reasoning and the rest; what
    was trained and evaluated is the whole, up to one of the tokens `end`, and without the blank
    that a tokenizer of whole words writes before it.
    """
    words = [tokenizer.decode([token]) for token in end]
    special = set(tokenizer.all_special_ids)
    other = next(token for token in range(len(tokenizer)) if token not in special)
    after = len(tokenizer.decode([other]))
    joined = [tokenizer.decode([other, token])[after:] for token in end]
    tokenizer.response_template = {
        "defaults": {"role": "assistant"},
        "start_anchor_pattern": r"\Z",
        "fields": {
            "content": {
                "close": sorted({*joined, *words}),
                "content": "text",
                "content_args": {"strip": False},
            }
        },
    }
