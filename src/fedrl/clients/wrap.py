"""What the settings put around every client's work, in one place and one order.

First what a client does wrongly (attacks, then faults), then what protects what it sends: a liar's
update is clipped and made noisy as anybody's.
"""

from __future__ import annotations

from fedrl import privacy
from fedrl.clients import attacks, faults
from fedrl.clients.attacks import Attacked
from fedrl.clients.faults import Faulty
from fedrl.clients.local_noise import Private
from fedrl.core.types import Algorithm


def wrap(
    algorithm: Algorithm,
    attack: attacks.Settings,
    fault: faults.Settings,
    protection: privacy.Settings,
    clients: int,
    seed: int,
) -> Algorithm:
    """The algorithm whose clients behave as the settings say; itself if they say nothing."""
    if liars := attacks.byzantine_clients(attack, clients, seed):
        algorithm = Attacked(algorithm, attack, liars)
    if fault.clients:
        algorithm = Faulty(algorithm, fault)
    return Private(algorithm, protection) if protection.on else algorithm
