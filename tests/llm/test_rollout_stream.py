"""Episodes that do not wait for each other are the episodes that do."""

from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="language models need torch (fedrl[llm])")
pytest.importorskip("transformers", reason="language models need transformers")

from support.agent_runs import WORLD, make_model

from fedrl.envs.household.world import Household, Settings
from fedrl.llm.generation import cuda
from fedrl.llm.generation.cuda import CudaSampler
from fedrl.llm.generation.hf import HFSampler
from fedrl.llm.policy import load
from fedrl.llm.prompts.prompt_format import world_format
from fedrl.llm.rollout import AgentLoop, collect_rollout

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """A function from a sampler's kind and a temperature to a rollout of six tasks, twice each."""
    policy = load(str(make_model(tmp_path_factory.mktemp("models") / "tiny")), torch.device("cpu"))
    world = Household(Settings(**{k: v for k, v in WORLD.items() if k != "name"}))
    tasks = [task.id for task in world.tasks("train")][:6]
    base = AgentLoop(world, world_format("compact", world), policy.tokenizer, 6)

    def play(streams: bool, temperature: float, rows: int | None = None, some: slice | None = None):
        if streams:
            sampler = CudaSampler(policy.model, policy.end, policy.pad, seeded=True)
        else:
            sampler = HFSampler(policy.model, policy.end, policy.pad)
        generator = torch.Generator().manual_seed(3)
        loop = replace(base, rows=rows)
        some_tasks, seeds = (tasks[some], range(6)[some]) if some else (tasks, None)
        return collect_rollout(
            loop, sampler, some_tasks, temperature, generator, 2, transcripts=True, seeds=seeds
        )

    return play


def facts(rollout):
    samples = [
        (s.episode, s.step, s.prompt, s.answer, s.situation, s.reward, s.valid, s.command)
        for s in rollout.samples
    ]
    return (
        samples, rollout.groups, rollout.returns, rollout.won, rollout.invalid, rollout.lengths,
        rollout.transcripts, rollout.truncated, rollout.scored,
    )  # fmt: skip


@pytest.mark.parametrize("rows", [None, 5, 1])
def test_greedy_episodes_are_those_of_the_plain_sampler(played, rows):
    plain, streamed = played(False, 0.0), played(True, 0.0, rows)
    assert facts(streamed) == facts(plain)
    for a, b in zip(plain.samples, streamed.samples, strict=True):
        assert b.logprobs == pytest.approx(a.logprobs, abs=2e-4)


def test_who_waits_for_whom_changes_nothing(played, monkeypatch):
    first = facts(played(True, 1.0))
    assert len({len(sample[3]) for sample in first[0]}) > 1  # answers end apart
    assert facts(played(True, 1.0, 5)) == first
    monkeypatch.setattr(cuda, "ADMIT", 1)  # only when all rows are free
    assert facts(played(True, 1.0, 4)) == first


@pytest.mark.parametrize("streams", [False, True])
def test_tasks_with_seeds_of_their_own_do_not_depend_on_the_others(played, streams):
    """In the stream and side by side, where a row draws until the last one has ended."""
    whole, parts = played(streams, 1.0, some=slice(0, 6)).transcripts, []
    for some in (slice(0, 1), slice(1, 3), slice(3, 6)):
        parts += played(streams, 1.0, some=some).transcripts
    assert parts == whole
    assert any(whole[i] != whole[i + 1] for i in range(0, 12, 2))  # nor are a group's alike
    assert played(streams, 1.0).transcripts != whole
