"""What tests of feedback share: one client's private folder, and a person who visits its page."""

from __future__ import annotations

import pytest

from fedrl.feedback.store import MOST, Folder, client_folder


@pytest.fixture
def folder(tmp_path, request) -> Folder:
    """A file of tests may say how many queries wait at most: `MOST_WAITING`."""
    most = getattr(request.module, "MOST_WAITING", MOST)
    return Folder(client_folder(tmp_path / "private", 3), most)


@pytest.fixture
def visit(new_person):
    """Opens a server's page in a real browser; `new_person` is of the test's file."""
    from support.feedback_browsing import visits  # skips where there is no browser

    return visits(new_person)
