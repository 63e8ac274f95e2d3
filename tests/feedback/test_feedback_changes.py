"""Answers that are changed and deleted, in two places and by several people, without a browser."""

from __future__ import annotations

import csv
import io
import ipaddress
import itertools
import json
import ssl
import stat
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from support.feedback_pages import compare, rate, running

from fedrl.algorithms.fedrlhf.text import preference_queries
from fedrl.cli import call
from fedrl.core.loopback import HERE, Listen
from fedrl.core.types import UserError
from fedrl.feedback import agreement as agreeing
from fedrl.feedback import effect, entries, export, network, page_state
from fedrl.feedback.answer_log import Entry
from fedrl.feedback.effect import Effect, Recommendation
from fedrl.feedback.queries import Answer
from fedrl.feedback.sources import live, logged
from fedrl.feedback.store import Folder, client_folder


def disk(folder):
    files = [file for file in folder.path.rglob("*") if file.is_file()]
    return "".join(file.read_text() for file in files if file.name != "questions.jsonl")


# Changes and deletions ----------------------------------------------------------------------------


def test_a_change_is_heard_in_the_place_of_the_old_answer(folder, monkeypatch):
    folder.ask([rate(name) for name in "abc"])
    for name in "abc":
        folder.answer(name, 1)
    monkeypatch.setattr(entries, "now", lambda: 4e9)
    assert folder.change("b", -1, comment="after all")
    assert folder.answers() == [Answer("a", 1), Answer("b", -1), Answer("c", 1)]
    assert folder.view().log.standing("b").time > folder.view().log.standing("c").time  # of now
    assert folder.change("b", 0)
    assert folder.view().log.standing("b").comment == "after all"  # a note stays unless it changes
    assert folder.change("b", None)
    assert folder.answers() == [Answer("a", 1), Answer("c", 1)]
    assert not folder.change("x", 1)  # never asked
    assert logged.source(folder.path / "answers.jsonl").values == {"a": 1, "c": 1}


def test_what_is_deleted_is_gone_from_the_disk_and_from_the_learner(folder, tmp_path):
    learner = live.source(tmp_path / "private", 3)
    queries = [rate(name) for name in "abc"]
    learner.answers(queries, seed=0)
    folder.give([Entry("a", 0.25, "once-1", comment="a secret note"), Entry("b", 1.0, "once-2")])
    folder.undo("b")
    folder.answer("b", -1)
    effect.write(folder, Effect("films", 2, (), ()), folder.given())
    assert folder.forget("a")
    assert "secret" not in disk(folder)
    assert '"value": 0.25' not in disk(folder)  # a time may end so
    assert effect.read(folder) is None  # it follows from the answers
    assert learner.answers(queries, seed=1) == [Answer("b", -1)]
    assert [query.id for query in folder.pending()] == ["c"]  # asked again by the learner, not here
    assert not folder.forget("a")
    assert not folder.answer("a", 1)
    assert logged.source(folder.path / "answers.jsonl").values == {"b": -1}
    assert stat.S_IMODE((folder.path / "answers.jsonl").stat().st_mode) == 0o600


def test_all_that_was_ever_said_is_deleted_at_once(folder):
    folder.ask([rate(name) for name in "abcd"])
    folder.answer("a", 1)
    folder.answer("b", None)
    folder.answer("c", -1)
    folder.undo()
    folder.sit(1)
    view = folder.forget_all()
    assert "value" not in disk(folder)
    assert view.progress == (0, 2, 0, 0)
    assert [query.id for query in folder.pending()] == ["c", "d"]  # c was taken back: it waits
    assert folder.answer("c", 1)
    assert folder.progress().sitting == 1


def test_a_deletion_keeps_the_count_of_a_sitting(folder):
    folder.ask([rate(name) for name in "abcd"])
    for name in "ab":
        folder.answer(name, 1)
    folder.sit(2)
    folder.answer("c", 1)
    folder.forget("a")
    assert folder.progress() == (2, 1, 1, 0)
    assert Folder(folder.path).progress() == (2, 1, 1, 0)  # read anew from the disk


