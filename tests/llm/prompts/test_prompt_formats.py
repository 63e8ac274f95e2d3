"""Formats: notes follow from what the agent was told, answers are read as they were meant."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.realdata import data
from support.webshop_goods import CUP, LAMP, TABLE, with_options

from fedrl.core.types import UserError
from fedrl.envs.household.world import Household
from fedrl.envs.household.world import Settings as Home
from fedrl.envs.text import TextWorld, Turn
from fedrl.envs.webshop.shop import Settings as ShopSettings
from fedrl.envs.webshop.shop import WebShop
from fedrl.envs.webshop.store import Store
from fedrl.llm.prompts.chat import CUT, KEPT_COMMANDS, Chat
from fedrl.llm.prompts.compact import Compact
from fedrl.llm.prompts.compact_household import REMEMBERED, CompactHousehold
from fedrl.llm.prompts.compact_webshop import SHOWN_VALUES, TITLE_WORDS, CompactWebShop, gist
from fedrl.llm.prompts.prompt_format import (
    COMPACT,
    PromptFormat,
    prompt_format,
    tokenize,
    world_format,
)
from fedrl.llm.prompts.single_turn import SingleTurn
from fedrl.llm.prompts.webshop_page import SHOWN_ITEMS, words

GENERATIONS = ("2.1.2", "2.1.1")
HOMES = {
    (size, generation): Household(Home(size=size, generation=generation))
    for size in ("tiny", "small")
    for generation in GENERATIONS
}
SHOP = WebShop(ShopSettings(products=300, validation=50))
GOALS = [task.id for task in SHOP.tasks("train")]
STATES = {"isHot": "hot", "isCool": "cool", "isClean": "clean"}


class Letters:
    """A tokenizer of single characters."""

    def __call__(self, texts: list[str], add_special_tokens: bool) -> dict[str, list[list[int]]]:
        assert not add_special_tokens
        return {"input_ids": [[ord(letter) for letter in text] for text in texts]}

    @staticmethod
    def decode(row: list[int]) -> str:
        return "".join(map(chr, row))


class Talkative(Letters):
    """One with a chat template, too."""

    chat_template = "any"

    def apply_chat_template(
        self, messages: list[dict[str, str]], tokenize: bool, add_generation_prompt: bool
    ) -> str:
        assert not tokenize
        assert add_generation_prompt
        return "".join(f"[{m['role']}]{m['content']}[end]" for m in messages) + "[agent]"


def formats() -> list[PromptFormat]:
    return [CompactHousehold(), CompactWebShop(), Compact(), Chat(), Chat(thinking=False)]


def wander(
    world: TextWorld, format: PromptFormat, task: str, seed: int, steps: int
) -> Iterator[tuple[Any, Any, str, Turn]]:
    """(episode, notes, last command, last turn) of a walk of random commands, some of them bad."""
    rng = random.Random(seed)
    episode, turn = world.start(task)
    notes = format.start(episode.goal, turn)
    yield episode, notes, "", turn
    for _ in range(steps):
        if turn.done:
            break
        command = rng.choice([*turn.admissible, "fly to the moon", "", "search[red cotton]"])
        turn = episode.step(command)
        format.observe(notes, command, turn)
        yield episode, notes, command, turn


# Which format


def test_a_format_is_chosen_by_name_and_world():
    assert isinstance(prompt_format("compact", "household"), CompactHousehold)
    assert isinstance(prompt_format("compact", "webshop"), CompactWebShop)
    for world in (*COMPACT, "a third-party world"):
        assert isinstance(prompt_format("chat", world), Chat)
    assert isinstance(prompt_format("compact", "a third-party world"), Compact)
    assert isinstance(prompt_format("compact", "prompts"), SingleTurn)
    assert prompt_format("chat", "prompts").chat
    with pytest.raises(UserError, match=r"algorithm\.format is 'chats'; did you mean 'chat'"):
        prompt_format("chats", "household")


def test_a_world_may_bring_its_own_compact_format():
    class Short(Compact):
        """Anything but ours."""

    class World:
        name, prompt_format = "mine", Short

    assert isinstance(world_format("compact", World()), Short)
    assert isinstance(world_format("chat", World()), Chat)
    assert isinstance(world_format("compact", SHOP), CompactWebShop)


def test_the_compact_format_of_any_world_tells_all_turns_and_drops_the_oldest():
    format = Compact()
    notes = format.start("find it", Turn("a door", 0.0, False, ["Open  Door"], {}))
    assert format.prompt(notes) == "task find it ; saw a door >"
    assert format.parse(notes, " open door\n") == ("Open  Door", True)
    assert format.parse(notes, "dance") == ("dance", True)
    assert format.parse(notes, "  ") == ("", False)
    format.observe(notes, "open door", Turn("a hall", 0.0, False, [], {}))
    format.observe(notes, "", Turn("a hall again", 0.0, False, [], {}))
    whole = (
        "task find it ; saw a door ; did open door ; saw a hall ; did nothing ; saw a hall again >"
    )
    assert format.prompt(notes) == whole
    texts = [
        Letters.decode(format.encode(Letters(), [notes], limit)[0])
        for limit in range(len(whole) + 1)
    ]
    last = "task find it ; saw a hall again >"
    assert set(texts[len(last) :]) == {
        last, "task find it ; saw a hall ; did nothing ; saw a hall again >", whole,
    }  # fmt: skip
    assert all(last.endswith(text) for text in texts[: len(last)])


def test_a_single_turn_is_the_prompt_itself_and_the_whole_answer():
    texts, chat = SingleTurn(), SingleTurn(chat=True)
    plain = Turn("1+1=", 0.0, False, (), {"won": False, "prompt": "1+1="})
    said = [{"role": "system", "content": "be short"}, {"role": "user", "content": "1+1="}]
    talk = Turn("…", 0.0, False, (), {"won": False, "prompt": said})

    def told(format, turn, tokenizer):
        row = format.encode(tokenizer, [format.start(turn.observation, turn)], 1000)[0]
        return Letters.decode(row)

    assert told(texts, plain, Talkative()) == "1+1="
    assert told(chat, plain, Talkative()) == "[user]1+1=[end][agent]"
    for format in (texts, chat):
        assert told(format, talk, Talkative()) == "[system]be short[end][user]1+1=[end][agent]"
        with pytest.raises(UserError, match=r"algorithm\.model has no chat template"):
            told(format, talk, Letters())
    notes = texts.start("1+1=", plain)
    assert texts.parse(notes, " 2\n") == (" 2\n", True)
    assert texts.render(notes, "2") == "2"
    assert Letters.decode(texts.encode(Letters(), [notes], 2)[0]) == "1="


def test_tokens_are_cut_from_the_left():
    rows = tokenize(Letters(), ["abcdef", "xy"], 3)
    assert [Letters.decode(row) for row in rows] == ["def", "xy"]
    assert tokenize(Letters(), ["abc"], 0) == [[]]
    assert tokenize(Letters(), [], 3) == []


# The household's notes are true


def check_notes(game: Any, notes: Any, told: set[str], odd: bool = False) -> None:
    """The notes against the engine's facts; `told` are the receptacles looked into so far.

    In `odd` games a thing may lie in two receptacles; the notes know one place of each.
    """
    layout = game.layout
    names, places = layout.thing_names, layout.receptacle_names
    held = names[game.holding] if game.holding >= 0 else ""
    assert notes.held == held
    assert notes.places == [place for place in places if place not in told]
    for thing, place in notes.known.items():
        assert names.index(thing) in game.contents[places.index(place)], (thing, place)
        assert place in told
    wanted = set(layout.problem.task.split())
    for place in told:
        lying = [names[o] for o in game.contents[places.index(place)]]
        lying = [name for name in lying if name.split()[0] in wanted]
        alike = [name for name in names if name.split()[0] in wanted]
        if len(alike) <= REMEMBERED and not odd:
            assert set(lying) <= set(notes.known)
    for thing, states in notes.states.items():
        truth = {STATES[s] for s in game.states_of(names.index(thing)) if s in STATES}
        assert set(states) == truth
        assert len(states) == len(truth)


def look_into(game: Any, command: str, told: set[str]) -> None:
    """Which receptacle a command has shown from inside, by the rules and not by the words."""
    for verb in ("go to ", "open ", "examine "):
        name = command.removeprefix(verb)
        if command.startswith(verb) and name in game.layout.receptacle_names:
            r = game.layout.receptacle_names.index(name)
            here = game.layout.place_of[r] == game.place
            if here and (game.opened[r] or not game.layout.openable[r]):
                told.add(name)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(HOMES)), st.integers(0, 3000), st.integers(0, 999), st.integers(1, 80)
)
def test_household_notes_are_true_on_random_walks(home, number, seed, steps):
    format, told = CompactHousehold(), set[str]()
    for episode, notes, command, _ in wander(
        HOMES[home], format, f"train/{number:05d}", seed, steps
    ):
        look_into(episode.game, command, told)
        check_notes(episode.game, notes, told)
        prompt = format.prompt(notes)
        assert prompt.startswith(f"task {notes.task} ; new ")
        shown = " ".join(w for w in episode.goal.split() if w not in ("a", "the", "and"))
        assert notes.task == shown
        assert " loc " not in prompt
        assert format.parse(notes, format.render(notes, command)) == (command, bool(command))


@pytest.mark.parametrize("generation", GENERATIONS)
def test_household_notes_are_true_along_the_experts_path(generation):
    world, format = HOMES["small", generation], CompactHousehold()
    treated = 0
    for task in world.tasks("public")[:40]:
        episode, turn = world.start(task.id)
        notes, told = format.start(episode.goal, turn), set[str]()
        for command in world.demonstrate(task.id, search=True):
            turn = episode.step(command)
            format.observe(notes, command, turn)
            look_into(episode.game, command, told)
            check_notes(episode.game, notes, told)
        treated += bool(notes.states)
    assert treated > 3


def after(*observations: str, goal: str = "put a hot mug in shelf") -> Any:
    format = CompactHousehold()
    room = "You are in a room. Looking around you, you see a shelf 1, a drawer 1, and a sink 1."
    notes = format.start(goal, Turn(f"{room}\n\nYour task is to: {goal}.", 0.0, False, (), {}))
    for text in observations:
        format.observe(notes, "do", Turn(text, 0.0, False, (), {}))
    return format.prompt(notes)


def test_a_state_stays_with_the_thing_that_has_it():
    heated = "You pick up the mug 1 from the shelf 1.", "You heat the mug 1 using the sink 1."
    put = "You move the mug 1 to the shelf 1."
    assert "hold hot mug 1 ;" in after(*heated)
    assert "know hot mug 1 at shelf 1 ; hold nothing" in after(*heated, put)
    assert "know ; hold hot mug 1 ;" in " ".join(after(*heated, put, heated[0]).split())
    other = "You pick up the mug 2 from the shelf 1."
    assert "know hot mug 1 at shelf 1 ; hold mug 2" in after(*heated, put, other)
    cleaned, cooled = (
        "You clean the mug 1 using the sink 1.",
        "You cool the mug 1 using the sink 1.",
    )
    assert "hold hot clean mug 1" in after(*heated, cleaned)
    assert "hold clean cool mug 1" in after(*heated, cleaned, cooled)
    assert "hold cool clean mug 1" in after(*heated, "This is a cold and clean mug 1.")
    assert "hold mug 1" in after(*heated, "There's nothing special about mug 1.")


def test_a_closed_receptacle_is_new_until_it_was_looked_into():
    shut = "You arrive at loc 12. The drawer 1 is closed."
    assert "new shelf 1 drawer 1 sink 1 ;" in after(shut)
    assert after(shut).endswith("; drawer 1 is closed >")
    opened = "You open the drawer 1. The drawer 1 is open. In it, you see a mug 3."
    assert "new shelf 1 sink 1 ; know mug 3 at drawer 1" in after(shut, opened)
    assert "new shelf 1 sink 1 ;" in after(shut, opened, "You close the drawer 1.")


def test_what_is_no_longer_listed_is_no_longer_known():
    seen = "On the shelf 1, you see a mug 1, and a mug 2."
    assert "know mug 1 at shelf 1 mug 2 at shelf 1 ;" in after(seen)
    assert "know mug 2 at shelf 1 ;" in after(seen, "On the shelf 1, you see a mug 2.")


def test_many_things_of_one_name_do_not_crowd_out_another():
    pens = ", ".join(f"a pen {n}" for n in range(1, 9))
    prompt = after(
        "On the shelf 1, you see a desklamp 1.", f"On the sink 1, you see {pens}.",
        goal="look at pen under the desklamp",
    )  # fmt: skip
    assert "desklamp 1 at shelf 1" in prompt
    assert prompt.count(" at sink 1") == REMEMBERED


@pytest.mark.slow
@pytest.mark.realdata
@pytest.mark.parametrize("generation", GENERATIONS)
def test_household_notes_are_true_in_genuine_games(generation):
    world = Household(Home(source=str(data("alfworld")), generation=generation))
    format = CompactHousehold()
    for number, task in enumerate(world.tasks("unseen")[::3]):
        told: set[str] = set()
        for episode, notes, command, _ in wander(world, format, task.id, number, 60):
            look_into(episode.game, command, told)
            check_notes(episode.game, notes, told, odd=True)


# The shop


def demonstrations(shop: WebShop, tasks: list[str]) -> Iterator[tuple[Any, Any, str]]:
    """(notes, turn before it, command) of every step; the answer's command is what is played."""
    format = CompactWebShop()
    for task in tasks:
        episode, turn = shop.start(task)
        notes = format.start(episode.goal, turn)
        for command in shop.demonstrate(task):
            yield notes, turn, command
            played, _ = format.parse(notes, format.render(notes, command))
            turn = episode.step(played)
            format.observe(notes, played, turn)
        assert turn.info["won"], task


