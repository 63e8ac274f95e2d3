"""What prompts share is read once, and every token is where it belongs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrl.llm.generation.prompt_tree import prompt_tree

pytestmark = pytest.mark.slow

PROMPTS = st.lists(
    st.lists(st.integers(0, 2), min_size=1, max_size=8).map(tuple), min_size=1, max_size=12
)


@given(PROMPTS)
def test_a_token_is_computed_once_for_all_who_have_the_same_before_it(prompts):
    different = sorted(set(prompts))
    tree = prompt_tree(different)
    nodes = {prompt[: i + 1] for prompt in different for i in range(len(prompt))}
    assert len(tree.ids) == sum(tree.asked) == len(nodes)
    at, seen = 0, {}
    for u, prompt in enumerate(different):
        assert tree.read[u] == len(prompt)
        assert tree.asked[u] >= 1
        for i in range(len(prompt)):
            number = int(tree.where[at + i])
            assert seen.setdefault(prompt[: i + 1], number) == number
            assert tree.ids[number] == prompt[i]
            assert tree.positions[number] == i
        at += len(prompt)
        assert tree.last[u] == tree.where[at - 1]
    assert at == len(tree.where)
    assert len(set(seen.values())) == len(nodes)


@given(PROMPTS)
def test_fresh_tokens_lie_prompt_behind_prompt(prompts):
    """As attention over packed sequences wants them: the last ones of each."""
    different = sorted(set(prompts))
    tree, start, at = prompt_tree(different), 0, 0
    for asked, read in zip(tree.asked, tree.read, strict=True):
        assert tree.where[at + read - asked : at + read].tolist() == list(
            range(start, start + asked)
        )
        start, at = start + asked, at + read
