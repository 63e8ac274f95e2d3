"""Random and garbled commands by the hundred thousand: no exception, no broken state.

`python tests/test_fuzz.py 1000000` plays a million in each world and prints the pace.
"""

from __future__ import annotations

import random
import sys
import time

import pytest

from fedrl.envs.household.expert import Expert
from fedrl.envs.household.game import NOTHING
from fedrl.envs.household.world import Household, HouseholdEpisode
from fedrl.envs.household.world import Settings as HouseholdSettings
from fedrl.envs.webshop.shop import Settings as ShopSettings
from fedrl.envs.webshop.shop import ShopEpisode, WebShop

JUNK = [
    "", " ", "\n", "\x00", "[", "]", "[]", "click[", "click[]", "search[]", "search[\n]", "[[[]]]",
    "click[buy now]]", "search[" + "long " * 300 + "]", "CLICK[BUY NOW]", "click[search]", "🛒",
    "go to", "go to fridge", "take  from ", "move x to y", "search[<q> ]", "search[<r>]",
    "search[<c> fashion]", "search[<script>alert(1)</script>]", "click[../../etc]", "\u202e",
    "%s%n",
]  # fmt: skip


def garble(rng: random.Random, command: str) -> str:
    """A command with one character cut out, doubled, swapped or replaced."""
    if not command:
        return command
    i = rng.randrange(len(command))
    return rng.choice(
        [
            command[:i] + command[i + 1 :],
            command[:i] + command[i] * 2 + command[i + 1 :],
            command[:i] + chr(rng.randrange(32, 0x2FFF)) + command[i:],
            command.upper(),
            f"  {command}\t",
            command[::-1],
            command * 2,
        ]
    )


def choose(rng: random.Random, admissible: list[str], words: list[str]) -> str:
    dice = rng.random()
    if dice < 0.6 and admissible:
        command = rng.choice(admissible)
        return command.replace("<words>", " ".join(rng.choices(words, k=rng.randrange(1, 6))))
    if dice < 0.8 and admissible:
        return garble(rng, rng.choice(admissible))
    return rng.choice(JUNK)


def house_is_whole(episode: HouseholdEpisode) -> None:
    game = episode.game
    layout = game.layout
    homes: dict[int, int] = {}
    for content in game.contents:
        assert content == sorted(set(content))
        for o in content:
            homes[o] = homes.get(o, 0) + 1
    if game.holding >= 0:
        homes[game.holding] = homes.get(game.holding, 0) + 1
    # Generated games list every object once, so nothing may ever be in two places or vanish.
    assert all(count == 1 for count in homes.values())
    assert len(homes) == sum(len(content) for content in layout.contents)
    assert not any({"isHot", "isCool"} <= states for states in game.states.values())
    assert 0 <= game.place < len(layout.place_names)


def visit_is_whole(visit: ShopEpisode) -> None:
    assert visit.number >= 1
    assert visit.page.kind in ("start", "results", "item", "sub", "done")
    product = visit.shop.store.by_asin.get(visit.asin)
    for name, value in visit.options.items():
        assert product is not None
        assert value in product.options[name]


def fuzz_household(count: int, seed: int = 0) -> int:
    rng = random.Random(seed)
    world = Household(HouseholdSettings(size="medium", train=200))
    tasks = [task.id for task in world.tasks("train")]
    done = won = 0
    while done < count:
        episode, turn = world.start(rng.choice(tasks))
        for _ in range(200):
            before = turn.admissible
            command = choose(rng, list(before), ["x"])
            if rng.random() < 0.2:  # so that games also come to their end
                command = Expert(episode.game).advise()
            turn = episode.step(command)
            done += 1
            house_is_whole(episode)
            if command.strip() not in before:
                assert turn.observation == NOTHING
                assert turn.admissible == before
            assert turn.reward in (0.0, 1.0)
            if turn.done:
                won += 1
                break
    return won


def fuzz_webshop(count: int, seed: int = 0) -> int:
    rng = random.Random(seed)
    world = WebShop(ShopSettings(products=300))
    tasks = [task.id for task in world.tasks("train")]
    words = " ".join(product.title for product in world.store.products[:50]).split()
    done = bought = 0
    while done < count:
        visit, turn = world.start(rng.choice(tasks))
        for _ in range(100):
            turn = visit.step(choose(rng, list(turn.admissible), words))
            done += 1
            visit_is_whole(visit)
            assert 0.0 <= turn.reward <= 1.0
            if turn.done:
                bought += 1
                assert visit.step("click[buy now]").reward == 0.0  # it is not paid twice
                break
    return bought


@pytest.mark.slow
@pytest.mark.parametrize("fuzz", [fuzz_household, fuzz_webshop])
def test_a_hundred_thousand_commands_break_nothing(fuzz):
    assert fuzz(100_000) > 0


if __name__ == "__main__":
    for fuzz in (fuzz_household, fuzz_webshop):
        start = time.perf_counter()
        ended = fuzz(int(sys.argv[1]))
        took = time.perf_counter() - start
        print(f"{fuzz.__name__}: {int(sys.argv[1]):,} commands, {ended:,} ended, {took:.0f} s")