def test_an_entry_of_an_old_version_writes_nothing_and_is_told(folder):
    folder.ask([rate(name) for name in "ab"])
    assert folder.take([Entry("a", 1.0, "1", version=0)]).conflicts == []
    assert folder.take([Entry("a", 1.0, "1", version=0)]).conflicts == []  # sent again: once
    (told,) = folder.take([Entry("a", -1.0, "2", version=0)]).conflicts
    assert (told.why, told.entry.value) == ("elsewhere", -1.0)
    assert folder.take([Entry("a", 1.0, "3", version=0)]).conflicts == []  # the same was said
    (told,) = folder.take([Entry("a", 0.0, "4", "change", version=0)]).conflicts
    assert folder.take([Entry("a", 0.0, "5", "change", version=1)]).conflicts == []
    folder.forget("a")
    for entry in (Entry("a", 1.0, "6", "change", version=2), Entry("a", 1.0, "7", version=2)):
        assert [one.why for one in folder.take([entry]).conflicts] == ["elsewhere"]
    assert [one.why for one in folder.take([Entry("gone", 1.0, "8")]).conflicts] == ["gone"]
    assert folder.answers() == []


def test_versions_go_on_after_a_deletion(folder):
    """Else a page that saw the answer once would match what came after."""
    folder.ask([rate("a")])
    folder.answer("a", 1)
    folder.change("a", 0)
    seen = folder.view().log.version("a")
    folder.forget("a")
    assert folder.view().log.version("a") > seen
    assert Folder(folder.path).view().log.version("a") > seen


def test_versions_go_on_after_all_was_deleted_also_of_what_was_taken_back_or_skipped(folder):
    folder.ask([rate(name) for name in "ab"])
    folder.answer("a", 1)
    seen = folder.view().log.version("a")
    folder.undo()
    folder.skip("b")
    log = folder.forget_all().log
    assert log.version("a") > seen
    assert log.version("b") > 1
    assert (log.entries, log.undone) == ([], [])  # nothing is left to delete
    (told,) = folder.take([Entry("a", -1.0, "1", version=seen)]).conflicts
    assert told.why == "elsewhere"


def test_a_comment_has_an_end(folder):
    folder.ask([rate("a")])
    with pytest.raises(UserError, match="at most 500"):
        folder.give([Entry("a", 1.0, comment="x" * 501)])
    assert folder.answers() == []


# Export -------------------------------------------------------------------------------------------


def test_an_export_holds_all_that_stands_and_no_formula(folder):
    folder.ask([rate("a", "=cmd()"), compare("b", "one", 'two, "three"'), rate("c")])
    folder.give([Entry("a", -1.0, comment="+1"), Entry("b", None), Entry("c", 1.0)])
    folder.undo("c")
    rows = list(csv.reader(io.StringIO(export.as_csv(folder.view()))))
    assert rows[0] == list(export.COLUMNS)
    assert rows[1][1:] == ["rate", "'=cmd()", "", "3.7", "too high", "-1", "'+1"]
    assert rows[2][1:] == ["compare", "one", 'two, "three"', "", "cannot say", "", ""]
    assert len(rows) == 3
    told = json.loads(export.as_json(folder.view()))["answers"]
    assert [(one["question"], one["value"], one["note"]) for one in told] == [
        ("a", -1, "+1"), ("b", None, ""),
    ]  # fmt: skip
    assert [one["shown_score"] for one in told] == [3.7, None]


def test_an_export_is_in_the_order_of_its_times(folder, monkeypatch):
    clock = itertools.count(1000.0)
    monkeypatch.setattr(entries, "now", lambda: next(clock))
    folder.ask([rate(name) for name in "abc"])
    for name in "abc":
        folder.answer(name, 1.0)
    folder.change("a", -1.0)
    rows = list(csv.reader(io.StringIO(export.as_csv(folder.view()))))[1:]
    assert [row[2] for row in rows] == ["item b", "item c", "item a"]
    assert [row[0] for row in rows] == sorted(row[0] for row in rows)
    told = json.loads(export.as_json(folder.view()))["answers"]
    assert [one["question"] for one in told] == ["b", "c", "a"]


# Several people -----------------------------------------------------------------------------------


def test_a_learner_hears_the_mean_of_several_people(folder, tmp_path):
    queries = [rate(name) for name in "abc"]
    folder.ask(queries)
    anna, ben = folder.of("anna"), folder.of("ben")
    anna.answer("a", 1)
    ben.answer("a", 0)
    ben.answer("b", None)
    ben.answer("c", -1)
    learner = live.source(tmp_path / "private", 3)
    assert learner.answers(queries, seed=0) == [Answer("a", 0.5), Answer("c", -1)]
    ben.forget_all()
    assert learner.answers(queries, seed=0) == [Answer("a", 1)]
    assert [query.id for query in anna.pending()] == ["b", "c"]


