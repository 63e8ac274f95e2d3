"""The section `[world] name = "prompts"` of a recipe."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fedrl.core.limits import not_negative
from fedrl.core.registry import absolute
from fedrl.core.types import FilePath, UserError, Word
from fedrl.envs.prompts.records import Rows, combined_digest, open_source


@dataclass(frozen=True)
class Settings:
    """Where the prompts lie, and what an answer is paid for."""

    name: Word = "prompts"
    # A JSONL file; a folder with train.jsonl and, where you have them, test.jsonl and public.jsonl
    # (or folders train/, test/, public/ of such files); or a Hugging Face dataset: the folder of
    # `save_to_disk`, or its name (package datasets).
    source: FilePath = ""
    # Which configuration of a Hugging Face dataset that has several.
    subset: Word = ""
    # The column with the prompt: a text, or chat messages [{"role": …, "content": …}, …].
    prompt: Word = "prompt"
    # Reward functions in TRL's signature, reward(prompts, completions, **columns) -> list[float]:
    # package.module:function, ./file.py:function, an entry point `fedrl.rewards`, or one of ours
    # (exact_match, number_match, contains_answer, which read the column `answer`).
    reward: tuple[Word, ...] = ()
    # How much each of them counts; empty: 1 each.
    weights: tuple[float, ...] = ()
    # An answer whose reward is above this is a success.
    success: float = 0.5
    # The column with the type of a task, for partitions and tables; empty: all are of one type.
    category: Word = ""
    # The column with a right answer, which warm starts imitate; empty: there is none.
    answer: Word = ""
    # Share of the prompts that is only evaluated on, where the source has no test.jsonl.
    test: float = 0.1
    # Share of the prompts that is nobody's, for warm starts, where the source has no public.jsonl.
    public: float = 0.0
    # Which prompts these shares are; runs with other seeds have the same.
    split_seed: int = 0
    # Digest of the data. A run writes it into its config.toml, and refuses data that has changed.
    digest: Word = ""

    def __post_init__(self) -> None:
        if not self.prompt:
            raise UserError("world.prompt is empty; it names the column with the prompts")
        if self.weights and len(self.weights) != len(self.reward):
            raise UserError(
                f"world.weights has {len(self.weights)} numbers for {len(self.reward)} functions "
                "in world.reward: give one each, or none"
            )
        not_negative(self, "world.", "test", "public", "split_seed")

    def pinned(self, digest: str | None = None) -> Settings:
        """With the digest of the data as it is now, and files of code as named from anywhere."""
        now = combined_digest(self.open()) if digest is None else digest
        return replace(self, digest=now, reward=tuple(map(absolute, self.reward)))

    def open(self) -> dict[str, Rows]:
        """The splits that the source has."""
        return open_source(self.source, self.subset)
