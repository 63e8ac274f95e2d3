"""GRPO, RLOO and GiGPO: by hand, by brute force, and what must not change them."""

from __future__ import annotations

import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason='needs PyTorch: pip install "fedrl[llm]"')
pytest.importorskip("transformers", reason='needs transformers: pip install "fedrl[llm]"')

from support.tiny_model import rollout

from fedrl.envs.text import Turn
from fedrl.llm.generation.sampler import Completions
from fedrl.llm.rl.advantages import (
    ESTIMATORS,
    gigpo,
    grpo,
    negate_rewards,
    returns_to_go,
    rloo,
    set_penalties,
    set_success_rewards,
    subtract_penalties,
    zero_advantage_share,
)
from fedrl.llm.rollout import AgentLoop, Rollout, collect_rollout

Steps = list[tuple[str, float]]


def per_episode(played: Rollout, advantages: np.ndarray) -> list[float]:
    """One number per episode; fails where the steps of one differ."""
    found: dict[int, float] = {}
    for sample, advantage in zip(played.samples, advantages, strict=True):
        assert found.setdefault(sample.episode, advantage) == advantage
    return [found[e] for e in range(len(played.groups))]


@st.composite
def games(draw: st.DrawFn) -> tuple[list[Steps], list[int]]:
    """Episodes of few situations and few rewards, so that equals and ties are common."""
    step = st.tuples(st.sampled_from("abc"), st.sampled_from([0.0, 1.0, -0.5]))
    episodes = draw(st.lists(st.lists(step, min_size=1, max_size=4), min_size=1, max_size=7))
    groups = draw(st.lists(st.integers(0, 2), min_size=len(episodes), max_size=len(episodes)))
    return episodes, groups


def by_hand(values: list[float], scale: bool) -> list[float]:
    """Centred, and divided by the sample deviation; nothing to compare gives 0."""
    if len(values) < 2 or max(values) - min(values) < 1e-9:
        return [0.0] * len(values)
    mean, deviation = statistics.mean(values), statistics.stdev(values)
    return [(v - mean) / (deviation if scale else 1.0) for v in values]


def test_grpo_by_hand():
    # Returns 1, 0, 0, 1 and 2, 5: deviations sqrt(1/3) and 3/sqrt(2); lengths must not matter.
    episodes: list[Steps] = [
        [("a", 0.0), ("b", 0.0), ("c", 1.0)], [("a", 0.0)], [("a", 0.0), ("b", 0.0)], [("a", 1.0)],
        [("a", 2.0)], [("a", 2.0), ("b", 3.0)],
    ]  # fmt: skip
    played = rollout(episodes, [0, 0, 0, 0, 1, 1])
    half, apart = 0.5 * 3**0.5, 0.5 * 2**0.5
    expected = [half, -half, -half, half, -apart, apart]
    assert per_episode(played, grpo(played)) == pytest.approx(expected)
    assert per_episode(played, grpo(played, scale=False)) == pytest.approx(
        [0.5, -0.5, -0.5, 0.5, -1.5, 1.5]
    )


def test_rloo_by_hand():
    played = rollout([[("a", 1.0)], [("a", 0.0), ("b", 0.0)], [("a", 5.0)], [("a", 7.0)]], [0] * 4)
    assert per_episode(played, rloo(played)) == pytest.approx([-3.0, -13 / 3, 7 / 3, 5.0])


def test_gigpo_by_hand():
    """Two episodes meet in situation "b"; "a" is met once in each group, "c" once at all."""
    episodes: list[Steps] = [[("b", 0.0), ("c", 1.0)], [("a", 0.0), ("b", 0.0)]]
    played = rollout(episodes, [0, 0])
    gamma, apart = 0.5, 0.5 * 2**0.5
    # "b": returns-to-go ½ and 0, so ±¼ centred and ±1/√2 divided; the others add nothing.
    found = {
        (s.episode, s.situation): a
        for s, a in zip(played.samples, gigpo(played, gamma), strict=True)
    }
    assert found == pytest.approx(
        {(0, "b"): 2 * apart, (0, "c"): apart, (1, "a"): -apart, (1, "b"): -2 * apart}
    )
    plain = gigpo(played, gamma, weight=2.0, scale=False)
    found = {(s.episode, s.situation): a for s, a in zip(played.samples, plain, strict=True)}
    assert found == pytest.approx({(0, "b"): 1.0, (0, "c"): 0.5, (1, "a"): -0.5, (1, "b"): -1.0})


