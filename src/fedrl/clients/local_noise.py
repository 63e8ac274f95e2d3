"""Clients that protect themselves: what leaves one is no longer than C, and noisy if it shall be.

The server bounds every update again, so a client that does not do this gains nothing by it.
"""

from __future__ import annotations

from dataclasses import replace

from fedrl import privacy
from fedrl.clients.wrapped_algorithm import ResultWrapper
from fedrl.core.types import Algorithm, Job, Result
from fedrl.privacy import clipping, noise


class Private(ResultWrapper):
    """An algorithm all of whose clients clip, add local noise and keep their metrics as told."""

    def __init__(self, algorithm: Algorithm, settings: privacy.Settings) -> None:
        super().__init__(algorithm)
        self.settings = settings
        if settings.silent:
            self.reports = frozenset()

    def sent(self, job: Job, result: Result) -> Result:
        s = self.settings
        form = clipping.layout(self.algorithm, job.broadcast)
        if s.noise and s.where == "local":
            # Rounded once, after the noise: rounded before it, a number next to a model of the
            # server's choice could move by more than the bound.
            draw = noise.source(s.seeded, job.seed, "privacy")
            vector = clipping.bounded(form.vector(result.update), s.clip)
            update = form.update(vector + s.noise * s.clip * draw(form.size))
        elif s.noise and s.secure:
            update = form.update(clipping.bounded(form.vector(result.update), s.clip))
        else:
            update = clipping.clip(result.update, s.clip, form)
        return replace(
            result,
            update=update,
            # The number of a client's examples is its own; with noise, everybody counts the same.
            weight=1.0 if s.noise or s.secure else result.weight,
            metrics={} if s.silent else result.metrics,
        )
