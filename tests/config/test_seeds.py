"""Seeds as people write them: lists, ranges, both; and what a slip is answered with."""

from __future__ import annotations

import numpy as np
import pytest

from fedrl.config.seeds import parse_seeds, seeds_in_words, split_seeds
from fedrl.core.types import UserError


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("0-9", tuple(range(10))),
        ("0,3,7", (0, 3, 7)),
        ("0-4,8", (0, 1, 2, 3, 4, 8)),
        ("5", (5,)),
        (" 2 , 0 - 1, 2", (2, 0, 1)),
        ("1–3", (1, 2, 3)),
        ([4, 4, 2], (4, 2)),
        (np.arange(3), (0, 1, 2)),
    ],
)
def test_several_seeds_in_a_few_words(said, meant):
    assert parse_seeds(said) == meant


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("", "write them like 0-9"),
        ("a", "'a'; write them like 0-9, 0,3,7 or 0-4,8"),
        ("0..9", "write them like"),
        ("1,,2", "write them like"),
        ("-1", "write them like"),
        ("9-0", "begins with its smaller number"),
        ("0-99999999", "100,000,000 seeds"),
        ([], "is empty"),
        ([True], "whole numbers from 0 on"),
        ([-1], "whole numbers from 0 on"),
        ([0.5], "whole numbers from 0 on"),
    ],
)
def test_what_is_no_seed_is_one_line(said, words):
    with pytest.raises(UserError, match=words) as caught:
        parse_seeds(said)
    assert "\n" not in str(caught.value)


def test_seeds_are_split_off_the_flags_of_every_run():
    flags = ["--rounds", "3", "--seeds=0-1", "--standardize"]
    seeds, shared = split_seeds(flags)
    assert seeds == [["--seed", "0"], ["--seed", "1"]]
    assert shared == ["--rounds=3", "--standardize"]
    alone = ["--seed", "3", "--rounds", "2"]
    assert split_seeds(alone) == ([[]], alone)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--seed 0-9", "--seed 0-9: a run has one; for several write --seeds 0-9"),
        ("--seed 0,3", "--seeds 0,3"),
        ("--seeds 0 --seed 1", "without --seed"),
        ("--seeds 0 --seeds 1", "said once"),
        ("--seeds", "write them like"),
    ],
)
def test_one_seed_and_several_are_not_mixed_up(flags, words):
    with pytest.raises(UserError, match=words):
        split_seeds(flags.split())


@pytest.mark.parametrize(
    ("seeds", "words"),
    [
        ((0,), "0"),
        ((0, 1), "0, 1"),
        ((0, 1, 2), "0-2"),
        ((0, 42, 101, 4242, *range(200, 255)), "0, 42, 101, 4242, 200-254"),
        ((3, 2, 1), "3, 2, 1"),
    ],
)
def test_many_seeds_are_told_in_ranges_that_are_read_again(seeds, words):
    assert seeds_in_words(seeds) == words
    assert parse_seeds(words) == seeds