def test_returns_to_go_come_from_the_steps_rewards():
    played = rollout([[("a", 1.0), ("b", -2.0), ("c", 4.0)]], [0])
    assert returns_to_go(played, 0.5).tolist() == [1.0, 0.0, 4.0]


@given(games(), st.floats(0, 1), st.floats(0, 1), st.floats(0, 3))
def test_discounts_and_weight_against_enumeration(
    game: tuple[list[Steps], list[int]], gamma: float, step_gamma: float, weight: float
):
    """γ of episodes, γ of steps and ω, each by the sum that defines it."""
    played, (episodes, groups) = rollout(*game), game

    def later(e: int, step: int, by: float) -> float:
        return sum(by**h * reward for h, (_, reward) in enumerate(episodes[e][step:]))

    for i, s in enumerate(played.samples):
        mates = [e for e in range(len(groups)) if groups[e] == groups[s.episode]]
        here = mates.index(s.episode)
        returns = [later(e, 0, gamma) for e in mates]
        rest = [r for e, r in zip(mates, returns, strict=True) if e != s.episode]
        alone = returns[here] - sum(rest) / len(rest) if rest else 0.0
        alike = [
            (t.episode, t.step) for t in played.samples
            if t.situation == s.situation and t.episode in mates
        ]  # fmt: skip
        to_go = [later(e, step, step_gamma) for e, step in alike]
        compared = centred(to_go)[alike.index((s.episode, s.step))]
        found = gigpo(played, step_gamma, weight, scale=False, episode_gamma=gamma)[i]
        assert grpo(played, False, gamma)[i] == pytest.approx(centred(returns)[here], abs=1e-5)
        assert rloo(played, gamma)[i] == pytest.approx(alone, abs=1e-5)
        expected = centred(returns)[here] + weight * compared
        assert found == pytest.approx(expected, abs=3e-5)  # deviations of rounding are 0


def centred(values: list[float]) -> list[float]:
    return [value - statistics.fmean(values) for value in values]


def test_a_discount_prefers_the_shorter_of_two_wins():
    played = rollout([[("a", 0.0), ("b", 0.0), ("c", 1.0)], [("a", 1.0)]], [0, 0])
    assert grpo(played).tolist() == [0.0] * 4
    apart = 0.5**0.5  # ¼ and 1, of which any two numbers make ±1/√2
    assert per_episode(played, grpo(played, gamma=0.5)) == pytest.approx([-apart, apart])
    assert per_episode(played, rloo(played, gamma=0.5)) == pytest.approx([-0.75, 0.75])


@given(games(), st.sampled_from([0.95, 1.0, 0.5]), st.booleans())
def test_all_against_brute_force(game: tuple[list[Steps], list[int]], gamma: float, scale: bool):
    played = rollout(*game)
    groups, returns = played.groups, played.returns

    def mates(e: int) -> list[int]:
        return [o for o in range(len(groups)) if groups[o] == groups[e]]

    for i, s in enumerate(played.samples):
        others = mates(s.episode)
        episode = by_hand([returns[o] for o in others], scale)[others.index(s.episode)]
        rest = [returns[o] for o in others if o != s.episode]
        alone = returns[s.episode] - sum(rest) / len(rest) if rest else 0.0
        alike = [
            j for j, t in enumerate(played.samples)
            if t.situation == s.situation and t.episode in others
        ]  # fmt: skip
        togo = []
        for j in alike:
            t = played.samples[j]
            later = game[0][t.episode][t.step :]
            togo.append(sum(gamma**h * reward for h, (_, reward) in enumerate(later)))
        step = by_hand(togo, scale)[alike.index(i)]
        assert grpo(played, scale)[i] == pytest.approx(episode, abs=1e-9)
        assert rloo(played)[i] == pytest.approx(alone, abs=1e-9)
        assert gigpo(played, gamma, scale=scale)[i] == pytest.approx(episode + step, abs=1e-9)


