"""Rows of users that are private: a client keeps its own, and θ has none (`users = "private"`).

They are drawn in a client's first round, by its seed, as the rows of all networks are, and are part
of its personal policy from then on, which it keeps on its own disk. What it sends are movies' rows
and the layers, so the server learns neither which users there are nor how many.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedrl.algorithms.fedrlhf.ratings.client_data import ClientRatings
from fedrl.core import seeding
from fedrl.core.types import Job, Shareable, UserError
from fedrl.feedback import rating_network as network


def restored(job: Job, data: ClientRatings, width: int, drawn: bool = True) -> Job:
    """The job with the client's rows, as it left them or as they are at first, beside θ: drawn, or
    zeros."""
    movies = len(job.broadcast["movie"])
    if len(data.catalogue) != movies:
        raise UserError(
            Shareable(f"its list of movies has {len(data.catalogue)}, and the run's {movies}")
        )
    if job.state is not None:
        rows = job.state["personal"]["user"]
    elif drawn:
        random = seeding.generator(job.seed, "users")
        rows = network.init_rows((len(data.users), width), random)
    else:
        rows = np.zeros((len(data.users), width), np.float32)
    return replace(job, broadcast={**job.broadcast, "user": rows})
