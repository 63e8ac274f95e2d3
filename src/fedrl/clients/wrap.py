"""What the settings put around every client's work, in one place and one order.

First what a client does wrongly (attacks, then faults), then what protects what it sends (noise of
its own, then masks): a liar's update is clipped and made noisy as anybody's.
"""

from __future__ import annotations

from fedrl import privacy
from fedrl.clients import attacks, faults
from fedrl.clients.attacks import Attacked
from fedrl.clients.faults import Faulty
from fedrl.clients.local_noise import Private
from fedrl.core.types import Algorithm
from fedrl.privacy.secure_aggregation import Terms


def wrap(
    algorithm: Algorithm,
    attack: attacks.Settings,
    fault: faults.Settings,
    protection: privacy.Settings,
    clients: int,
    seed: int,
    masked: Terms | None = None,
) -> Algorithm:
    """The algorithm whose clients behave as the settings say; itself if they say nothing.

    `masked` are the terms of secure sums that its clients are in.
    """
    if liars := attacks.byzantine_clients(attack, clients, seed):
        algorithm = Attacked(algorithm, attack, liars)
    if fault.clients:
        algorithm = Faulty(algorithm, fault)
    if protection.on:
        algorithm = Private(algorithm, protection)
    if masked is None:
        return algorithm
    from fedrl.clients.masked_updates import SecureClient  # needs the extra privacy

    return SecureClient(algorithm, protection, masked)
