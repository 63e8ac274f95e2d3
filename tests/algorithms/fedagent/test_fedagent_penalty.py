"""An ill-formed answer costs its own step: what the learner is given, with and without one."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="FedAgent needs the extra llm")
pytest.importorskip("transformers", reason="FedAgent needs the extra llm")

from support.agent_runs import recipe

from fedrl.config.build import build_algorithm
from fedrl.core.types import Job
from fedrl.envs.household.game import Game
from fedrl.llm.prompts.compact_household import CompactHousehold
from fedrl.llm.rl import policy_gradient

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("easier_game")]

PENALTY = 0.3
Steps = dict[tuple[int, int], float]


@pytest.fixture
def taught(model, monkeypatch):
    """(advantages that reach the learner by (episode, step), what was told) where these answers, by
    their number in the order of play, count as not well formed; they are played all the same."""

    def run(flawed: set[int], poisoned: bool = False, **change) -> tuple[Steps, dict[str, float]]:
        asked, seen = [], dict[tuple[int, int], float]()
        read, learn = CompactHousehold.parse, policy_gradient.update

        def parse(self, notes, answer):
            asked.append(answer)
            return read(self, notes, answer)[0], len(asked) - 1 not in flawed

        def update(model, optimizer, samples, advantages, *rest):
            given = zip(samples, advantages, strict=True)
            seen.update({(s.episode, s.step): a for s, a in given})
            return learn(model, optimizer, samples, advantages, *rest)

        with monkeypatch.context() as patch:
            patch.setattr(CompactHousehold, "parse", parse)
            patch.setattr(policy_gradient, "update", update)
            settings = {"invalid_penalty": PENALTY, "entropy": 0.01, "group": 4} | change
            algorithm = build_algorithm(recipe(model, algorithm=settings))
            job = Job(0, {"theta": algorithm.init(0)["theta"]}, None, 11)
            result = (algorithm.poisoned if poisoned else algorithm.local)(job)
        return seen, result.metrics

    return run


ESTIMATORS = [
    {"estimator": "grpo"},
    {"estimator": "rloo"},
    {"estimator": "gigpo"},
    {"estimator": "ppo", "critic_lr": 1e-2},
    {"estimator": "grpo", "by_episode": True},
    {"estimator": "grpo", "reward": "score"},
]


@pytest.mark.parametrize(("number", "step"), [(5, 0), (14, 1)], ids=["first step", "second"])
@pytest.mark.parametrize("change", ESTIMATORS, ids=lambda c: "-".join(map(str, c.values())))
def test_the_other_steps_keep_their_advantages_to_the_bit(taught, change, number, step):
    """Those before it too. All 12 episodes answer in their first step, then those that go on."""
    plain, told = taught(set(), **change)
    assert any(plain.values())
    assert told["train/invalid"] == 0
    flawed, told = taught({number}, **change)
    assert flawed.keys() == plain.keys()
    (changed,) = (key for key in plain if flawed[key] != plain[key])
    assert changed[1] == step
    assert flawed[changed] == pytest.approx(plain[changed] - PENALTY)
    assert 0 < told["train/invalid"] < 0.1


def test_where_all_fail_a_penalty_is_as_large_as_it_was_set(taught, monkeypatch):
    """Nothing else differs in such groups: a division would make any penalty a large one."""
    monkeypatch.setattr(Game, "_goal_holds", lambda game: False)
    found, told = taught({5})
    assert found[5, 0] == pytest.approx(-PENALTY)
    assert {value for key, value in found.items() if key != (5, 0)} == {0.0}
    assert told["train/zero_advantage"] == 1
    assert told["train/truncated"] == 1
    assert told["train/success"] == 0


def test_a_poisoned_client_turns_it_round_too(taught):
    plain, _ = taught(set(), poisoned=True)
    found, _ = taught({5}, poisoned=True)
    assert {key for key in plain if found[key] != plain[key]} == {(5, 0)}
    assert found[5, 0] == pytest.approx(plain[5, 0] + PENALTY)
