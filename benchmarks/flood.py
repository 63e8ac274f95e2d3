"""Requests from people without a key or a secret, so many a second, from an address of their own.

Run as a program: `flood.py PORT CA RATE SECONDS`; its last line is JSON: how many, in which time,
what became of them. Each is a connection, as whoever is refused has it closed; kinds take turns.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import sys
import time
from collections import Counter

SOURCE = "127.0.0.2"
"""Another address than that of nodes and driver, as an outsider has."""
SIDE_BY_SIDE = 128
PATIENCE = 10.0
HEAD = "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-protobuf\r\n"
NOBODYS = base64.b64encode(
    b"-----BEGIN PUBLIC KEY-----\nnobody's\n-----END PUBLIC KEY-----"
).decode()


def requests() -> dict[str, bytes | None]:
    """Bad in different ways; None is no TLS at all."""
    pull, run = "/v1/fleet/pull-messages", "/v1/control/start-run"
    claimed = f"flwr-public-key: {NOBODYS}\r\nflwr-timestamp: x\r\nflwr-signature: AAAA\r\n"
    heads = {
        "no key": HEAD.format(path=pull) + "content-length: 2\r\n\r\nab",
        "a key of nobody": HEAD.format(path=pull) + claimed + "content-length: 2\r\n\r\nab",
        "no secret": HEAD.format(path=run) + "content-length: 2\r\n\r\nab",
        "a body of 36 MB": HEAD.format(path=pull) + "content-length: 36000000\r\n\r\n" + "a" * 4096,
        "no such path": HEAD.format(path="/../../etc/passwd") + "content-length: 0\r\n\r\n",
    }
    heads["no HTTP"] = "\x00" * 64 + "\r\n\r\n"
    return {**{name: text.encode() for name, text in heads.items()}, "no TLS": None}


async def one(port: int, context: ssl.SSLContext, kind: str, sent: bytes | None) -> str:
    """What became of it: a status, or how its connection ended."""
    tls = None if sent is None else context
    try:
        async with asyncio.timeout(PATIENCE):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", port, ssl=tls, local_addr=(SOURCE, 0)
            )
            try:
                writer.write(sent or b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
                answer = await reader.read(1024)
            finally:
                writer.transport.abort()
    except TimeoutError:
        return f"no answer in {PATIENCE:g} s"
    except (OSError, EOFError) as error:
        return type(error).__name__
    return answer.split()[1].decode() if answer.startswith(b"HTTP/1.1 ") else "closed"


async def flood(port: int, ca: str, rate: float, seconds: float) -> dict[str, object]:
    context = ssl.create_default_context(cafile=ca)
    context.check_hostname = False
    kinds = list(requests().items())
    became: Counter[str] = Counter()
    start, begun = time.monotonic(), 0

    async def sender() -> None:
        nonlocal begun
        while time.monotonic() - start < seconds:
            due = start + begun / rate
            kind, sent = kinds[begun % len(kinds)]
            begun += 1
            await asyncio.sleep(max(due - time.monotonic(), 0.0))
            became[await one(port, context, kind, sent)] += 1

    await asyncio.gather(*(sender() for _ in range(SIDE_BY_SIDE)))
    took = time.monotonic() - start
    return {"count": sum(became.values()), "seconds": took, "became": dict(became.most_common())}


def main() -> None:
    port, ca, rate, seconds = sys.argv[1:]
    print(json.dumps(asyncio.run(flood(int(port), ca, float(rate), float(seconds)))))


if __name__ == "__main__":
    main()