def test_what_one_person_answered_is_not_dropped_for_another(tmp_path):
    folder = Folder(client_folder(tmp_path, 3), most=2)
    folder.ask([rate("a"), rate("b")])
    folder.of("anna").answer("b", 1)
    folder.ask([rate("c"), rate("d")])
    assert set(folder.view().queries) == {"b", "c", "d"}
    assert folder.answers() == [Answer("b", 1)]


@pytest.mark.parametrize("name", ["../x", "a/b", ".hidden", "", "x" * 41])
def test_a_persons_name_is_no_path(folder, name):
    if name:
        with pytest.raises(UserError, match="no name for a person"):
            folder.of(name)
    assert folder.people == []


KRIPPENDORFF = [
    [1, 1, None, 1], [2, 2, 3, 2], [3, 3, 3, 3], [3, 3, 3, 3], [2, 2, 2, 2], [1, 2, 3, 4],
    [4, 4, 4, 4], [1, 1, 2, 1], [2, 2, 2, 2], [None, 5, 5, 5], [None, None, 1, 1], [None, None, 3],
]  # fmt: skip


def test_alpha_is_that_of_the_book():
    """Krippendorff, "Computing Krippendorff's alpha-reliability" (2011), example D: interval."""
    units = [[value for value in unit if value is not None] for unit in KRIPPENDORFF]
    assert agreeing.krippendorff_alpha(units) == pytest.approx(0.849, abs=5e-4)


def test_alpha_of_full_agreement_chance_and_nothing():
    assert agreeing.krippendorff_alpha([[1, 1], [-1, -1], [0, 0]]) == 1
    assert agreeing.krippendorff_alpha([[1, 1], [1, 1]]) is None
    assert agreeing.krippendorff_alpha([[1], [0]]) is None
    random = np.random.default_rng(0).integers(-1, 2, (4000, 2)).tolist()
    assert agreeing.krippendorff_alpha(random) == pytest.approx(0, abs=0.05)
    assert agreeing.krippendorff_alpha([[1, -1], [-1, 1]]) < 0
    assert agreeing.agreement({"a": {"anna": 1.0}}) == (0, None, None)


def test_what_others_answered_is_not_told_as_ones_own(folder):
    folder.ask([rate(name) for name in "abc"])
    for name, said in {"anna": "a", "ben": "abc"}.items():
        for question in said:
            folder.of(name).answer(question, 1)
    effect.write(folder, Effect("films", 3, (), ()), folder.given())
    found = effect.read(folder)
    told = {name: page_state.effect(found, name)["effect"] for name in ("anna", "ben", "eve")}
    assert [(one["mine"], one["answers"], one["several"]) for one in told.values()] == [
        (1, 3, True), (3, 3, True), (0, 3, True),
    ]  # fmt: skip
    folder.of("anna").forget_all()
    effect.write(folder, Effect("films", 3, (), ()), folder.given())
    alone = page_state.effect(effect.read(folder), "ben")["effect"]
    assert (alone["mine"], alone["several"]) == (3, False)


def test_nothing_is_told_of_a_round_that_heard_nobody(folder):
    effect.write(folder, Effect("films", 0, (Recommendation("A film", 4.5),), ()), {})
    assert page_state.effect(effect.read(folder), "")["effect"] is None


# The network --------------------------------------------------------------------------------------


def certificate(folder: Path) -> tuple[Path, Path]:
    keys = pytest.importorskip("fedrl.engines.flower.keys", reason="needs the extra flower")
    keys.make_server(folder, ["localhost", "127.0.0.1"])
    return folder / "server.pem", folder / "server.key"


