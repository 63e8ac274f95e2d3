"""Settings by the names that they once had, and what they are called now."""

from __future__ import annotations

RENAMED: dict[str, str] = {
    "aggregate.attackers": "aggregate.byzantine",
    "algorithm.clip_norm": "algorithm.max_grad_norm",
    "algorithm.compare": "algorithm.preference_queries",
    "algorithm.eval_texts": "algorithm.eval_completions",
    "algorithm.local_lr": "algorithm.lr",
    "algorithm.opening_trajectories": "algorithm.initial_trajectories",
    "algorithm.queries": "algorithm.eval_prompts",
    "algorithm.rate": "algorithm.rating_queries",
    "algorithm.server": "algorithm.server_optimizer",
    "algorithm.updates_per_step": "algorithm.gradient_steps",
    "algorithm.weight_cap": "algorithm.weight_clip",
    "buffer": "async_buffer",
    "buffer.jitter": "async_buffer.jitter",
    "buffer.size": "async_buffer.size",
    "buffer.spread": "async_buffer.spread",
    "buffer.staleness": "async_buffer.staleness",
    "buffer.times": "async_buffer.times",
    "flower.half": "flower.precision",
}
"""From the old key to the new one; what means the same in several methods has one name."""
