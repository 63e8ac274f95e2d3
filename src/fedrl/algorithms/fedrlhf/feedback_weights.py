"""λ_k, how much a client's feedback counts beside R0: one weight for all clients or one each."""

from __future__ import annotations

from fedrl.core.types import UserError


def client_weights(lam: tuple[float, ...], clients: int) -> tuple[float, ...]:
    """λ of every client, from `algorithm.lam`."""
    if len(lam) not in (1, clients):
        raise UserError(
            f"algorithm.lam has {len(lam)} weights; name one, or one for each of the "
            f"{clients} clients"
        )
    return lam * (clients if len(lam) == 1 else 1)