def check_inverse(shop: WebShop, tasks: list[str]) -> None:
    format = CompactWebShop()
    for notes, _, command in demonstrations(shop, tasks):
        said = format.render(notes, command)
        read, valid = format.parse(notes, said)
        assert valid
        assert format.render(notes, read) == said
        if command.startswith("click["):
            assert read == command
            shown = f" {format.prompt(notes)} ".replace(" ; ", " , ")
            assert not said.startswith("option ") or f" {said[7:]} " in shown
        else:  # case and punctuation are all that a search loses
            assert words(read) == words(command.lower())


@pytest.mark.slow
def test_shop_answers_are_the_inverse_of_commands_along_demonstrations():
    check_inverse(SHOP, GOALS[:300])


@pytest.mark.slow
@pytest.mark.realdata
def test_shop_answers_are_the_inverse_of_commands_in_the_genuine_shop():
    shop = WebShop(ShopSettings(source=str(data("webshop"))))
    check_inverse(shop, [task.id for task in shop.tasks("train")][:300:3])


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(GOALS), st.integers(0, 999), st.integers(0, 15), st.booleans()
)  # fmt: skip
def test_shop_prompts_on_random_walks(task, seed, steps, rich):
    mode = "text_rich" if rich else "text"
    shop = WebShop(ShopSettings(products=300, validation=50, observation=mode))
    format = CompactWebShop()
    for episode, notes, _, turn in wander(shop, format, task, seed, steps):
        prompt, goal = format.prompt(notes), words(episode.goal).removeprefix("find me ")
        assert prompt.startswith(f"task {goal.partition(' and price lower')[0]}")
        assert notes.page.kind == episode.page.kind
        assert prompt.count("item ") <= SHOWN_ITEMS
        assert sorted(notes.chosen.values()) == sorted(map(words, episode.options.values()))
        for command in turn.admissible:
            if command.startswith("click["):
                assert format.parse(notes, format.render(notes, command)) == (command, True)


