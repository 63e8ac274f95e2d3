"""FedAgent in the round loop: what its federations must have in common, and what must not leak."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("torch", reason="FedAgent needs the extra llm")
pytest.importorskip("transformers", reason="FedAgent needs the extra llm")

from support.agent_runs import WORLD, last, recipe, train

from fedrl.config.build import build_algorithm, build_world
from fedrl.core import seeding
from fedrl.core.types import Job, UserError
from fedrl.report import page as report
from fedrl.runs import train as runs

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("easier_game")]


def test_one_client_federated_equals_centralized_to_the_bit(model, tmp_path):
    one, everything = {"clients": 1, "cohort": 0}, {"size": WORLD["train"]}
    ours = train(recipe(model, federation=one, partition=everything), tmp_path / "a")
    theirs = train(recipe(model, federation=one | {"kind": "centralized"}), tmp_path / "b")
    first = build_algorithm(recipe(model)).init(0)["theta"]
    for name, value in last(ours).states[0]["theta"].items():
        assert np.array_equal(value, last(theirs).states[0]["theta"][name]), name
    moved = last(ours).states[0]["theta"]["model.embed_tokens.weight"]
    assert not np.array_equal(moved, first["model.embed_tokens.weight"])


def test_a_resumed_run_equals_an_undisturbed_one(model, tmp_path):
    whole = train(recipe(model, rounds=3), tmp_path / "a")
    half = train(recipe(model, rounds=1), tmp_path / "b")
    config, directory = runs.resume(half, ["--rounds", "3"])
    runs.train(config, directory, build_algorithm(config))
    for name, value in last(whole).states[0]["theta"].items():
        assert np.array_equal(value, last(half).states[0]["theta"][name]), name
    assert (whole / "metrics.jsonl").read_bytes() == (half / "metrics.jsonl").read_bytes()


def test_training_moves_the_model_and_is_logged(model, tmp_path):
    path = train(recipe(model), tmp_path)
    rounds = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    assert [r["round"] for r in rounds] == [0, 1, 2]
    assert "eval/success" in rounds[0]
    assert any(name.startswith("eval/success_") for name in rounds[0])
    assert rounds[-1]["env/episodes"] == 2 * 2 * 3 * 2  # rounds × cohort × tasks × group


def test_seeds_change_partitions_and_what_a_client_plays(model):
    one, two = (build_world(recipe(model, seed=seed)) for seed in (0, 1))
    assert one.shares != two.shares
    algorithm = build_algorithm(recipe(model))
    theta = algorithm.init(0)["theta"]
    played = []
    for seed in (0, 0, 1):
        jobs = Job(0, {"theta": theta}, None, seeding.derive(seed, "local", 1, 0))
        played.append(algorithm.local(jobs).update)
    name = "model.embed_tokens.weight"
    assert played[0][name].any(), "nothing was learned: the comparison would be empty"
    assert np.array_equal(played[0][name], played[1][name])
    assert not np.array_equal(played[0][name], played[2][name])


def test_no_task_is_both_trained_on_and_evaluated(model):
    config = recipe(model, algorithm={"eval_split": "train"})
    with pytest.raises(UserError, match="both trained on and evaluated"):
        build_algorithm(config)
    algorithm = build_algorithm(recipe(model))
    trained = {task for share in algorithm.shares for task in share}
    record = json.loads((model / "warmstart.json").read_text())
    evaluated = {task.id for task in algorithm.eval_tasks}
    assert not trained & evaluated
    assert not trained & set(record["tasks"])
    assert not evaluated & set(record["tasks"])


def test_tasks_and_trajectories_never_leave_a_client(model, tmp_path, monkeypatch, capfd):
    """A canary in all that the clients' games say, and in one's error, appears in no message,
    server file, log, checkpoint or report, and not on the console."""
    from fedrl.envs.household import world as households

    monkeypatch.delenv("FEDRL_DEBUG", raising=False)
    canary, raised = "zanzibar9", []
    everybody = {"clients": 3, "cohort": 0, "quorum": 1.0, "retries": 1}
    config = recipe(model, rounds=1, federation=everybody)
    private = {task for share in build_world(config).shares for task in share}
    games: dict[int, households.HouseholdEpisode] = {}  # the clients'; the server plays others
    begin, go_on = households.Household.start, households.HouseholdEpisode.step

    def marked(turn):
        return turn._replace(observation=f"{turn.observation} {canary}")

    def start(self, task, seed=0):
        episode, turn = begin(self, task, seed)
        if task not in private:
            return episode, turn
        games[id(episode)] = episode
        return episode, marked(turn)

    def step(self, command):
        turn = go_on(self, command)
        if games.get(id(self)) is not self:
            return turn
        turn = marked(turn)
        if len(games) > first and not raised:
            raised.append(turn)
            raise KeyError(turn.observation)
        return turn

    monkeypatch.setattr(households.Household, "start", start)
    monkeypatch.setattr(households.HouseholdEpisode, "step", step)
    first = 1000  # games without an error
    algorithm = build_algorithm(config)
    result = algorithm.local(Job(0, {"theta": algorithm.init(0)["theta"]}, None, 1))
    assert games
    assert result.state is None
    assert set(result.metrics) <= algorithm.reports
    assert all(isinstance(value, np.ndarray) for value in result.update.values())
    first = len(games)
    path = train(config, tmp_path)
    page = report.build([path])
    assert raised
    records = [json.loads(line) for line in (path / "clients.jsonl").read_text().splitlines()]
    assert sum(record.get("reason", "").startswith("KeyError") for record in records) == 1
    console = "".join(capfd.readouterr())
    for place in (console, (path / "log.txt").read_text(), page.read_text()):
        assert "KeyError" in place  # what there is to hide has come by here
    found = {str(file): file.read_bytes() for file in path.rglob("*") if file.is_file()}
    for place, content in (found | {"the console": console.encode()}).items():
        for secret in (canary, *private):
            assert secret.encode() not in content, place


@pytest.mark.parametrize(
    "change",
    [
        {"estimator": "rloo", "save_memory": True},
        {"estimator": "gigpo", "by_episode": True},
        {"estimator": "ppo", "critic_lr": 1e-2},
        {"beta": 0.5, "kl": 0.0, "entropy": 0.0},
        {"kl": 0.1, "prox": 0.1, "average": "sequence"},
        {"server_optimizer": "adam", "server_lr": 0.01, "entropy": 0.0},
        {"format": "chat", "thinking": False, "answer_tokens": 4, "invalid_penalty": 0.1},
    ],
    ids=lambda change: "-".join(f"{key}={value}" for key, value in change.items()),
)
def test_every_option_trains_and_declares_what_it_sends(model, tmp_path, change):
    path = train(recipe(model, algorithm=change), tmp_path)
    records = [json.loads(line) for line in (path / "clients.jsonl").read_text().splitlines()]
    assert {record["status"] for record in records} == {"ok"}


def test_anchored_momentum_sends_its_direction_and_the_server_keeps_it(model):
    algorithm = build_algorithm(recipe(model, algorithm={"beta": 0.5, "kl": 0.0, "entropy": 0.0}))
    state = algorithm.init(0)
    sent = algorithm.broadcast(state, 1)
    update = algorithm.local(Job(0, sent, None, 3)).update
    assert set(update) == set(algorithm.declare(sent))
    after = algorithm.step(state, update, 1)
    name = "model.embed_tokens.weight"
    assert np.array_equal(after["u"][name], update["u." + name])
    assert np.array_equal(after["previous"][name], state["theta"][name])
    assert np.allclose(after["theta"][name], state["theta"][name] + update[name])


def test_prox_pulls_towards_the_rounds_model(model):
    def distance(prox: float) -> float:
        # Several steps: at the first one there is nothing to pull back from.
        change = {"prox": prox, "entropy": 0.0, "lr": 1e-2, "minibatch": 4, "max_grad_norm": 1e6}
        algorithm = build_algorithm(recipe(model, algorithm=change))
        update = algorithm.local(Job(0, algorithm.broadcast(algorithm.init(0), 1), None, 3)).update
        return float(sum(np.square(array).sum() for array in update.values()))

    assert distance(100.0) < 0.8 * distance(0.0)


@pytest.mark.parametrize(
    "change, told",
    [
        ({"model": ""}, "algorithm.model is empty"),
        ({"model": "."}, "no model folder"),
        ({"group": 1}, "group is 1"),
        ({"eval_split": "nowhere"}, "nowhere"),
        ({"format": "verse"}, "verse"),
        ({"device": "cuda"}, "no GPU"),
        ({"lr": 0.0}, "lr is 0"),
        ({"beta": 0.0}, "beta is 0"),
        ({"beta": 0.5, "kl": 0.1}, "anchors the plain policy gradient"),
        ({"lora_rank": -1}, "lora_rank is -1"),
        ({"lora_rank": 4, "lora_alpha": 0}, "lora_alpha is 0"),
        ({"rollouts": "cuda"}, "runs on the CPU"),
        ({"rollouts": "vllm"}, "runs on the CPU"),
        ({"device": "spread"}, "no GPU"),
        ({"device": "spread", "estimator": "ppo"}, "its critic"),
        ({"device": "toaster"}, "toaster"),
        ({"model": "./nowhere"}, "no folder"),
    ],
)
def test_mistakes_are_named(model, change, told):
    import torch

    if change.get("device") in ("cuda", "spread") and torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(UserError, match=told):
        build_algorithm(recipe(model, algorithm=change)).init(0)