@pytest.mark.parametrize("name", ESTIMATORS)
@given(game=games(), shift=st.floats(-50, 50), by=st.floats(0.1, 50))
def test_shift_and_scale(name: str, game: tuple[list[Steps], list[int]], shift: float, by: float):
    """A constant on every return changes nothing; a factor only where nothing divides it out."""
    episodes, groups = game
    one_step = [steps[:1] for steps in episodes]  # so that a constant per return is one per reward
    base = ESTIMATORS[name](rollout(one_step, groups))
    moved = [[(where, reward + shift) for where, reward in steps] for steps in one_step]
    np.testing.assert_allclose(ESTIMATORS[name](rollout(moved, groups)), base, atol=1e-8)
    scaled = rollout([[(where, by * r) for where, r in steps] for steps in episodes], groups)
    expected = ESTIMATORS[name](rollout(episodes, groups)) * (by if name == "rloo" else 1.0)
    np.testing.assert_allclose(ESTIMATORS[name](scaled), expected, atol=1e-8)


@pytest.mark.parametrize("name", ESTIMATORS)
@given(game=games(), random=st.randoms(use_true_random=False))
def test_the_order_of_episodes_does_not_matter(
    name: str, game: tuple[list[Steps], list[int]], random
):
    episodes, groups = game
    order = list(range(len(episodes)))
    random.shuffle(order)

    def found(played: Rollout, number: list[int]) -> dict[tuple[int, int], float]:
        advantages = ESTIMATORS[name](played)
        return {
            (number[s.episode], s.step): a for s, a in zip(played.samples, advantages, strict=True)
        }

    plain = found(rollout(episodes, groups), list(range(len(order))))
    mixed = found(rollout([episodes[i] for i in order], [groups[i] for i in order]), order)
    assert mixed == pytest.approx(plain, abs=1e-9)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_nothing_to_compare_gives_exactly_zero(name: str):
    """The mean of three returns of 0.1 is not 0.1 in binary; that rest must not be scaled up."""
    alike: list[Steps] = [[("a", 0.1)], [("b", 0.1)], [("c", 0.1)], [("d", 7.0)]]
    assert ESTIMATORS[name](rollout(alike, [0, 0, 0, 1])).tolist() == [0.0] * 4


@pytest.mark.parametrize("name", ESTIMATORS)
@given(game=games())
def test_groups_do_not_see_each_other(name: str, game: tuple[list[Steps], list[int]]):
    episodes, groups = game
    together = ESTIMATORS[name](rollout(episodes, groups))
    numbers = [s.episode for s in rollout(episodes, groups).samples]
    for group in set(groups):
        own = [e for e in range(len(groups)) if groups[e] == group]
        alone = ESTIMATORS[name](rollout([episodes[e] for e in own], [0] * len(own)))
        inside = [a for a, e in zip(together, numbers, strict=True) if groups[e] == group]
        np.testing.assert_allclose(alone, inside, atol=1e-9)


# The rollout's part: rewards and flaws are kept where they happened.


class Corridor:
    """Pays 1 for every "on", ends after three commands."""

    name, splits, max_steps = "corridor", ("train",), 9

    def start(self, task: str, seed: int = 0):
        self.taken = 0
        return Walk(), Turn("start", 0.0, False, (), {"won": False})


class Walk:
    goal = "walk"
    taken = 0

    def step(self, command: str) -> Turn:
        self.taken += 1
        over = self.taken == 3
        return Turn(f"at {self.taken}", float(command == "on"), over, (), {"won": over})


class Words:
    """The answer's one token is the command: 1 is "on", 2 is "back", 3 is not well formed."""

    def start(self, goal: str, turn: Turn) -> list[str]:
        return [turn.observation]

    def observe(self, notes: list[str], command: str, turn: Turn, said: str = "") -> None:
        notes.append(turn.observation)

    def prompt(self, notes: list[str]) -> str:
        return notes[-1]

    def encode(self, tokenizer, notes: list[list[str]], limit: int) -> list[list[int]]:
        return [[0] for _ in notes]

    def parse(self, notes: list[str], completion: str) -> tuple[str, bool]:
        return {"1": ("on", True), "2": ("back", True), "3": ("", False)}[completion]


