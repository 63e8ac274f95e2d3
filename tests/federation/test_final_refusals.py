"""Who has refused a round's job refuses it again: nobody else is asked again for that."""

from __future__ import annotations

import pytest
from support.rounds import Memory, play
from support.toy import Toy

from fedrl.core.types import Failure
from fedrl.engines.in_process import InProcess
from fedrl.federation.async_buffer import AsyncBuffer
from fedrl.federation.async_settings import Settings
from fedrl.federation.round_loop import QuorumLost
from fedrl.federation.simulated_clock import SimulatedClock, durations

WHY = "privacy.secure: this node sends updates only into secure sums (secure)"


class Refusing(InProcess):
    """Clients of whom some refuse, or fail in another way; `asked` has all jobs."""

    def __init__(self, algorithm, clients, final=True):
        super().__init__(algorithm)
        self.clients, self.final, self.asked = clients, final, []

    def run(self, jobs, deadline=0.0):
        self.asked += [(job.client, job.attempt) for job in jobs]
        for job, outcome in zip(jobs, super().run(jobs, deadline), strict=True):
            refused = job.client in self.clients
            yield Failure(job.client, WHY, self.final) if refused else outcome


def test_a_round_that_refusals_have_lost_is_not_tried_again():
    said: list[str] = []
    engine = Refusing(Toy(), {0, 1, 2, 3})
    with pytest.raises(QuorumLost, match="round 1: only 2 of 6 clients gave a usable update, 3"):
        play(Toy(), engine=engine, retries=2, warn=said.append)
    assert engine.asked == [(client, 0) for client in range(6)]
    assert said == []  # the run's last words have the reason


@pytest.mark.parametrize(
    ("clients", "final", "more"),
    [({0, 1, 2, 3}, False, {}), ({0, 1, 2}, True, {"cohort": 2, "quorum": 1.0})],
)
def test_what_may_come_out_otherwise_is_tried_again(clients, final, more):
    """Those who failed may not fail again, and another cohort may have nobody who refuses."""
    engine, store, said = Refusing(Toy(), clients, final), Memory(), list[str]()
    with pytest.raises(QuorumLost, match="in the last of 3 attempts"):
        play(Toy(), 20, engine, store, retries=2, warn=said.append, **more)
    assert max(attempt for _, attempt in engine.asked) == 2
    assert not any("attempt 3" in line for line in said)


def test_a_buffer_asks_it_once_in_a_round():
    inner = Refusing(Toy(2), {0})
    buffer = Settings(size=2, times=(1.0, 1.0))
    engine = SimulatedClock(inner, durations(3, buffer.times, buffer.spread, buffer.jitter))
    store = play(
        Toy(2), rounds=1, clients=2, retries=5, more={"exchange": AsyncBuffer(buffer, engine)}
    )
    failed = [r for done in store.rounds for r in done.clients if r["client"] == 0]
    assert len(failed) == 1
