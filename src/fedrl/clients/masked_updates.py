"""Clients whose updates only leave them under masks: what they add up is their quantised vector.

What is made of an update here is what a client puts into a secure sum. The masks come after it,
from `privacy/secure_aggregation/client.py`, on the client's own machine.
"""

from __future__ import annotations

from dataclasses import replace

from fedrl import privacy
from fedrl.clients.wrapped_algorithm import ResultWrapper
from fedrl.core.types import Algorithm, Job, Result, Shareable
from fedrl.core.update_refusal import ranges, refusal
from fedrl.privacy import clipping, noise
from fedrl.privacy.secure_aggregation import Terms, messages


class SecureClient(ResultWrapper):
    """An algorithm whose clients give vectors for a secure sum instead of updates.

    A vector is that of an update which passed the check and keeps to the bound, with the client's
    part of the noise.
    """

    def __init__(self, algorithm: Algorithm, settings: privacy.Settings, terms: Terms) -> None:
        super().__init__(algorithm)
        self.settings, self.terms = settings, terms

    def sent(self, job: Job, result: Result) -> Result:
        # The server's own check comes too late: in a sum nobody finds what is not a number.
        reason = refusal(result, self.declare(job.broadcast), ranges(self))
        if reason is not None:
            raise ValueError(Shareable(reason))
        form = clipping.layout(self.algorithm, job.broadcast)
        (vector,) = clipping.vectors([(result.update, 1.0)], self.terms.bound, form)
        draw = noise.source(self.settings.seeded, job.seed, "privacy")
        return replace(result, update=messages.pack_vector(self.terms.quantised(vector, draw)))
