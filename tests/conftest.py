"""Thread counts before anything is imported, signals, what is collected, time limits, and what test
files share."""

from __future__ import annotations

import gc
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator, Iterator
from pathlib import Path

from fedrl.core import threads

threads.pin()
for name in ("COLUMNS", "LINES", "FEDRL_DEBUG", "FEDRL_CONNECTIONS"):
    os.environ.pop(name, None)  # of whoever started the tests: they change what commands print

import hypothesis
import pytest
from support.collection import left_out, markers_of_file

# Its own limit of 200 ms an example is a timed assertion: a busy machine breaks it.
hypothesis.settings.register_profile("fedrl", deadline=None)
hypothesis.settings.load_profile("fedrl")

ROOT = Path(__file__).parent.parent
LIMITS = {"machines": 1800, "gpu": 1200, "network": 1200, "realdata": 1200, "slow": 1200}
"""Seconds for a test with such a marker, the first that it has, and with its fixtures; others have
those of pyproject.toml. A limit is there to end what hangs, also on a slow machine."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A file that is left out as a whole is not imported: torch, peft and Flower take longer to
    import than thousands of tests to run. Without an answer pytest's own rules hold."""
    if not re.fullmatch(r"test_.*\.py", collection_path.name):
        return None
    unwanted = left_out(config.option.markexpr)
    return bool(unwanted and unwanted & markers_of_file(collection_path)) or None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Imports only add objects. Searching them all for garbage, again and again, was a third of the
    time of collecting; afterwards they are set aside, and no search during a test visits them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("timeout"):
            continue
        for marker, seconds in LIMITS.items():
            if item.get_closest_marker(marker):
                item.add_marker(pytest.mark.timeout(seconds))
                break


def default_signals() -> None:
    """A script's background job (`nohup make test &`) ignores Ctrl-C, and its children inherit it:
    a test would send one and wait for ever. SIGHUP stays ignored, which is what nohup is for."""
    if threading.current_thread() is not threading.main_thread():
        return
    for number, handler in {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
    }.items():
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


default_signals()


@pytest.fixture(autouse=True)
def no_folder_of_a_test_stays_on_the_path() -> Iterator[None]:
    """A file of one's own finds its neighbours, and another test's must not be found by them."""
    before = set(sys.path)
    yield
    own = tempfile.gettempdir()
    sys.path[:] = [path for path in sys.path if path in before or not path.startswith(own)]


@pytest.fixture
def fedrl(tmp_path: Path):
    """Call the command as a user does, in an empty folder."""

    def call(*words: str, check: bool = True, **options) -> subprocess.CompletedProcess[str]:
        if "input" not in options:
            options.setdefault("stdin", subprocess.DEVNULL)  # a terminal's, with `pytest -s`
        done = subprocess.run(
            [sys.executable, "-m", "fedrl", *words],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            timeout=300,
            **options,
        )
        assert not check or done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr, done.stderr
        return done

    return call