def test_shop_prompts_are_the_same_in_both_ways_to_show_a_page():
    rich = WebShop(ShopSettings(products=300, validation=50, observation="text_rich"))
    for task in GOALS[:30]:
        one, two = (
            [
                CompactWebShop().prompt(notes)
                for _, notes, _, _ in wander(shop, CompactWebShop(), task, seed=3, steps=10)
            ]
            for shop in (SHOP, rich)
        )
        assert one == two


def small_shop() -> WebShop:
    odd = {
        "size": ("7.5", "75", "7 5", "7-5"),
        "color": ("sea/green", "sea green", "sea green 2", "★"),
    }
    goods = [with_options(TABLE, odd), LAMP, CUP]
    return WebShop(ShopSettings(validation=0), store=Store(goods))


def test_values_that_read_alike_are_told_apart():
    format, shop = CompactWebShop(), small_shop()
    episode, turn = shop.start(shop.tasks("train")[0].id)
    notes = format.start(episode.goal, turn)
    for command in ("search[oak table]", "click[t000000001]"):
        turn = episode.step(command)
        format.observe(notes, command, turn)
    clicks = [command for command in turn.admissible if command.startswith("click[")]
    assert len(clicks) == 6 + 8
    said = [format.render(notes, command) for command in clicks]
    assert len(set(said)) == len(clicks)
    for command, answer in zip(clicks, said):
        assert format.parse(notes, answer) == (command, True)
        assert format.parse(notes, f"  {answer.upper()} ") == (command, True)
    assert "sea green , sea green #2" in format.prompt(notes)


