"""What a round has learned from whom, and that nothing is told of answers that were taken back."""

from __future__ import annotations

import json

import pytest
from support.feedback_pages import compare, rate

from fedrl.feedback import effect, page_state
from fedrl.feedback.effect import Effect, Recommendation


def learned(folder, round, heard=None):
    """A round is over; what each is told of it."""
    given = folder.given() if heard is None else heard
    effect.write(folder, Effect("films", len(given), (), (), round=round), given)
    found = effect.read(folder)
    return {who: page_state.learned(found, who) for who in ("", "anna", "ben")}


def test_a_round_is_news_only_to_those_who_said_something_new(folder):
    folder.ask([rate(name) for name in "abc"])
    anna, ben = folder.of("anna"), folder.of("ben")
    anna.answer("a", 1)
    first = learned(folder, 3)
    assert (first["anna"]["round"], first["anna"]["answers"]) == (3, 1)
    assert first["ben"] is first[""] is None  # not heard
    ben.answer("b", -1)
    second = learned(folder, 4)
    assert second["anna"] == first["anna"]
    assert (second["ben"]["round"], second["ben"]["answers"]) == (4, 1)
    anna.change("a", -1)
    third = learned(folder, 5)
    assert (third["anna"]["round"], third["anna"]["answers"]) == (5, 1)
    assert third["anna"]["mark"] != second["anna"]["mark"]
    assert third["ben"] == second["ben"]


def test_an_answer_of_while_it_learned_is_not_counted(folder):
    folder.ask([rate("a"), rate("b")])
    folder.answer("a", 1)
    heard = folder.given()
    folder.answer("b", 1)
    assert learned(folder, 7, heard)[""]["answers"] == 1
    assert learned(folder, 8)[""]["answers"] == 2


@pytest.mark.parametrize("way", ["forget", "forget_all", "undo"])
def test_what_was_taken_back_while_it_learned_is_not_told(folder, way):
    """Deleted from the disk means that its effect is not written there a second later."""
    folder.ask([rate("a"), rate("b")])
    folder.answer("a", 1)
    heard = folder.given()
    if way == "forget":
        folder.forget("a")
    elif way == "forget_all":
        folder.forget_all()
    else:
        folder.undo()
    effect.write(folder, Effect("films", 1, (), ()), heard)
    assert effect.read(folder) is None
    folder.answer("b", 1)
    assert learned(folder, 2)[""]["answers"] == 1


def test_a_damaged_effect_is_written_anew(folder):
    folder.ask([rate("a")])
    folder.answer("a", 1)
    (folder.path / "effect.json").write_text("{")
    assert learned(folder, 2)[""]["round"] == 2


BEFORE, WITHOUT, AFTER = ((Recommendation(name, 4.0),) for name in ("first", "without", "after"))


def over(folder, round, after):
    """A round is over."""
    given = folder.given()
    effect.write(folder, Effect("films", len(given), WITHOUT, after, round=round), given)
    return effect.read(folder)


def test_how_it_was_before_anybody_answered_is_told_ever_after(folder):
    """A round's own share begins with what rounds before have learned from the same person."""
    folder.ask([rate(name) for name in "ab"])
    over(folder, 1, WITHOUT)
    over(folder, 2, BEFORE)  # others have gone on learning
    folder.answer("a", 1)
    for round in (3, 4):
        found = over(folder, round, AFTER)
        assert (found.first, found.without, found.with_answers) == (BEFORE, WITHOUT, AFTER)
    assert page_state.effect(found, "")["effect"]["first"] == [BEFORE[0]._asdict()]


@pytest.mark.parametrize("way", ["forget", "forget_all"])
def test_nothing_of_a_deleted_answer_stays_and_that_it_was_learned_from_is_told(folder, way):
    folder.ask([rate(name) for name in "abc"])
    over(folder, 1, BEFORE)
    folder.answer("a", 1)
    folder.answer("b", 1)
    assert not effect.taken_away(folder)
    over(folder, 2, AFTER)
    if way == "forget":
        folder.forget("a")
    else:
        folder.forget_all()
    assert effect.read(folder) is None
    assert effect.taken_away(folder)
    kept = (folder.path / "effect.json").read_text()
    assert "first" in kept
    assert not any(word in kept for word in ("after", "without", "mark", "time"))
    folder.forget("b")
    assert effect.taken_away(folder)  # still
    found = over(folder, 3, AFTER)  # nobody stands: but the model is no longer one from before
    assert found.first == BEFORE
    assert not effect.taken_away(folder)


