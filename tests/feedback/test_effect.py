"""What a round has learned from whom, and that nothing is told of answers that were taken back."""

from __future__ import annotations

import pytest
from support.feedback_pages import rate

from fedrl.feedback import effect, page_state
from fedrl.feedback.effect import Effect


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
