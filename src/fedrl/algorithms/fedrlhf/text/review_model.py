"""The model that writes reviews: loaded when it is needed, compared, asked and written."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from fedrl.algorithms.fedrlhf.text.settings import Settings
from fedrl.core.registry import missing_extra
from fedrl.core.types import Tensors

if TYPE_CHECKING:
    from fedrl.algorithms.fedrlhf.text.trainer import TextTrainer
    from fedrl.llm.text_policy import Answering, TextPolicy


class ReviewModel:
    """`trainer` remembers nothing: every call sets its weights."""

    settings: Settings
    _trainer: TextTrainer | None

    @property
    def trainer(self) -> TextTrainer:
        """The model is loaded when it is first needed, in the process that needs it."""
        if self._trainer is None:
            try:
                from fedrl.algorithms.fedrlhf.text.trainer import TextTrainer

                self._trainer = TextTrainer(self.settings)
            except ModuleNotFoundError as error:
                raise missing_extra(error, 'algorithm.name = "fedrlhf-text"', "llm") from error
        return self._trainer

    @cached_property
    def _model_agreement(self) -> dict[str, str]:
        from fedrl.llm.model_agreement import model_agreement

        return model_agreement(self.trainer.policy, self.trainer.reference)

    def policy(self, state: Tensors, client: int | None = None) -> TextPolicy:
        """The model with these weights, which goes on from a text as it does in evaluation."""
        from fedrl.llm.text_policy import TextPolicy

        return TextPolicy(self.trainer.actor, state["theta"], self._answering())

    def save(self, theta: Tensors, out: Path, adapters: bool = False) -> None:
        """The model with these weights as an ordinary folder, or its adapters alone."""
        from fedrl.llm.export import save
        from fedrl.llm.lora import Adapters

        settings = self.settings
        trained = Adapters(settings.lora_rank, settings.lora_alpha)
        save(settings.model, trained, theta, out, self._answering(), adapters)

    def _answering(self) -> Answering:
        from fedrl.llm.prompts.chat_template import beginning_template
        from fedrl.llm.text_policy import Answering

        settings = self.settings
        return Answering(
            beginning_template, settings.answer_tokens, settings.temperature,
            outline=self.prompt_outline(),
        )  # fmt: skip

    def prompt_outline(self) -> str:
        return "THE BEGINNING OF A REVIEW"
