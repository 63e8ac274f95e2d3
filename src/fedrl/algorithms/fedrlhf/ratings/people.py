"""Who answers what a client asks: a simulated person, a file of answers, or a person.

A person is called by the client's number, and where a client has several users by its number and
the user's id in its ratings: `3`, or `3-17`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from fedrl.algorithms.fedrlhf.ratings.client_data import ClientRatings
from fedrl.algorithms.fedrlhf.ratings.settings import Settings
from fedrl.core.types import Shareable, UserError
from fedrl.feedback.queries import FeedbackSource
from fedrl.feedback.sources import logged
from fedrl.feedback.sources.simulated import SimulatedPerson

CLIENT = "{client}"


def check(settings: Settings, clients: int) -> None:
    """Files of answers are each client's own."""
    file = settings.feedback_file
    if settings.feedback == "logged" and clients > 1 and CLIENT not in file:
        raise UserError(
            f"algorithm.feedback_file is {file!r}, the same for {clients} clients: put "
            f"{CLIENT} where a client's number is to stand"
        )


def feedback_source(settings: Settings, data: ClientRatings) -> Callable[[int], FeedbackSource]:
    """Who answers for each of the client's users, by their rows in the network."""

    def person(user: int) -> FeedbackSource:
        name = data.people[int(np.flatnonzero(data.users == user)[0])].name
        if settings.feedback == "logged":  # read here: other machines do not have its file
            return logged.source(Path(settings.feedback_file.replace(CLIENT, name)))
        if settings.feedback == "live":
            from fedrl.feedback.sources import live

            if not name.isdigit():
                raise UserError(Shareable('algorithm.feedback = "live" asks one user per client'))
            return live.source(Path(settings.feedback_folder), int(name))
        own = np.flatnonzero(data.users[data.train.user] == user)
        known = {data.key(place): float(data.stars[place]) for place in own.tolist()}
        return SimulatedPerson(known, settings.noise)

    return person