def test_a_long_list_of_values_shows_what_the_task_names():
    format, colors = CompactWebShop(), tuple(f"shade {letter}" for letter in "abcdefghijklmnop")
    goods = [with_options(TABLE, {"color": colors}), LAMP, CUP]
    shop = WebShop(ShopSettings(validation=0), store=Store(goods))
    task = next(t.id for t in shop.tasks("train") if shop.goal(t.id).values == ("shade p",))
    episode, turn = shop.start(task)
    notes = format.start(episode.goal, turn)
    for command in ("search[oak table]", "click[t000000001]"):
        format.observe(notes, command, episode.step(command))
    shown = format.prompt(notes).partition("color : ")[2].partition(" ;")[0].split(" , ")
    assert shown == [*colors[: SHOWN_VALUES - 1], "shade p"]
    assert format.parse(notes, "option shade m") == ("click[shade m]", True)


def test_what_does_not_fit_the_page_is_no_command():
    format, shop = CompactWebShop(), small_shop()
    episode, turn = shop.start(shop.tasks("train")[0].id)
    notes = format.start(episode.goal, turn)
    assert format.parse(notes, "search Oak table, 1.5 m!") == ("search[oak table 1.5 m]", True)
    for answer in ("buy", "next", "item 1", "option red", "search", "", "dance", "buy now"):
        assert format.parse(notes, answer) == ("", False)
    format.observe(notes, "search[oak table]", episode.step("search[oak table]"))
    assert format.parse(notes, "item 1") == ("click[t000000001]", True)
    for answer in ("item 0", "item 99", "item", "item one", "item ²", "buy"):
        assert format.parse(notes, answer) == ("", False)
    assert format.parse(notes, "next") == ("click[next >]", True)
    assert format.parse(notes, "back") == ("click[back to search]", True)


