"""A language agent to be asked: it answers what it answers in evaluation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="language models need torch (fedrl[llm])")
pytest.importorskip("transformers", reason="language models need transformers (fedrl[llm])")

from support.agent_runs import recipe, train
from support.small_talkers import talker

import fedrl
from fedrl.runs.agents import load_agent

pytestmark = pytest.mark.slow

WORDS = "go to take from move open close the a you see cabinet fridge 1 mug < > action / think"
OWN = "{% for m in messages %}{{ m.role }} : {{ m.content }} {% endfor %}assistant :"
GREEDY = {"eval_temperature": 0.0, "eval_tasks": 4, "thinking": False}


@pytest.fixture(scope="module", params=["compact", "chat"])
def run(request, tmp_path_factory: pytest.TempPathFactory) -> fedrl.Run:
    """An agent of no skill, after a round."""
    folder = tmp_path_factory.mktemp(request.param)
    model = talker(folder / "model", WORDS, OWN if request.param == "chat" else "", True)
    config = recipe(model, rounds=1, algorithm=GREEDY | {"format": request.param})
    return fedrl.Run(train(config, folder / "runs"))


def evaluated(run: fedrl.Run) -> list[list[tuple[str, str, str]]]:
    agent, newest = load_agent(run.path)
    return agent.play_tasks(newest.states[0]["theta"], agent.eval_tasks, 0).transcripts


def test_prompts_and_messages_are_answered_as_in_evaluation(run: fedrl.Run) -> None:
    steps = [step for episode in evaluated(run) for step in episode]
    prompts, said = [prompt for prompt, _, _ in steps], [said for _, said, _ in steps]
    policy = run.policy()
    assert policy.act(prompts) == said
    assert policy.act(prompts[0]) == said[0]
    spoken = [{"role": "user", "content": prompts[0]}]
    assert policy.act(spoken) == said[0]
    assert policy.act([spoken, spoken]) == [said[0]] * 2
    assert policy.act([]) == []
    assert len(set(said)) > 1, "answers that cannot differ show nothing"


def test_it_plays_episodes_as_evaluation_plays_them(run: fedrl.Run) -> None:
    agent, _ = load_agent(run.path)
    policy = run.policy()
    for task, steps in zip(agent.eval_tasks, evaluated(run), strict=True):
        episode, turn = agent.world.start(task.id)
        player = policy.start(episode.goal, turn)
        for prompt, said, observation in steps:
            assert player.messages == [{"role": "user", "content": prompt}]
            turn = episode.step(player.act())
            player.observe(turn)
            assert (player.said, turn.observation) == (said, observation)


def test_with_random_numbers_answers_are_drawn_at_the_evaluations_temperature(
    tmp_path: Path,
) -> None:
    model = talker(tmp_path / "model", WORDS)
    warm = train(recipe(model, rounds=1, algorithm={"eval_temperature": 1.0}), tmp_path / "runs")
    policy = fedrl.Run(warm).policy()
    drawn = [policy.act("go to", np.random.default_rng(seed)) for seed in (0, 1, 2, 0)]
    assert drawn[0] == drawn[3]
    assert len(set(drawn)) > 1
    assert policy.act("go to") == policy.act("go to")
    policy.answering = type(policy.answering)(policy.answering.template, 6, 1e-6, 100)
    assert policy.act("go to", np.random.default_rng(0)) == policy.act("go to")


def test_two_policies_of_one_model_keep_their_own_weights(run: fedrl.Run) -> None:
    agent, newest = load_agent(run.path)
    state = newest.states[0]
    other = {"theta": {name: np.zeros_like(a) for name, a in state["theta"].items()}}
    one, nothing = agent.policy(state), agent.policy(other)
    first = one.act("go to the fridge 1")
    assert nothing.act("go to the fridge 1") != first
    assert one.act("go to the fridge 1") == first
    agent.play_tasks(other["theta"], agent.eval_tasks, 0)  # another one's weights
    assert one.act("go to the fridge 1") == first


@pytest.mark.parametrize(
    "prompt, said",
    [
        ("", "the prompt is empty"),
        ([{"content": "x"}], "a role and content each"),
        ([7], "a prompt is a text"),
    ],
)
def test_what_is_no_prompt_is_one_line(run: fedrl.Run, prompt, said: str) -> None:
    policy = run.policy()
    if prompt == "" and policy.template == OWN:
        assert isinstance(policy.act(prompt), str)  # the template says something all the same
        return
    with pytest.raises(fedrl.UserError, match=said):
        policy.act(prompt)


def test_each_client_has_its_own_where_nothing_is_averaged(tmp_path: Path) -> None:
    model = talker(tmp_path / "model", WORDS)
    alone = {"kind": "independent", "clients": 2, "cohort": 0}
    config = recipe(model, rounds=1, federation=alone, algorithm=GREEDY | {"lr": 0.05})
    run = fedrl.Run(train(config, tmp_path / "runs"))
    with pytest.raises(fedrl.UserError, match="2 policies, one per client"):
        run.policy()
    first, second = run.policy(0), run.policy(1)
    assert any((first.theta[name] != second.theta[name]).any() for name in first.theta)
