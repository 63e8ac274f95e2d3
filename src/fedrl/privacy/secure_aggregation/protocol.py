"""Secure aggregation after Bonawitz et al. (CCS 2017): the server learns a sum and nothing else.

Client u hides its vector x_u under a mask of its own and one per other client:

    y_u = x_u + PRG(b_u) + Σ_{v > u} PRG(s_uv) - Σ_{v < u} PRG(s_uv)      modulo 2³²

Four exchanges, all through the server:

    advertise   every client sends two fresh public keys
    share       it sends t-of-n shares of b_u and of its mask key to the others, sealed, and a
                commitment to each of them to the server
    mask        it sends y_u
    unmask      the server says who sent y; everybody left sends shares of b_u for those, of the
                mask key for those who dropped out, never both

`client.Client` and `server.Server` are state machines without input or output: whoever carries the
messages drives them. Against a server that follows the protocol and looks at everything, only the
sum is visible; together with fewer than t clients, the sum less these clients' own. A server that
hands out public keys of its own making is held off by clients that have their keys signed
(`client.SigningClient`).

Of clients that lie about shares the server finds out who (`commitments.py`): a wrong share is left
out, and the sum is opened if t right ones of every secret are there.
"""

from __future__ import annotations

from typing import NamedTuple

NO_HISTORY = bytes(32)
"""Of a client that has no state from earlier rounds: else a hash of the jobs that it comes from."""


class ProtocolError(Exception):
    """A message that an honest partner does not send; who got it keeps its secrets."""


class Keys(NamedTuple):
    """A client's public keys: for letters, and for masks."""

    letters: bytes
    masks: bytes


class Dealing(NamedTuple):
    """A client's letters by their receivers, and to the server: commitments to everybody's shares
    by holder, and to its seed."""

    letters: dict[int, bytes]
    commitments: dict[int, bytes]
    seed: bytes


class Letter(NamedTuple):
    """What the server passes on to one holder: sealed shares, and what its dealer said of them."""

    sealed: bytes
    commitment: bytes


class Answer(NamedTuple):
    """Shares that open the sum, by whose secret they are of; without those that were no good."""

    seeds: dict[int, bytes]
    keys: dict[int, bytes]


def letter_label(sender: int, receiver: int) -> bytes:
    return sender.to_bytes(4, "big") + receiver.to_bytes(4, "big")


def mask_label(one: int, other: int) -> bytes:
    return b"mask/" + letter_label(min(one, other), max(one, other))


def mask_sign(mine: int, theirs: int) -> int:
    """Of a pair's mask: added by the lower number, taken away by the higher, gone in the sum."""
    return 1 if mine < theirs else -1
