"""Ctrl-C and SIGTERM that stop what is done, also where Python or a shell would drop them."""

from __future__ import annotations

import os
import signal
import subprocess
import threading

import pytest
from support.children import python
from support.repository import ROOT, TESTS

from fedrl.cli import call
from fedrl.runs.interrupt import Interrupt

pytestmark = pytest.mark.slow

PIPES = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}


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


def signal_oneself(number: int) -> None:
    os.kill(os.getpid(), number)
    for _ in range(10**7):
        pass


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_is_heard_at_once_and_the_old_handler_comes_back(number):
    before = signal.getsignal(number)
    with Interrupt(), pytest.raises(KeyboardInterrupt):
        signal_oneself(number)
    assert signal.getsignal(number) is before


def test_an_ignored_interrupt_stays_ignored_and_sigterm_is_heard():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Interrupt() as interrupt:
            signal_oneself(signal.SIGINT)
            assert not interrupt.asked
            with pytest.raises(KeyboardInterrupt):
                signal_oneself(signal.SIGTERM)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_another_thread_has_no_signals_and_no_trouble():
    ended = []

    def work() -> None:
        with Interrupt() as interrupt:
            interrupt.check()
        ended.append(call(["list"]))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert ended == [0]


def test_a_command_that_is_told_to_end_says_so(monkeypatch, capsys):
    """Whatever it is: none is killed without a word, none leaves half a file behind."""
    monkeypatch.setattr("fedrl.cli.find", lambda name: lambda argv: signal_oneself(signal.SIGTERM))
    unheard: list[int] = []
    mine = lambda number, frame: unheard.append(number)  # noqa: E731
    before = signal.signal(signal.SIGTERM, mine)  # else this process would end
    try:
        assert call(["list"]) == 130
        assert capsys.readouterr().err == "stopped\n"
        assert signal.getsignal(signal.SIGTERM) is mine
    finally:
        signal.signal(signal.SIGTERM, before)
    assert unheard == []


# The tests themselves -----------------------------------------------------------------------------


def test_children_of_tests_have_default_signals():
    code = "import signal; print(*(signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)))"
    with python("-c", code, **PIPES) as process:
        said, _ = process.communicate(timeout=60)
    assert "default_int_handler" in said
    assert said.endswith(f"{signal.SIG_DFL}\n")
    with python("-c", code, ignores="SIGINT,SIGTERM", **PIPES) as process:
        said, _ = process.communicate(timeout=60)
    assert said == f"{signal.SIG_IGN} {signal.SIG_IGN}\n"


def test_tests_of_signals_pass_in_a_background_job():
    """As `nohup make test &` in a script starts them: SIGINT and SIGHUP are ignored."""
    names = "swallowed or heard_at_once or children_of_tests"
    words = ("-m", "pytest", "-n0", "-q", "-p", "no:cacheprovider", __file__, "-k", names)
    with python(*words, ignores="SIGINT,SIGHUP", cwd=ROOT, **PIPES) as job:
        said, _ = job.communicate(timeout=120)
    assert job.returncode == 0, said
    assert "4 passed" in said


def test_a_test_that_hangs_is_ended_and_the_next_one_runs(tmp_path):
    (tmp_path / "conftest.py").write_text((TESTS / "conftest.py").read_text())
    (tmp_path / "test_hanging.py").write_text(
        "import threading\ndef test_hangs(): threading.Event().wait()\ndef test_next(): pass\n"
    )
    options = ROOT / "pyproject.toml"
    words = ["-m", "pytest", "-n0", "-q", "-p", "no:cacheprovider", "-c", str(options)]
    words += ["-o", "timeout=1", "--rootdir", str(tmp_path), str(tmp_path / "test_hanging.py")]
    with python(*words, cwd=tmp_path, **PIPES) as job:
        said, _ = job.communicate(timeout=120)
    assert "Timeout (>1.0s)" in said
    assert "1 failed, 1 passed" in said


def test_there_is_a_time_limit(request):
    """Here the runner's own, whatever its command line says."""
    assert 0 < float(request.config.getini("timeout")) <= 600
