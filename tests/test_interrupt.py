"""A Ctrl-C that Python itself drops still stops the run, after the round."""

from __future__ import annotations

import os
import signal

import pytest

from fedrl.experiment.interrupt import Interrupt


class Deaf:
    """Swallows what is raised while it is forgotten, as every finalizer does."""

    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(100):  # the handler runs between two instructions of ours
            pass


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_that_is_swallowed_is_remembered():
    with Interrupt() as interrupt:
        interrupt.check()
        Deaf()  # its KeyboardInterrupt is lost
        assert interrupt.asked
        with pytest.raises(KeyboardInterrupt):
            interrupt.check()


def signal_oneself() -> None:
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(10**7):
        pass


def test_an_interrupt_is_heard_at_once_and_the_old_handler_comes_back():
    before = signal.getsignal(signal.SIGINT)
    with Interrupt(), pytest.raises(KeyboardInterrupt):
        signal_oneself()
    assert signal.getsignal(signal.SIGINT) is before
