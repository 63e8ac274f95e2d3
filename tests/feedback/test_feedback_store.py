"""A client's private folder: what is answered is kept, once, whatever happens in between."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import stat
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.feedback_pages import rate

from fedrl.algorithms.fedrlhf.text import preference_queries
from fedrl.core.types import UserError
from fedrl.feedback.queries import Answer, Query
from fedrl.feedback.store import ANSWERS, QUESTIONS, Entry, Folder, Progress, client_folder

MOST_WAITING = 4


def ids(questions) -> list[str]:
    return [one.id for one in questions]


# The whole against a simple model -----------------------------------------------------------------


class Model:
    """What the folder should be, without files."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.new: list[str] = []  # what waits, as it was asked
        self.waiting: list[str] = []  # the same, as a person sees it
        self.undone: list[str] = []  # these come first
        self.said: list[tuple[str, float | None, bool]] = []  # name, value, whether it is a skip
        self.words: set[str] = set()

    @property
    def answered(self):
        return [(name, value) for name, value, _ in self.said if value is not None]

    @property
    def unsure(self):
        return [name for name, value, skip in self.said if value is None and not skip]

    def ask(self, names):
        done = [name for name, _, skip in self.said if not skip]
        new = [name for name in names if name not in done]
        self.new = [*dict.fromkeys(new), *(name for name in self.new if name not in new)]
        self.order()
        self.waiting = self.waiting[: self.most]
        self.new = [name for name in self.new if name in self.waiting]

    def order(self):
        first = [name for name in dict.fromkeys(self.undone) if name in self.new]
        last: list[str] = []
        for name, _, skip in self.said:
            if skip and name in self.new and name not in first:
                last = [*(other for other in last if other != name), name]
        middle = [name for name in self.new if name not in first + last]
        self.waiting = first + middle + last

    def skip(self, name, once=""):
        if name not in self.waiting or (once and once in self.words):
            return False
        self.undone = [other for other in self.undone if other != name]
        self.said.append((name, None, True))
        self.order()
        self.words |= {once}
        return True

    def answer(self, name, value, once=""):
        if name not in self.waiting or (once and once in self.words):
            return False
        self.new.remove(name)
        self.undone = [other for other in self.undone if other != name]
        self.said.append((name, value, False))
        self.order()
        self.words |= {once}
        return True

    def undo(self, once=""):
        kept = [n for n, one in enumerate(self.said) if not one[2] or one[0] in self.questions]
        if not kept or (once and once in self.words):
            return None
        name, _, skip = self.said.pop(kept[-1])
        if not skip:
            self.new.insert(0, name)
        self.undone.insert(0, name)
        self.order()
        self.words |= {once}
        return name

    @property
    def questions(self):
        return {*self.new, *(name for name, _, skip in self.said if not skip)}


NAMES = [f"q{number}" for number in range(9)]
WORDS = st.sampled_from(["", "", "w1", "w2", "w3"])
VALUES = st.sampled_from([-1.0, 0.0, 1.0, None])
STEPS = st.one_of(
    st.tuples(st.just("ask"), st.lists(st.sampled_from(NAMES), max_size=7)),
    st.tuples(st.just("answer"), st.sampled_from(NAMES), VALUES, WORDS),
    st.tuples(st.just("first"), VALUES, WORDS),
    st.tuples(st.just("skip"), st.sampled_from(NAMES), WORDS),
    st.tuples(st.just("undo"), WORDS),
    st.tuples(st.just("crash"), st.integers(1, 60)),
    st.tuples(st.just("half"), st.integers(0, 60)),
)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.lists(STEPS, max_size=25), st.integers(1, 6))
def test_any_order_of_events_equals_a_simple_model(steps, most):
    with tempfile.TemporaryDirectory() as place:
        path = client_folder(place, 0)
        both = itertools.cycle([Folder(path, most), Folder(path, most)])  # the learner and the page
        model = Model(most)
        for (kind, *values), store in zip(steps, both):
            if kind == "ask":
                store.ask([rate(name) for name in values[0]])
                model.ask(values[0])
            elif kind == "answer":
                assert store.answer(*values) == model.answer(*values)
            elif kind == "first" and model.waiting:
                assert store.answer(model.waiting[0], *values) == model.answer(
                    model.waiting[0], *values
                )
            elif kind == "skip":
                assert store.skip(*values) == model.skip(*values)
            elif kind == "undo":
                again = store.undo(once=values[0])
                assert (again.id if again else None) == model.undo(values[0])
            elif kind == "crash":  # killed while it wrote an answer: its line has no end
                line = json.dumps({"time": 1.5, "question": "q0", "value": 1.0, "once": "torn"})
                with (path / ANSWERS).open("ab") as file:
                    file.write(line.encode()[: values[0]])
                store = Folder(path, most)
            elif kind == "half":  # killed while it wrote the questions
                (path / f".{QUESTIONS}.part").write_bytes(
                    b'{"id": "q1", "kind": "rate"'[: values[0]]
                )
            assert ids(store.pending()) == model.waiting
            assert store.answers() == [Answer(*one) for one in model.answered]
            answered, unsure = len(model.answered), len(model.unsure)
            assert store.progress() == (answered, len(model.waiting), answered, unsure)


