"""Of how few clients' updates a recipe may make one: what a node's `least_clients` is held against.

A client that fails is missing, and a round goes on without it as long as `federation.quorum` of its
clients are left (`round_loop.py`; of a buffer, `async_buffer.py`): with half of two, one refusal
makes the other's update the model. Some rules choose few of those that came; krum's model is one
client's to the bit. A secure sum has its own number (`privacy.threshold`).
"""

from __future__ import annotations

import math

from fedrl.aggregation.settings import byzantine_count, part
from fedrl.config.build import terms
from fedrl.config.schema import Config


def fewest(config: Config) -> int:
    """Clients whose updates become one, if as many fail as the recipe lets fail."""
    common = terms(config)
    return common.needed if common is not None else of(config, _came(config))


def of(config: Config, came: int) -> int:
    """Of how many clients' updates a server step is, where so many came."""
    count, asked = config.combined, config.aggregate
    liars = byzantine_count(getattr(asked, "byzantine", 0.0), config.rule.among or count)
    chosen = {
        "krum": 1,
        "multi-krum": getattr(asked, "keep", 0) or came - liars - 2,
        "bulyan": came - 4 * liars,
    }
    return min(chosen.get(asked.name, came), came)


def quorum_for(config: Config, least: int) -> float | None:
    """The share of a round's clients, in few digits, that makes it `least` updates at least; None
    where the clients are too few even if all of them answer."""
    count = config.combined
    needed = next((came for came in range(1, count + 1) if of(config, came) >= least), None)
    if needed is None:
        return None
    shares = (math.floor(needed / count * 10**digits) / 10**digits for digits in range(1, 9))
    return next(share for share in shares if part(share, count) >= needed)


def _came(config: Config) -> int:
    """Fewer than the quorum, or than its rule has a meaning for, and there is no step at all."""
    count = config.combined
    enough = max(1, part(config.federation.quorum, count))
    return min(max(enough, config.rule.least(count)), count)