def test_nobody_elses_machine_reaches_the_page_unless_all_is_said(tmp_path, monkeypatch):
    away = ipaddress.IPv4Address("192.0.2.7")
    monkeypatch.setattr(network, "_resolved", lambda host: away)
    files = certificate(tmp_path)
    for words, said in {
        ("hub", (), *files, False): "name who answers with --people",
        ("hub", ("anna",), None, None, False): "name --certificate and --private-key",
        ("hub", ("anna",), files[0], None, False): "belong together",
        ("hub", ("anna",), *files, True): "--plain-http is for a page without TLS",
        ("", (), None, None, True): "--plain-http is about --host",
        ("hub", ("anna",), files[1], files[0], False): "are no certificate and its key",
        ("hub", ("anna",), tmp_path / "none", files[1], False): "does not exist",
    }.items():
        with pytest.raises(UserError, match=said):
            network.listening(*words)
    assert network.listening("", (), None, None, False) == HERE
    assert network.listening("hub", ("anna",), None, None, True).address == str(away)
    assert network.listening("hub", ("anna",), *files, False).tls is not None
    monkeypatch.setattr(network, "_resolved", lambda host: ipaddress.IPv4Address("0.0.0.0"))
    with pytest.raises(UserError, match="name the address that people type"):
        network.listening("0.0.0.0", ("anna",), *files, False)


def test_the_command_says_the_same(tmp_path, capsys):
    Folder(client_folder(tmp_path, 3))
    words = ["feedback", "--folder", str(tmp_path), "--client", "3"]
    for more, said in {
        ("--people", "anna,anna"): "names somebody twice",
        ("--people", "anna,Anna"): "names somebody twice",
        ("--people", "a/b"): "no name for a person",
        ("--terminal", "--people", "anna"): "--terminal is for one person",
        ("--host", "nowhere.invalid"): "this machine does not know",
    }.items():
        assert call([*words, *more]) == 2
        assert said in capsys.readouterr().err


def test_with_tls_a_persons_link_opens_their_answers_and_no_others(folder, tmp_path):
    folder.ask([rate("a"), rate("b")])
    pem, key = certificate(tmp_path / "tls")
    at = Listen("localhost", "127.0.0.1", network._context(pem, key))
    trusting = ssl.create_default_context(cafile=str(tmp_path / "tls" / "ca.pem"))

    def get(server, name, token):
        asked = urllib.request.Request(
            f"{server.site}{server.root}{name}", headers={"X-Fedrl-Key": token}
        )
        try:
            with urllib.request.urlopen(asked, context=trusting, timeout=20) as reply:
                return reply.status, json.loads(reply.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    with running(folder, people=["anna", "ben"], at=at) as server:
        assert server.site.startswith("https://localhost:")
        tokens = {name: link.partition("#")[2] for name, link in server.links.items()}
        folder.of("anna").answer("a", 1)
        assert get(server, "state", tokens["anna"])[1]["person"] == "anna"
        assert len(get(server, "history", tokens["anna"])[1]["history"]) == 1
        assert get(server, "history", tokens["ben"])[1]["history"] == []
        assert get(server, "overview", tokens["ben"])[0] == 404
        assert get(server, "state", server.key)[0] == 403  # whoever runs it answers for nobody
        assert get(server, "overview", server.key)[1]["people"][0]["answered"] == 1
        assert get(server, "state", "")[0] == 403
    with running(folder, people=["ben"], at=at) as server:
        assert get(server, "state", tokens["anna"])[0] == 403  # left out
        assert server.links["ben"].endswith(tokens["ben"])
    with running(folder, people=["ben"], at=at, new_links=True) as server:
        assert get(server, "state", tokens["ben"])[0] == 403


# Texts --------------------------------------------------------------------------------------------


def test_a_prompt_stands_apart_only_where_both_texts_begin_with_it(folder):
    texts = ["Once. A", "Once. B", "Twice. A", "twice. B"]
    first, second = preference_queries.preference_queries(texts, [0.0] * 4, ["Once.", "Twice."])
    assert (first.prompt, second.prompt) == ("Once.", "")
    folder.ask([first, second])
    assert [query.prompt for query in folder.pending()] == ["Once.", ""]
    assert [query.id for query in preference_queries.preference_queries(texts, [0.0] * 4)] == [
        first.id, second.id,
    ]  # fmt: skip


def test_an_effect_is_read_as_it_was_written(folder):
    without, with_answers = (Recommendation("A film", 4.5),), (Recommendation("Text", None, "T"),)
    effect.write(folder, Effect("films", 3, without, with_answers), {})
    found = effect.read(folder)
    assert found[:4] == ("films", 3, without, with_answers)
    assert (found.of("anna"), found.several("anna")) == (3, False)  # nobody is named
    (folder.path / "effect.json").write_text("{}")
    with pytest.raises(UserError, match="is damaged"):
        effect.read(folder)