# Piece by piece -----------------------------------------------------------------------------------


def test_only_the_owner_can_read_it(folder):
    folder.ask([rate("a")])
    folder.answer("a", 1)
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    assert stat.S_IMODE(folder.path.parent.stat().st_mode) == 0o700
    for file in folder.path.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file


def test_the_oldest_that_wait_are_dropped_and_answers_never(folder):
    folder.ask([rate("a"), rate("b")])
    folder.answer("a", -1)
    folder.ask([rate(name) for name in "cdef"])
    assert ids(folder.pending()) == list("cdef")
    assert not folder.answer("b", 1)
    assert folder.answers() == [Answer("a", -1)]
    folder.ask([rate("b")])
    assert ids(folder.pending()) == list("bcde")


def test_asking_the_same_again_changes_nothing(folder):
    folder.ask([rate("a", score=0.2), rate("b")])
    before = (folder.path / QUESTIONS).stat()
    folder.ask([rate("a", score=0.9), rate("b")])
    assert folder.pending()[0].scores == (0.2,)  # a person may be looking at it
    assert (folder.path / QUESTIONS).stat().st_ino == before.st_ino


def test_a_question_comes_back_as_it_was(folder):
    odd = Query("ø/1", "compare", ("k1", "k\n2"), ("<b>\nline\u2028 \ud800", "\x1b[31m"), (0.1, -2))
    folder.ask([odd])
    assert Folder(folder.path).pending() == [odd]


def test_undo_goes_back_step_by_step_and_shows_that_question_first(folder):
    folder.ask([rate("a"), rate("b"), rate("c")])
    for name in "ab":
        folder.answer(name, 1)
    folder.ask([rate("d")])
    assert folder.undo().id == "b"
    assert ids(folder.pending()) == list("bdc")
    assert folder.undo().id == "a"
    assert folder.undo() is None
    assert ids(folder.pending()) == list("abdc")


def test_undo_of_a_named_question_spares_other_answers(folder):
    folder.ask([rate("a"), rate("b")])
    folder.answer("a", 1)
    folder.answer("b", 1)
    assert folder.undo("a") is None
    assert folder.undo("b").id == "b"
    assert folder.undo("b") is None
    assert folder.answers() == [Answer("a", 1)]


def test_an_entry_that_arrives_late_a_second_time_does_nothing(folder):
    folder.ask([rate("a"), rate("b")])
    undo = Entry("a", None, "2", "undo")
    folder.give([Entry("a", 1.0, "1"), undo])
    folder.give([Entry("a", 1.0, "1"), Entry("b", -1.0, "3"), undo])
    assert folder.answers() == [Answer("b", -1)]


@pytest.mark.parametrize("value", [2, -1.01, float("nan"), float("inf")])
def test_an_answer_is_a_number_from_minus_one_to_one(folder, value):
    folder.ask([rate("a")])
    with pytest.raises(UserError, match="from -1 to 1"):
        folder.answer("a", value)
    assert folder.answers() == []


