"""Settings by the names that they once had, and what they are called now."""

from __future__ import annotations

RENAMED: dict[str, str] = {
    "algorithm.updates_per_step": "algorithm.gradient_steps",
}
"""From the old key to the new one; what means the same in several methods has one name."""