class Digits:
    def __call__(self, words: list[str], add_special_tokens: bool) -> dict[str, list[list[int]]]:
        return {"input_ids": [[0] for _ in words]}

    def batch_decode(self, rows: list[list[int]], skip_special_tokens: bool) -> list[str]:
        return [str(row[0]) for row in rows]


class Script:
    """Says the given token in every step, per episode."""

    version = 0

    def __init__(self, lines: list[list[int]]) -> None:
        self.lines = iter(zip(*lines, strict=True))

    def generate(self, prompts, limit, temperature, generator) -> Completions:
        said = next(self.lines)
        return Completions([[token] for token in said], [[0.0] for _ in said])


def test_rewards_and_flaws_stay_with_their_step():
    script = Script([[1, 3, 1], [2, 3, 3]])
    loop = AgentLoop(Corridor(), Words(), Digits(), 1, max_steps=9)
    played = collect_rollout(loop, script, ["x"], 1.0, torch.Generator(), group=2)

    def rewards() -> dict[tuple[int, int], float]:
        return {(s.episode, s.step): s.reward for s in played.samples}

    assert rewards() == {
        (0, 0): 1.0, (0, 1): 0.0, (0, 2): 1.0, (1, 0): 0.0, (1, 1): 0.0, (1, 2): 0.0
    }  # fmt: skip
    assert played.returns == [2.0, 0.0]
    before = rewards()
    set_penalties(played, 0.25)
    assert played.returns == [2.0, 0.0]  # a penalty is no reward
    assert rewards() == before
    cost = -subtract_penalties(np.zeros(6), played)
    costs = {(s.episode, s.step): c for s, c in zip(played.samples, cost, strict=True)}
    assert costs == dict.fromkeys(before, 0.0) | dict.fromkeys([(0, 1), (1, 1), (1, 2)], 0.25)
    negate_rewards(played)
    assert played.returns == [-2.0, 0.0]
    assert subtract_penalties(np.zeros(6), played).tolist() == cost.tolist()


def test_episodes_cut_off_by_the_limit_are_told_from_those_that_ended():
    loop = AgentLoop(
        Corridor(), Words(), Digits(), 1, max_steps=2
    )  # the world needs three commands to end
    played = collect_rollout(loop, Script([[1, 1]]), ["x"], 1.0, torch.Generator())
    assert played.truncated == [True]
    loop = AgentLoop(Corridor(), Words(), Digits(), 1, max_steps=3)
    played = collect_rollout(loop, Script([[1, 1, 1]]), ["x"], 1.0, torch.Generator())
    assert played.truncated == [False]


def test_groups_that_all_went_alike_are_counted():
    episodes: list[Steps] = [[("a", 1.0)], [("b", 0.0)], [("a", 1.0), ("b", 0.0)], [("a", 1.0)]]
    played = rollout(episodes, [0, 0, 1, 1])
    assert zero_advantage_share(grpo(played), played) == 0.5
    # Equal returns that came at different times: only the steps differ.
    late = rollout([[("a", 1.0)], [("a", 0.0), ("b", 1.0)]], [0, 0])
    assert zero_advantage_share(grpo(late), late) == 1
    assert zero_advantage_share(gigpo(late), late) == 0


def test_success_is_paid_once_at_the_end_of_episodes_that_were_won():
    played = rollout(
        [[("a", 0.25), ("b", 0.25)], [("a", 0.5)], [("a", 0.0), ("c", 1.0)]], [0, 0, 0]
    )
    played.won = [False, False, True]
    set_success_rewards(played)
    assert played.returns == [0.0, 0.0, 1.0]
    paid = {(s.episode, s.step): s.reward for s in played.samples}
    assert paid == {(0, 0): 0, (0, 1): 0, (1, 0): 0, (2, 0): 0, (2, 1): 1}
    assert returns_to_go(played, 0.5).tolist() == [
        0.5 if (s.episode, s.step) == (2, 0) else s.reward for s in played.samples
    ]