def test_a_sitting_is_bounded_and_goes_on_after_a_break(folder):
    folder.ask([rate(name) for name in "abcd"])
    folder.sit(3)
    folder.answer("a", 1)
    folder.answer("b", 1)
    assert Folder(folder.path).sit(3).progress == Progress(2, 2, 2)  # begun before: it goes on
    folder.answer("c", 1)
    assert folder.sit(3).progress == Progress(3, 1, 0)
    folder.undo()
    assert folder.progress() == Progress(2, 2, 0)


def test_a_damaged_line_in_the_middle_is_named(folder):
    folder.ask([rate("a")])
    (folder.path / ANSWERS).write_text('{"time": 1, "question"\n{"time": 2, "undo": "a"}\n')
    with pytest.raises(UserError, match=r"answers\.jsonl, line 1 is damaged"):
        folder.answers()


@pytest.mark.parametrize(
    "line",
    [
        "[1]", "7", '"sit"', '{"time": 1}', '{"question": "a"}', '{"question": "a", "value": "x"}',
        '{"question": "a", "value": 2}', '{"question": "a", "value": NaN}', "\xff",
    ],
)  # fmt: skip
def test_a_line_that_is_no_answer_is_damaged(folder, line):
    folder.ask([rate("a")])
    (folder.path / ANSWERS).write_bytes(line.encode("latin-1") + b"\n")
    for use in (folder.view, folder.undo, lambda: folder.ask([rate("b")])):
        with pytest.raises(UserError, match=r"answers\.jsonl, line 1 is damaged"):
            use()


@pytest.mark.parametrize(
    "change", [{"kind": "other"}, {"items": []}, {"scores": 1}, {"keys": None}, {"id": ...}]
)
def test_a_line_that_is_no_question_is_damaged(folder, change):
    good = rate("a")._asdict()
    line = {name: value for name, value in (good | change).items() if value is not ...}
    (folder.path / QUESTIONS).write_text(json.dumps(line) + "\n")
    with pytest.raises(UserError, match=r"questions\.jsonl, line 1 is damaged"):
        folder.view()


def test_answers_without_their_questions_are_damage(folder, tmp_path):
    folder.ask([rate("a"), rate("b")])
    folder.answer("a", 1)
    (folder.path / QUESTIONS).unlink()
    said = r"questions\.jsonl is damaged: it lacks a question that was answered"
    for use in (
        folder.view,
        folder.undo,
        lambda: preference_queries.answered(str(tmp_path / "private"), 3),
    ):
        with pytest.raises(UserError, match=said):
            use()


def test_an_undo_takes_back_what_it_names_though_lines_are_missing(folder):
    """A damaged line was removed: the undo of its answer must not cost another one."""
    folder.ask([rate(name) for name in "abc"])
    folder.answer("a", 1)
    folder.sit(1)
    for name in "bc":
        folder.answer(name, -1)
    lines = (folder.path / ANSWERS).read_text().splitlines(keepends=True)
    undo = [json.dumps({"time": 9.0, "undo": name}) + "\n" for name in "ab"]

    def progress(*lines: str) -> Progress:
        (folder.path / ANSWERS).write_text("".join(lines))
        return folder.progress()

    assert progress(*lines[:3], undo[1], undo[1]) == Progress(1, 2, 0)
    assert progress(*lines[1:3], *undo) == Progress(0, 3, 0)
    assert progress(*undo) == Progress(0, 3, 0)
    assert progress(*lines, undo[0]) == Progress(2, 1, 2)
    assert folder.answers() == [Answer("b", -1), Answer("c", -1)]


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot use the private folder"):
        Folder(client_folder(tmp_path / "file", 1))


def _hammer(path: Path, names: list[str]) -> None:
    folder = Folder(path, most=1000)
    for name in names:
        folder.ask([rate(name)])
        folder.answer(name, 1.0)


@pytest.mark.slow
def test_processes_at_once_lose_nothing(tmp_path):
    path = client_folder(tmp_path, 0)
    shares = [[f"{worker}-{number}" for number in range(12)] for worker in range(3)]
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_hammer, args=(path, share)) for share in shares]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    given = [answer.question for answer in Folder(path).answers()]
    assert sorted(given) == sorted(name for share in shares for name in share)