FAILURES = [
    ("Buy", "buy"),
    ("", "nothing"),
    ("one, two; three > four five six seven eight nine", "one two three four five six seven eight"),
    ("search oak table", None),
    ("search oak table", "search oak table"),  # the same again
    ("item 9", "item 9"),
    ("item 1", None),
    ("item 1", "item 1"),  # no longer on such a page
    ("option sea green #2", None),
    ("option sea green #2", "option sea green #2"),  # chosen already
    ("description", None),
    ("prev", None),
]
"""Answers in a shop, and which of them the next prompt says did nothing."""


def test_the_shop_says_which_answer_did_nothing():
    pytest.importorskip("torch", reason="rollouts need the extra llm")
    import torch

    from fedrl.llm.generation.sampler import Completions
    from fedrl.llm.rollout import AgentLoop, collect_rollout

    class Said(Letters):
        """An agent, and its tokenizer, that says these things in turn."""

        version, lines = 0, iter([*(answer for answer, _ in FAILURES), "back"])

        def generate(self, prompts, limit, temperature, generator) -> Completions:
            row = [ord(letter) for letter in next(self.lines)]
            return Completions([row], [[0.0] * len(row)])

        def batch_decode(self, rows, skip_special_tokens) -> list[str]:
            return [self.decode(row) for row in rows]

    shop, agent = small_shop(), Said()
    loop = AgentLoop(shop, CompactWebShop(), agent, 99, max_steps=len(FAILURES) + 1)
    task = shop.tasks("train")[0].id
    played = collect_rollout(loop, agent, [task], 1.0, torch.Generator(), transcripts=True)
    prompts = [prompt for prompt, _, _ in played.transcripts[0]]
    assert "did nothing" not in prompts[0]
    for prompt, (answer, failed) in zip(prompts[1:], FAILURES, strict=True):
        assert ("did nothing" in prompt) == (failed is not None), answer
        assert failed is None or f"; {failed} did nothing ;" in prompt