@pytest.mark.parametrize("learned", [False, True])
def test_what_was_taken_back_before_all_was_deleted_may_have_been_learned(folder, learned):
    folder.ask([rate("a")])
    over(folder, 1, BEFORE)
    folder.answer("a", 1)
    if learned:
        over(folder, 2, AFTER)
    folder.undo()
    folder.forget_all()
    assert not folder.untouched()
    assert over(folder, 3, AFTER).first == BEFORE
    assert [query.id for query in folder.pending()] == ["a"]  # it waits


def test_nothing_is_taken_away_that_was_never_shown(folder):
    folder.ask([rate("a")])
    over(folder, 1, BEFORE)
    folder.answer("a", 1)
    folder.forget("a")
    assert not effect.taken_away(folder)


def test_a_file_of_before_has_no_beginning_and_one_of_another_kind_is_none_of_this(folder):
    folder.ask([rate("a")])
    over(folder, 1, BEFORE)
    folder.answer("a", 1)
    texts = (Recommendation("a text", None, "a"),)
    effect.write(folder, Effect("texts", 1, texts, texts), folder.given())
    assert effect.read(folder).first == ()
    rows = json.loads((folder.path / "effect.json").read_text())
    del rows["first"]
    (folder.path / "effect.json").write_text(json.dumps(rows))
    assert effect.read(folder).first == ()
    assert effect.read(folder).with_answers == texts


@pytest.mark.parametrize("way", ["forget", "forget_all"])
def test_guesses_that_wait_say_that_an_answer_was_deleted_since(folder, way):
    start = rate("b")._replace(guessed=False)
    folder.ask([rate("a"), start, rate("c"), compare("d", "one", "two")])
    folder.answer("a", 1)
    if way == "forget":
        folder.forget("a")
    else:
        folder.forget_all()
    folder.ask([rate("c"), rate("e")])  # a round asks again what waits, and something new
    assert {one.id: one.stale for one in folder.pending()} == {
        "b": "", "c": "deleted", "d": "", "e": "",
    }  # fmt: skip
    assert folder.drop_stale() == {"a", "b", "d", "e"}
    assert [one.id for one in folder.pending()] == ["e", "b", "d"]


def test_guesses_that_wait_say_that_the_model_has_learned_since(folder):
    folder.ask([rate("a"), rate("b"), rate("c")._replace(guessed=False)])
    folder.answer("a", 1)
    learned(folder, 1)
    assert {one.id: one.stale for one in folder.pending()} == {"b": "learned", "c": ""}
    assert folder.drop_stale() == {"a", "c"}
    anew = rate("b2", score=3.1)._replace(keys=("key-b",))
    folder.ask([anew])
    assert folder.pending()[0] == anew
    learned(folder, 2)
    assert folder.pending()[0] == anew  # nothing new was learned


def anew(folder):
    """The guess b was made anew as b2 while it was looked at."""
    folder.ask([rate(name) for name in "abc"])
    folder.answer("a", 1)
    learned(folder, 1)
    folder.drop_stale()
    folder.ask(
        [rate("b2", score=3.1)._replace(keys=("key-b",)), rate("c2")._replace(keys=("key-c",))]
    )


def test_an_answer_to_a_guess_that_was_made_anew_is_heard_and_the_film_asked_no_more(folder):
    anew(folder)
    assert [one.id for one in folder.pending()] == ["b2", "c2"]
    assert folder.answer("b", -1)
    assert [one.id for one in folder.pending()] == ["c2"]
    assert [one.id for one in folder.answered_late()] == ["b"]
    folder.undo()
    assert [one.id for one in folder.pending()] == ["b", "c2"]
    folder.skip("b")
    assert [one.id for one in folder.pending()] == ["c2", "b2"]  # later


def test_after_a_deletion_nothing_is_left_of_guesses_that_were_made_anew(folder):
    anew(folder)
    folder.forget("a")
    assert set(folder.view().queries) == {"a", "b2", "c2"}
    assert [one.stale for one in folder.pending()] == ["deleted", "deleted"]


def test_a_guess_that_is_made_anew_with_the_same_score_is_todays(folder):
    anew(folder)
    folder.ask([rate("b")])
    assert folder.pending()[0].id == "b"
    assert folder.pending()[0].stale == ""


def test_what_was_learned_and_deleted_remains_until_the_file_goes(folder):
    folder.ask([rate("a"), rate("b")])
    folder.answer("a", 1)
    assert not effect.remains(folder)
    learned(folder, 1)
    folder.forget_all()
    assert effect.remains(folder)
    learned(folder, 2)
    assert effect.remains(folder)
    assert not effect.taken_away(folder)
    folder.answer("b", 1)
    learned(folder, 3)
    folder.forget_all()
    assert effect.remains(folder)
