"""Whose link opens what, when a client's page goes from one person to several and back."""

from __future__ import annotations

import json

import pytest
from support.feedback_pages import rate, request, running


def opens(server, key):
    """Which of a person's questions and everybody's overview a key opens."""
    names = ("state", "overview")
    return [name for name in names if request(server, "GET", server.root + name, key=key)[0] == 200]


def test_a_person_who_answered_alone_does_not_read_what_others_say_later(folder):
    folder.ask([rate("a")])
    with running(folder) as server:
        alone = server.key
    with running(folder, people=["anna", "ben"]) as server:
        overview = server.key
        assert opens(server, alone) == []
        assert opens(server, overview) == ["overview"]
    with running(folder) as server:
        assert server.key == alone  # a link lasts
        assert opens(server, overview) == []
    with running(folder, people=["anna", "ben"]) as server:
        assert server.key == overview


@pytest.mark.parametrize("people", [[], ["anna"]])
def test_a_key_of_an_older_fedrl_is_no_longer_both(folder, people):
    """It may have opened the one page and then the other: nobody knows who has it."""
    folder.of("anna")
    with running(folder, people=["anna"]) as server:
        address = json.loads((folder.path / "page.json").read_text())
    del address["overview"]
    (folder.path / "page.json").write_text(json.dumps(address))
    with running(folder, people=people) as server:
        assert opens(server, address["key"]) == []


def test_the_link_of_an_older_fedrl_lasts_where_one_person_answers(folder):
    with running(folder) as server:
        key = server.key
    address = json.loads((folder.path / "page.json").read_text())
    del address["overview"]
    (folder.path / "page.json").write_text(json.dumps(address))
    with running(folder, people=["anna"]) as server:
        assert opens(server, key) == []
    with running(folder) as server:
        assert server.key == key


@pytest.mark.parametrize("now", [[], ["ben"]], ids=["alone", "others"])
def test_new_links_void_those_of_everybody_also_of_who_is_named_again_later(folder, now):
    with running(folder) as server:
        alone = server.key
    with running(folder, people=["anna", "ben"]) as server:
        before = {alone, server.key, *(link.partition("#")[2] for link in server.links.values())}
    assert len(before) == 4
    with running(folder, people=now, new_links=True) as server:
        assert not any(opens(server, key) for key in before)
    for people in ([], ["anna", "ben"]):
        with running(folder, people=people) as server:
            assert not any(opens(server, key) for key in before)
            assert opens(server, server.key)