def test_the_household_says_that_an_empty_answer_did_nothing():
    home, format = HOMES["tiny", "2.1.2"], CompactHousehold()
    episode, turn = home.start("train/00000")
    notes = format.start(episode.goal, turn)
    assert format.prompt(notes).endswith("; did  ;  >")
    for answer in ("", "  ", "fly away"):
        command, _ = format.parse(notes, answer)
        format.observe(notes, command, episode.step(command))
        assert format.prompt(notes).endswith(f"; did {command} ; nothing happens >")


def test_prices_compare_as_the_exact_ones_do():
    """Rounded up to tens against limits that are tens: nobody buys what is too dear."""
    for notes, turn, _ in demonstrations(SHOP, GOALS[:60]):
        if notes.page.kind != "results" or " price " not in notes.task:
            continue
        limit = int(notes.task.split()[-1])
        tags = [piece for piece in turn.observation.split(" [SEP] ") if piece.startswith("$")]
        exact = [float(tag.split("$")[-1]) <= limit for tag in tags]
        shown = [int(item.price.split()[1]) <= limit for item in notes.page.items]
        assert shown == exact


def test_gist_keeps_the_tasks_words_in_their_order():
    wanted = frozenset({"cotton", "shirt"})
    title = "brandname fine #771 long shirts with soft warm thick light plain pure cotton"
    assert gist(title, wanted, TITLE_WORDS) == "fine long shirts soft warm thick light cotton"
    assert gist("cotton shirts for all", wanted, TITLE_WORDS) == "cotton shirts all"
    assert gist(title, wanted, 1) == "shirts"


# Chat


SITUATION = Turn("You see a door.", 0.0, False, ("open door", "Say <words> aloud", "wait"), {})


@pytest.mark.parametrize("thinking", [True, False])
def test_chat_reads_what_stands_between_the_tags(thinking):
    format = Chat(thinking)
    notes = format.start("leave the room", SITUATION)
    before = "<think>A door!</think>" if thinking else ""
    for inside, command in {
        "open door": "open door",
        "\n  Open   DOOR ": "open door",
        "say  Hello There  aloud": "Say Hello There aloud",
        "fly away": "fly away",
    }.items():
        assert format.parse(notes, f"{before} <action>{inside}</action>") == (command, True)
        assert format.parse(notes, f"Well. {before}\n<ACTION>{inside}</Action> ") == (
            command,
            True,
        )
    twice = 2 * "<action>wait</action>"
    for bad in ("wait", "<action>wait", "wait</action>", "<action> </action>", "", twice):
        assert format.parse(notes, before + bad) == ("", False)


