"""What clients must hold alike, by digests that say nothing of what they hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b

from fedrl.core.own_data import Agrees
from fedrl.core.types import Shareable, UserError


def digest(parts: Iterable[str | bytes]) -> str:
    """Sixteen hexadecimal digits of these, in their order."""
    total = blake2b(digest_size=8)
    for part in parts:
        data = part.encode(errors="surrogatepass") if isinstance(part, str) else part
        total.update(len(data).to_bytes(8, "little"))
        total.update(data)
    return total.hexdigest()


def written(agreement: Mapping[str, str]) -> tuple[str, ...]:
    """As a recipe carries it: name:digest."""
    return tuple(f"{name}:{mark}" for name, mark in sorted(agreement.items()))


def require(algorithm: object, agreed: Iterable[str], client: int, who: str = "") -> None:
    """Refuse a client that holds other things than were agreed on, and name them."""
    theirs = dict(text.split(":", 1) for text in agreed if ":" in text)
    if not theirs or not isinstance(algorithm, Agrees):
        return
    own = algorithm.agreement(client)
    odd = sorted(name for name in theirs.keys() & own.keys() if theirs[name] != own[name])
    if odd:
        what = " and ".join(odd)
        verb = "are" if len(odd) > 1 else "is"
        raise UserError(
            Shareable(f"{who or 'this client'}: its {what} {verb} not the run's: all must be alike")
        )
