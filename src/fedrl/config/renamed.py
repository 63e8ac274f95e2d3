"""Settings by the names that they once had, and what they are called now."""

from __future__ import annotations

RENAMED: dict[str, str] = {
    "aggregate.attackers": "aggregate.byzantine",
    "algorithm.updates_per_step": "algorithm.gradient_steps",
    "buffer": "async_buffer",
    "buffer.jitter": "async_buffer.jitter",
    "buffer.size": "async_buffer.size",
    "buffer.spread": "async_buffer.spread",
    "buffer.staleness": "async_buffer.staleness",
    "buffer.times": "async_buffer.times",
    "algorithm.local_lr": "algorithm.lr",
    "algorithm.server": "algorithm.server_optimizer",
    "algorithm.opening_trajectories": "algorithm.initial_trajectories",
}
"""From the old key to the new one; what means the same in several methods has one name."""