def test_chat_wants_the_reasoning_where_it_asked_for_it():
    chosen = "<action>wait</action>"
    notes = Chat().start("leave the room", SITUATION)
    for bare in (chosen, f"{chosen}<think></think>", f"</think>{chosen}", f"Hm.</THINK> {chosen}"):
        assert Chat().parse(notes, bare) == ("wait", False)  # played, and flagged
    thoughts = (f"<think>{chosen}", f"<think>{chosen}</think>", f"<think>a</think><think>{chosen}")
    for bad in (*thoughts, 2 * chosen, "<action> </action>", "wait", "<action>wait"):
        assert Chat().parse(notes, bad) == ("", False)
    assert Chat().parse(notes, f"<think>{chosen}?</think>{chosen}") == ("wait", True)
    assert "<think>" in Chat().prompt(notes)
    assert "<think>" not in Chat(thinking=False).prompt(notes)


@settings(max_examples=30, deadline=None)
@given(st.booleans(), st.booleans(), st.integers(0, 200), st.integers(0, 99), st.integers(0, 12))
def test_chat_prompts_on_random_walks(shop, thinking, number, seed, steps):
    world: TextWorld = SHOP if shop else HOMES["tiny", "2.1.2"]
    task = GOALS[number] if shop else f"train/{number:05d}"
    format, done = Chat(thinking), list[str]()
    for episode, notes, command, turn in wander(world, format, task, seed, steps):
        prompt = format.prompt(notes)
        assert format.prompt(notes) == prompt
        assert f"Your task: {episode.goal}\n" in prompt
        done.append(command)
        past = done[1:][-2:]  # nothing was done before the first turn
        assert prompt.count("you saw:") == len(past)
        for command in past:
            assert f"the command: {command or '(none'}" in prompt
        for offered in turn.admissible:
            assert f"\n- {offered}\n" in prompt
            if "<words>" not in offered:
                assert format.parse(notes, format.render(notes, offered)) == (offered, True)


def test_chat_tells_a_shops_instruction_once():
    episode, turn = SHOP.start(GOALS[0])
    notes = Chat().start(episode.goal, turn)
    Chat().observe(notes, "search[red]", episode.step("search[red]"))
    assert Chat().prompt(notes).count(episode.goal) == 1


@pytest.mark.parametrize("tokenizer", [Letters(), Talkative()], ids=["plain", "template"])
def test_chat_fits_every_limit_and_cuts_in_order(tokenizer):
    format = Chat()
    notes = format.start("leave the room", SITUATION)
    offered = ("go on", "go back", "stay", "sit", "run")
    for n in (1, 2, 3):
        turn = Turn(f"Room {n} " + "x" * 30, 0.0, False, offered, {})
        format.observe(notes, f"step {n}", turn)
    full = tokenizer.decode(format.encode(tokenizer, [notes], 10_000)[0])
    assert "Room 1" in full
    assert ("[user]" in full) == isinstance(tokenizer, Talkative)
    seen = set()
    for limit in range(len(full) + 2):
        (row,) = format.encode(tokenizer, [notes], limit)
        text = tokenizer.decode(row)
        assert len(row) <= limit
        assert text == full or limit < len(full)
        turns, commands = text.count("you saw:"), text.count("\n- ")
        observed, whole = "x" * 30 in text, "world of text" in text
        seen.add((turns, commands, observed, whole))
        if whole and (commands < 5 or not observed):
            assert CUT.strip() in text
        if not whole:
            assert text[-20:] == full[-20:][max(20 - limit, 0) :]
    told = {stage for stage in seen if stage[3]}
    history = {(turns, 5, True, True) for turns in (2, 1, 0)}
    shorter = {(0, commands, True, True) for commands in range(KEPT_COMMANDS, 5)}
    assert told == history | shorter | {(0, KEPT_COMMANDS, False, True)}


# Nothing that a world or a model says breaks a format

