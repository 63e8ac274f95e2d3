"""A person as a source: answers, doubt and skips, as the learner hears them and in the terminal."""

from __future__ import annotations

import io
import os
import pty
import re
from pathlib import Path
from typing import ClassVar

from support.feedback_pages import compare, rate
from support.repository import DOCS

from fedrl.algorithms.fedrlhf.text import preference_queries
from fedrl.feedback import export, page, terminal
from fedrl.feedback.queries import Answer
from fedrl.feedback.sources import live, logged
from fedrl.feedback.store import ANSWERS, Folder, Progress, client_folder

MOST_WAITING = 4


def ids(questions) -> list[str]:
    return [one.id for one in questions]


# Cannot say, and skip -----------------------------------------------------------------------------


def test_doubt_closes_a_question_and_is_no_answer(folder):
    folder.ask([rate(name) for name in "abc"])
    folder.sit(2)
    assert folder.answer("a", None)
    assert not folder.answer("a", 1)  # as after any answer, only an undo opens it again
    assert folder.answers() == []
    assert folder.progress() == Progress(answered=0, pending=2, sitting=0, unsure=1)
    folder.ask([rate("a")])
    assert ids(folder.pending()) == ["b", "c"]
    assert folder.undo().id == "a"
    assert folder.answer("a", 1)
    assert folder.progress() == Progress(answered=1, pending=2, sitting=1, unsure=0)


def test_doubt_teaches_nothing(folder, tmp_path):
    """No learner sees it: neither as a preference nor as "the same", which pulls together."""
    texts = {"a": ("fine and warm", "dull and cold"), "b": ("dull", "warm"), "c": ("cold", "fine")}
    folder.ask([compare(name, *both) for name, both in texts.items()])
    folder.answer("a", -1)
    without = preference_queries.answered(str(tmp_path / "private"), 3)
    folder.answer("b", None)
    folder.skip("c")
    assert (
        preference_queries.answered(str(tmp_path / "private"), 3)
        == without
        == ((texts["a"], -1.0),)
    )
    source = live.source(tmp_path / "private", 3)
    asked = [compare(name, *both) for name, both in texts.items()]
    assert source.answers(asked, seed=0) == [Answer("a", -1)]
    assert logged.source(folder.path / ANSWERS).answers(asked, seed=0) == [Answer("a", -1)]
    folder.undo()
    folder.undo()
    folder.answer("b", 0)  # the same: that is an answer
    assert live.source(tmp_path / "private", 3).answers(asked, seed=0)[1] == Answer("b", 0)


def test_a_skipped_question_waits_behind_all_others_and_is_asked_again(folder):
    folder.ask([rate(name) for name in "abc"])
    assert folder.skip("a")
    assert ids(folder.pending()) == list("bca")
    folder.ask([rate("a"), rate("d")])  # asking again is no reason to hurry
    assert ids(folder.pending()) == list("dbca")
    assert folder.skip("d")
    assert folder.skip("a")
    assert ids(folder.pending()) == list("bcda")
    assert folder.progress() == Progress(answered=0, pending=4, sitting=0, unsure=0)
    assert folder.undo().id == "a"
    assert ids(folder.pending()) == list("abcd")
    assert folder.answer("a", 1)
    assert not folder.skip("a")  # it is answered
    assert folder.answers() == [Answer("a", 1)]


def test_a_skipped_question_is_the_first_to_be_dropped_and_its_skip_is_then_nothing(folder):
    folder.ask([rate(name) for name in "abcd"])
    folder.answer("d", 1)
    folder.skip("a")
    folder.ask([rate("e"), rate("f")])
    assert ids(folder.pending()) == list("efbc")
    assert [(one.id, said.value) for one, said in folder.view().recent(5)] == [("d", 1.0)]
    assert folder.undo().id == "d"  # of the entries that are left it is the last
    assert folder.undo() is None


# The source and the terminal ----------------------------------------------------------------------


def test_a_live_source_asks_at_once_and_answers_when_there_are_answers(tmp_path):
    source = live.source(tmp_path / "private", 3)
    questions = [rate(name) for name in "abc"]
    assert source.answers(questions, seed=0) == []
    page = Folder(client_folder(tmp_path / "private", 3))
    page.answer("c", -1)
    page.answer("a", 1)
    assert source.answers(questions, seed=1) == [Answer("a", 1), Answer("c", -1)]
    assert source.answers([rate("d")], seed=2) == []
    page.undo()
    assert source.answers(questions, seed=3) == [Answer("c", -1)]


def test_two_clients_share_nothing(tmp_path):
    one, two = (live.source(tmp_path, client) for client in (1, 2))
    one.answers([rate("a", "only one's")], seed=0)
    two.answers([rate("a", "only two's")], seed=0)
    Folder(client_folder(tmp_path, 1)).answer("a", 1)
    assert two.answers([rate("a")], seed=0) == []
    assert Folder(client_folder(tmp_path, 2)).pending()[0].items == ("only two's",)


