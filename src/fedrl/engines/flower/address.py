"""HOST:PORT, as people type it: what is wrong with it is said before anything is tried."""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple

from fedrl.core.types import UserError

NAME = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)(\.(?!-)[A-Za-z0-9_-]{1,63}(?<!-))*\.?")


class Address(NamedTuple):
    """`host` without the brackets of an IPv6 address."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse(text: str, flag: str = "--superlink") -> Address:
    """`UserError` that says how it should read."""
    if "/" in text:
        bare = text.rpartition("://")[2].partition("/")[0]
        raise UserError(f"{flag} is {text!r}; write only HOST:PORT, {bare or 'hub:9092'}")
    host, colon, number = text.rpartition(":")
    if not colon or not host:
        raise UserError(f"{flag} is {text!r}; it must be HOST:PORT, as in hub.example.org:9092")
    bracketed = host.startswith("[") and host.endswith("]")
    inner = host[1:-1] if bracketed else host
    if ":" in inner and not (bracketed and _is_ipv6(inner)):
        raise UserError(f"{flag} is {text!r}; write an IPv6 address as [2001:db8::1]:9092")
    if not (_is_ipv6(inner) if bracketed else NAME.fullmatch(host)):
        raise UserError(f"{flag} is {text!r}; {host!r} is no name and no address of a machine")
    if not (number.isascii() and number.isdecimal() and 0 < int(number) < 65536):
        raise UserError(f"{flag} is {text!r}; {number!r} is no port, these are 1 to 65535")
    return Address(inner, int(number))


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True
