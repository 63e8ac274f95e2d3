"""How many turns a prompt shows, and prompts in a person's own words: settings, not constants."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers", reason="the extra llm is not installed")

from fedrl.core.types import UserError
from fedrl.envs.household.world import Household
from fedrl.envs.household.world import Settings as HouseholdSettings
from fedrl.envs.text import Turn
from fedrl.envs.webshop.shop import Settings as ShopSettings
from fedrl.envs.webshop.shop import WebShop
from fedrl.llm.prompts.chat import DIRECT, HISTORY, REASONED, Chat
from fedrl.llm.prompts.compact import Compact
from fedrl.llm.prompts.outline import prompt_outline
from fedrl.llm.prompts.prompt_format import PromptFormat, prompt_format, world_format
from fedrl.llm.prompts.template import read_template


def seen(place: str, *admissible: str) -> Turn:
    return Turn(f"you are in the {place}", 0.0, False, admissible, {})


PLACES = ("hall", "attic", "barn", "cellar", "dairy")
"""Seen one after another, a command "go to …" between them."""


def walked(format: PromptFormat[Any], turns: int = 4) -> str:
    """The prompt after so many turns."""
    notes = format.start("find the cat", seen(PLACES[0]))
    for place in PLACES[1 : turns + 1]:
        format.observe(notes, f"go to {place}", seen(place))
    return format.prompt(notes)


def shown(text: str) -> list[str]:
    """Of the places, those that the agent is told to have been in, by when they stand there."""
    return sorted(
        (place for place in PLACES if f"in the {place}" in text),
        key=lambda place: text.index(f"in the {place}"),
    )


@pytest.mark.parametrize("name", ["chat", "compact"])
@pytest.mark.parametrize("history", range(6))
def test_the_window_is_the_last_turns_and_the_present(name: str, history: int):
    text = walked(prompt_format(name, "a world of one's own", history=history))
    assert shown(text) == list(PLACES[max(4 - history, 0) :])
    assert [f"go to {place}" in text for place in PLACES[1:]] == [
        4 - i <= history for i in range(4)
    ]


def test_the_usual_windows_are_as_they_were():
    assert walked(prompt_format("chat", "any")) == walked(Chat(history=2))
    assert HISTORY == 2
    assert shown(walked(prompt_format("compact", "any"))) == list(PLACES)


@pytest.mark.parametrize("format", [Chat(history=3), Compact(3)], ids=["chat", "compact"])
def test_too_long_a_prompt_loses_the_oldest_of_the_window_first(format):
    class Letters:
        chat_template = None

        def __call__(self, texts, add_special_tokens):
            return {"input_ids": [list(map(ord, text)) for text in texts]}

    notes = format.start("find the cat", seen(PLACES[0]))
    for place in PLACES[1:]:
        format.observe(notes, f"go to {place}", seen(place))
    whole = len(format.encode(Letters(), [notes], 10_000)[0])
    (row,) = format.encode(Letters(), [notes], whole - 1)
    assert shown("".join(map(chr, row))) == list(PLACES[2:])


HOME = Household(HouseholdSettings(size="tiny", train=2, unseen=1, public=1))
SHOP = WebShop(ShopSettings(products=300, validation=50))


def household(history: int, commands: list[str]) -> str:
    format = prompt_format("compact", "household", history=history)
    episode, turn = HOME.start(HOME.tasks("train")[0].id)
    notes = format.start(episode.goal, turn)
    for command in commands:
        format.observe(notes, command, episode.step(command))
    return format.prompt(notes)


def test_the_compact_household_tells_as_many_commands_as_are_asked_for():
    usual = prompt_format("compact", "household")
    assert usual.history == 1
    commands = ["look", "inventory", "dance"]
    parts = {n: household(n, commands).removesuffix(" >").split(" ; ") for n in range(5)}
    assert [part for part in parts[0] if part.startswith("did")] == []
    assert [part for part in parts[1] if part.startswith("did")] == ["did dance"]
    for n in (3, 4):
        assert [part for part in parts[n] if part.startswith("did")] == [
            f"did {command}" for command in commands
        ]
    assert parts[0][-1] == parts[1][-1] == parts[2][-1] == "nothing happens"
    assert parts[2][-4:] == ["did inventory", "are not carrying anything", *parts[1][-2:]]
    assert household(1, []) == household(3, [])  # before the first command there is nothing more


def test_the_compact_shop_names_earlier_answers_if_asked():
    texts = {}
    for history in (0, 1, 2, 9):
        format = prompt_format("compact", "webshop", history=history)
        episode, turn = SHOP.start(SHOP.tasks("train")[0].id)
        notes = format.start(episode.goal, turn)
        for command in ("search[red shirt]", "click[back to search]", "search[blue shirt]"):
            format.observe(notes, command, episode.step(command))
        texts[history] = [p for p in format.prompt(notes).split(" ; ") if p.startswith("did ")]
    assert texts[0] == []
    assert texts[1] == ["did search blue shirt"]
    assert texts[2] == ["did back", "did search blue shirt"]
    assert texts[9] == ["did search red shirt", "did back", "did search blue shirt"]


def test_a_conversation_keeps_the_question_and_its_last_turns():
    messages = [{"role": "user", "content": "q"}]
    for n in "123":
        messages += [
            {"role": "assistant", "content": f"a{n}"},
            {"role": "user", "content": f"u{n}"},
        ]
    turn = Turn("", 0.0, False, (), {"won": False, "messages": messages})

    def told(history: int) -> str:
        format = prompt_format("chat", "tools", history=history)
        return format.prompt(format.start("", turn))

    assert told(1) == "user: q\nassistant: a3\nuser: u3\nassistant:"
    assert told(2) == "user: q\nassistant: a2\nuser: u2\nassistant: a3\nuser: u3\nassistant:"
    assert told(-1) == told(3) == told(7)
    assert told(3).count("assistant: a") == 3
    with pytest.raises(UserError, match=r"algorithm\.history is 0.*at least its last turn"):
        told(0)


class Own:
    """A world that says itself what is shown."""

    name = "mine"

    def prompt_format(self):
        return Compact()


def test_a_worlds_own_format_takes_neither(tmp_path):
    file = written(tmp_path, "{goal} {observation}")
    assert isinstance(world_format("compact", Own()), Compact)
    with pytest.raises(UserError, match=r"algorithm\.history is 2.*of its own"):
        world_format("compact", Own(), history=2)
    with pytest.raises(UserError, match=r"algorithm\.template.*words of its own"):
        world_format("compact", Own(), template=file)
    for name, world in (("compact", "household"), ("compact", "webshop"), ("chat", "tools")):
        with pytest.raises(UserError, match=r"algorithm\.template.*words of its own"):
            prompt_format(name, world, template=file)


# Templates


def written(folder: Path, text: str) -> str:
    file = folder / "prompt.txt"
    file.write_text(text, encoding="utf-8")
    return str(file)


def test_a_template_is_filled_in_for_every_prompt(tmp_path):
    file = written(
        tmp_path,
        "Errand ({{secret}}): {goal}\n\n{history}\nBefore you: {observation}\n{commands}\n"
        "{answer}\n",
    )
    format = prompt_format("chat", "household", thinking=False, template=file)
    notes = format.start("find {it}", seen("hall", "go to attic", "wait"))
    assert format.prompt(notes) == (
        "Errand ({secret}): find {it}\n\nBefore you: you are in the hall\n- go to attic\n- wait\n"
        f"{DIRECT}"
    )
    format.observe(notes, "go to attic", seen("attic"))
    assert format.prompt(notes) == (
        "Errand ({secret}): find {it}\n\nEarlier you saw:\nyou are in the hall\nand gave the "
        f"command: go to attic\nBefore you: you are in the attic\n{DIRECT}"
    )
    assert REASONED in prompt_format("chat", "any", template=file).prompt(notes)


def test_what_a_world_says_is_never_a_field(tmp_path):
    """Text from a world or from data is put in as it is, however it is written."""
    file = written(tmp_path, "{goal}|{observation}|<action>")
    format = prompt_format("chat", "any", template=file)
    odd = "{observation} {0} {goal.__class__} %s"
    assert (
        format.prompt(format.start(odd, Turn(odd, 0.0, False, (), {}))) == f"{odd}|{odd}|<action>"
    )


def test_the_compact_template_of_any_world(tmp_path):
    file = written(tmp_path, "want {goal} / {history} / {observation} / {commands} =")
    format = prompt_format("compact", "mine", history=1, template=file)
    notes = format.start("cat", seen("hall", "north"))
    format.observe(notes, "north", seen("attic", "south", "wait"))
    assert format.prompt(notes) == (
        "want cat / saw you are in the hall ; did north / you are in the attic / south , wait ="
    )


def test_prompts_of_ones_own_in_ones_own_words(tmp_path):
    class Letters:
        def __call__(self, texts, add_special_tokens):
            return {"input_ids": [list(map(ord, text)) for text in texts]}

    file = written(tmp_path, "Question: {prompt}\nAnswer:")
    format = prompt_format("compact", "prompts", template=file)
    notes = format.start("1+1", Turn("1+1", 0.0, False, (), {"won": False, "prompt": "1+1"}))
    (row,) = format.encode(Letters(), [notes], 99)
    assert "".join(map(chr, row)) == format.prompt(notes) == "Question: 1+1\nAnswer:"
    messages = [{"role": "user", "content": "1+1"}]
    with pytest.raises(UserError, match=r"algorithm\.template is for prompts that are texts"):
        format.start("1+1", Turn("1+1", 0.0, False, (), {"won": False, "prompt": messages}))


@pytest.mark.parametrize(
    "text, told",
    [
        ("{goal} {observation} {answer} {gaol}", r"unknown field \{gaol\}; did you mean 'goal'"),
        ("{goal} {observation.args} <action>", r"unknown field \{observation\.args\}"),
        ("{goal} {answer}", r"lacks the field \{observation\}"),
        ("{observation} {answer}", r"lacks the field \{goal\}"),
        ("{goal} {observation}", r"does not say how to answer: name the field \{answer\}"),
        ("{goal}\n{observation} {answer", "line 2: .*a brace itself is written twice"),
        ("{goal} {observation!r} {answer}", "line 1: a field is a name in braces"),
        ("{goal} {observation:9} {answer}", "line 1: a field is a name in braces"),
        ("{} {goal} {observation} {answer}", "line 1: a field is a name in braces"),
    ],
)
def test_a_mistake_in_a_template_is_one_line(tmp_path, text: str, told: str):
    file = written(tmp_path, text)
    with pytest.raises(UserError, match=told) as raised:
        prompt_format("chat", "household", template=file)
    assert str(raised.value).startswith(f"algorithm.template: {file}")
    assert "\n" not in str(raised.value)


def test_a_file_that_cannot_be_read_is_one_line(tmp_path):
    with pytest.raises(UserError, match=r"algorithm\.template: cannot read .*none \(No such file"):
        read_template(str(tmp_path / "none"), ("a",), ())
    (tmp_path / "bytes").write_bytes(b"\xff\xfe{goal}")
    with pytest.raises(UserError, match="no text in UTF-8"):
        read_template(str(tmp_path / "bytes"), ("goal",), ())


def test_a_model_cards_outline_has_as_many_turns_and_the_same_words(tmp_path):
    def outline(name: str, world: str, **how) -> str:
        return prompt_outline(prompt_format(name, world, **how))

    assert outline("compact", "household").endswith("hold THING ; did COMMAND ; ANSWER >")
    assert outline("compact", "household", history=0).endswith("hold THING ; ANSWER >")
    assert outline("compact", "household", history=3).count("did COMMAND ; ANSWER") == 3
    assert "did" not in outline("compact", "webshop")
    assert "step 1 ; did ANSWER ; did ANSWER ; query" in outline("compact", "webshop", history=2)
    file = written(tmp_path, "Question: {prompt}")
    assert outline("compact", "prompts", template=file) == "Question: PROMPT"
    file = written(tmp_path, "Errand: {goal} {observation} <action>")
    assert outline("chat", "any", template=file) == "Errand: TASK WHAT IS SEEN NOW <action>"