def typed(*words):
    """A person who types these lines and then closes the terminal."""
    lines = iter(words)

    def ask(prompt):
        try:
            return next(lines)
        except StopIteration:
            raise EOFError from None

    return ask


def test_without_a_guess_the_terminal_and_a_file_ask_for_fewer_or_more_stars(folder, capsys):
    folder.ask([rate("a", score=4.0)._replace(guessed=False), rate("b")])
    assert terminal.converse(folder, 50, typed("1", "q")) == 0
    out = capsys.readouterr().out
    assert "would you give it 4 stars?" in out
    assert "1 fewer stars" in out
    assert out.index("the model's score") > out.index("fewer stars")  # of the next one
    assert "fewer stars,-1" in export.as_csv(folder.view())
    assert not Folder(folder.path).view().queries["a"].guessed  # as it was written


def test_the_terminal_takes_answers_and_undo(folder, capsys):
    folder.ask([rate("a", "bad \x1b[2J news"), rate("b"), rate("c")])
    assert terminal.converse(folder, 50, typed("1", "what?", "3", "u", "2", "q")) == 0
    assert folder.answers() == [Answer("a", -1), Answer("b", 0)]
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "1, 2 or 3; 0 cannot say" in out
    assert f"2 answers kept in {folder.path}" in out


def test_whoever_runs_it_is_told_of_doubt_too(folder):
    folder.ask([rate(name) for name in "abc"])
    folder.of("anna").answer("a", None)
    folder.of("ben").answer("a", 1)
    folder.of("ben").answer("b", None)
    assert page._kept(folder) == "1 answer and 2 “cannot say” kept"


def test_the_terminal_takes_doubt_and_skips(folder, capsys):
    folder.ask([rate(name) for name in "abcd"])
    assert terminal.converse(folder, 50, typed("0", "s", "3", "s", "u", "1", "q")) == 0
    assert folder.answers() == [Answer("c", 1), Answer("d", -1)]
    assert folder.progress().unsure == 1
    out = capsys.readouterr().out
    assert "0 cannot say   s skip" in out
    assert f"2 answers and 1 “cannot say” kept in {folder.path}" in out


def test_the_terminal_takes_nothing_that_was_typed_before_the_question(folder, monkeypatch):
    folder.ask([rate(name) for name in "abc"])
    master, slave = pty.openpty()

    class Person(io.StringIO):
        """Types 3 when first asked, with two lines too many; then leaves."""

        words: ClassVar = ["3\n3\n3\n", "q\n"]

        def write(self, text):
            if text == "> ":
                os.write(master, self.words.pop(0).encode())
            return super().write(text)

    os.write(master, b"1\n1\n")
    with open(slave, encoding="utf-8") as keyboard, open(master, "wb", 0):
        monkeypatch.setattr("sys.stdin", keyboard)
        monkeypatch.setattr("sys.stdout", Person())
        assert terminal.converse(folder, 50) == 0
    assert folder.answers() == [Answer("a", 1)]


def test_the_terminal_waits_for_questions_and_ends_at_the_limit(folder, capsys):
    naps = []

    def sleep(seconds):
        naps.append(seconds)
        if len(naps) == 3:
            folder.ask([rate(name) for name in "abc"])

    assert terminal.converse(folder, 2, typed("3", "3", "3", "3"), sleep) == 0
    assert len(naps) == 3
    assert folder.answers() == [Answer("a", 1), Answer("b", 1)]
    assert capsys.readouterr().out.count("nothing to answer now") == 1


def test_the_terminal_says_how_much_is_left_of_what_there_is(folder, capsys):
    folder.ask([rate(name) for name in "abc"])
    terminal.converse(folder, 50, typed("0", "1", "q"))
    assert re.findall(r"\d+ (?:left|of)", capsys.readouterr().out) == ["3 left", "2 left", "1 left"]
    terminal.converse(folder, 2, typed("q"))
    assert "\n1 left\n" in capsys.readouterr().out  # of the sitting


def test_the_documentations_example_runs(tmp_path, monkeypatch):
    page = (DOCS / "feedback.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(compile(code, "docs/feedback.md", "exec"), names)
    assert names["folder"].path == Path("private/client-0003")
    assert names["folder"].pending() == names["folder"].answers() == []  # forgotten in the end


def test_the_shop_of_the_page_has_as_many_clients_as_customers():
    """A run whose number is another one than that of the folders is refused."""
    page = (DOCS / "feedback.md").read_text(encoding="utf-8")
    shop = page.partition("### Ten customers of a shop")[2].partition("\n## ")[0]
    (run,) = [line for line in shop.splitlines() if line.startswith("    fedrl run fedrlhf")]
    (pages,) = [line for line in shop.splitlines() if line.startswith("    for k in ")]
    customers = pages.removeprefix("    for k in ").partition(";")[0].split()
    assert f"--federation.clients {len(customers)} " in run
    assert f"data/customer{customers[-1]}\n" in shop