PIECES = """\
You pick up the|mug 1|from the|You move the|to the|On the|The|shelf 1|, you see|is open. In it|.|
You heat the|using the|This is a|hot| [SEP] |Instruction:|Price: |$|$1|Page 1 (|Next >|< Prev|
Buy Now|[button]|[button_]|b01|<think>|</think>|<action>|</action>|item|option|search|
price lower than|price lower than 7 dollars|<|>|[|]|click[|²|٣|1.5|#"""
TEXT = st.one_of(
    st.text(max_size=40),
    st.lists(st.sampled_from([*PIECES.split("|"), "9" * 400]), max_size=12).map(" ".join),
)
COMMANDS = st.lists(
    st.one_of(
        TEXT,
        TEXT.map(lambda text: f"click[{text}]"),
        st.sampled_from(["click[buy now]", "click[next >]", "click[< prev]", "click[b01]"]),
    ),
    max_size=6,
)
TURNS = st.builds(Turn, TEXT, st.just(0.0), st.booleans(), COMMANDS, st.just({"won": False}))


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(TEXT, TURNS, st.lists(st.tuples(TEXT, TURNS, TEXT), max_size=5), st.integers(0, 400))
def test_nothing_odd_breaks_a_format(goal, first, turns, limit):
    for format in formats():
        notes, again = format.start(goal, first), format.start(goal, first)
        for command, turn, answer in turns:
            for each in (notes, again):
                format.observe(each, command, turn)
            assert format.prompt(notes) == format.prompt(again)
            assert all(len(row) <= limit for row in format.encode(Letters(), [notes], limit))
            read, valid = format.parse(notes, answer)
            assert read or not valid  # without a command no answer is well formed
            assert valid or not read or isinstance(format, Chat)
            assert isinstance(format.render(notes, command), str)


# With the built-in vocabulary


def test_answers_survive_the_built_in_vocabulary():
    pytest.importorskip("transformers", reason="the built-in tokenizer needs transformers")
    from fedrl.llm.builtin_tokenizers import entity_tokenizer

    home, house, shop = HOMES["tiny", "2.1.1"], CompactHousehold(), CompactWebShop()
    prompts, answers = list[str](), list[str]()
    for task in home.tasks("public")[:30]:
        episode, turn = home.start(task.id)
        notes = house.start(episode.goal, turn)
        for command in home.demonstrate(task.id, search=True):
            prompts.append(house.prompt(notes))
            answers.append(house.render(notes, command))
            house.observe(notes, command, episode.step(command))
    for notes, _, command in demonstrations(SHOP, GOALS[:60]):
        prompts.append(shop.prompt(notes))
        answers.append(shop.render(notes, command))
    tokenizer = entity_tokenizer([*prompts, *answers])
    said = tokenizer.batch_decode(tokenize(tokenizer, answers, 64), skip_special_tokens=True)
    assert said == answers
    rows = tokenize(tokenizer, prompts, 512)
    assert not any(tokenizer.unk_token_id in row for row in rows)
    assert max(map(len, rows)) < 200


@pytest.mark.parametrize("thinking", [True, False])
def test_chat_names_a_command_of_the_shop_that_did_nothing(thinking):
    format = Chat(thinking)
    episode, turn = SHOP.start(GOALS[0])
    notes = format.start(episode.goal, turn)

    def told(command: str) -> str:
        turn = episode.step(command)
        format.observe(notes, command, turn)
        return format.prompt(notes)

    (found, *_) = SHOP.demonstrate(GOALS[0])
    assert "did nothing" not in told(found)
    assert "Your last command, click[no such thing], did nothing." in told("click[no such thing]")
    assert "held no command that could be read" in told("").rpartition("Now you see")[2]
    assert f"Your last command, {found}, did nothing." in told(found)  # the same page again
    assert "did nothing" not in told("click[back to search]").rpartition("Now you see")[2]


def test_an_option_that_was_chosen_did_something_though_the_page_looks_the_same():
    goal = next(id for id in GOALS if len(SHOP.goal(id).values) >= 1)
    episode, _ = SHOP.start(goal)
    before = ""
    for command in SHOP.demonstrate(goal)[:-1]:
        turn = episode.step(command)
        assert "failed" not in turn.info
        same, before = turn.observation == before, turn.observation
    assert same
    assert episode.step(command).info["failed"] is True  # it is chosen already
