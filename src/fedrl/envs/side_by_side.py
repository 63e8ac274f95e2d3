"""Episodes that wait for something outside this process, all at once: an event loop in a thread.

A server or a library that speaks asyncio is asked for hundreds of steps in one call, and the
slowest answer is what they take together.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable, Sequence
from functools import cache
from typing import Protocol, TypeVar, runtime_checkable

from fedrl.envs.text import Episode, Turn

Answer = TypeVar("Answer")


@runtime_checkable
class StartsMany(Protocol):
    """A text world that begins many episodes in one call; it also has `step_many`."""

    def start_many(self, tasks: Sequence[str], seed: int = 0) -> list[tuple[Episode, Turn]]: ...


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="episodes", daemon=True).start()
    return loop


def run_all(work: Iterable[Coroutine[object, object, Answer]]) -> list[Answer]:
    """What all of them give, in their order; if some fail, the first error after all have ended."""

    async def together() -> list[Answer | BaseException]:
        return await asyncio.gather(*work, return_exceptions=True)

    answers = asyncio.run_coroutine_threadsafe(together(), _loop()).result()
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return [answer for answer in answers if not isinstance(answer, BaseException)]


@runtime_checkable
class AsyncEpisode(Protocol):
    """An episode whose next turn is awaited."""

    async def take(self, command: str) -> Turn: ...


class StepsTogether:
    """A world whose episodes are `AsyncEpisode`s: all take their steps at once."""

    def step_many(
        self,
        episodes: Sequence[Episode],
        commands: Sequence[str],
        tokens: Sequence[Sequence[int]] = (),
    ) -> list[Turn]:
        pairs = list(zip(episodes, commands, strict=True))
        taken = [one.take(said) for one, said in pairs if isinstance(one, AsyncEpisode)]
        if len(taken) < len(pairs):
            for work in taken:
                work.close()
            raise TypeError("an episode of another world is among them")
        return run_all(taken)


def call_soon(work: Coroutine[object, object, None]) -> None:
    """Without waiting for it."""
    asyncio.run_coroutine_threadsafe(work, _loop())
