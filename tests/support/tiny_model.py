"""A language model of a few hundred weights, and step samples for it: for tests of the learner."""

from __future__ import annotations

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from fedrl.llm.rollout import Rollout, Sample


def tiny(vocabulary: int = 12, seed: int = 0, width: int = 16) -> LlamaForCausalLM:
    """A Llama with spread-out predictions (fresh ones are nearly uniform and hide mistakes)."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        config = LlamaConfig(
            vocab_size=vocabulary, hidden_size=width, intermediate_size=2 * width,
            num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
            max_position_embeddings=64, tie_word_embeddings=True, initializer_range=0.3,
            pad_token_id=0, eos_token_id=1, bos_token_id=None,
        )  # fmt: skip
        model = LlamaForCausalLM(config)
    return model.eval()


def nudged(model: LlamaForCausalLM, size: float, seed: int = 1) -> LlamaForCausalLM:
    """The model of a little later or earlier: every weight moved at random."""
    other = LlamaForCausalLM(model.config)
    other.load_state_dict(model.state_dict())
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in other.parameters():
            p.add_(size * torch.randn(p.shape, generator=generator))
    return other.eval()


def samples(count: int, vocabulary: int = 12, seed: int = 0) -> list[Sample]:
    """Prompts and answers of many lengths, with log-probabilities of no model in particular."""
    generator = torch.Generator().manual_seed(seed)

    def draw(low: int, high: int) -> int:
        return int(torch.randint(low, high, (1,), generator=generator))

    found = []
    for i in range(count):
        prompt = [draw(0, vocabulary) for _ in range(draw(1, 9))]
        answer = [draw(0, vocabulary) for _ in range(draw(1, 6))]
        old = (-1 - 2 * torch.rand(len(answer), generator=generator)).tolist()
        found.append(Sample(i, 0, prompt, answer, old, ""))
    return found


def rollout(episodes: list[list[tuple[str, float]]], groups: list[int]) -> Rollout:
    """A rollout from (situation, reward) of every step of every episode, in the order of play."""
    played = [
        Sample(e, step, [2], [3], [0.0], situation, reward)
        for e, steps in enumerate(episodes)
        for step, (situation, reward) in enumerate(steps)
    ]
    played.sort(key=lambda sample: sample.step)
    returns = [sum(reward for _, reward in steps) for steps in episodes]
    lengths = [len(steps) for steps in episodes]
    nothing = [0] * len(episodes)
    return Rollout(played, groups, returns, [r > 0 for r in returns], nothing, lengths, 0)
