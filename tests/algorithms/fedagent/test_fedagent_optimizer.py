"""AdamW between the rounds of a client: who learns alone takes the steps of one unbroken run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="FedAgent needs the extra llm")
pytest.importorskip("transformers", reason="FedAgent needs the extra llm")

from support import review_runs
from support.agent_runs import WORLD, last, recipe, train

from fedrl.config.build import build_algorithm, build_world
from fedrl.core import seeding, serialization, tree
from fedrl.core.types import Job
from fedrl.federation import round_loop as federation
from fedrl.federation.client_sampling import first_cohort
from fedrl.runs import checkpoint
from fedrl.runs import train as runs

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("easier_game")]

ALONE = [
    {"kind": "centralized", "cohort": 0},
    {"kind": "local", "client": 2, "cohort": 0},
    {"kind": "independent", "clients": 2, "cohort": 0},
    {"clients": 1, "cohort": 0},
]


@pytest.fixture(scope="session")
def writes(tmp_path_factory) -> Path:
    return review_runs.make_model(tmp_path_factory.mktemp("models") / "writes", steps=20)


def unbroken(config, client: int, kind: str, monkeypatch) -> dict[str, np.ndarray]:
    """θ after the run's rounds as one client plays them with ONE optimizer, which nobody rebuilds.

    The server's arithmetic between rounds, θ + (θ' − θ), stays: it rounds.
    """
    made = []

    def once(*args, **more):
        if not made:
            made.append(original(*args, **more))
        return made[0]

    original = getattr(torch.optim, kind)
    algorithm = build_algorithm(config)
    state = algorithm.init(seeding.derive(config.seed, "init"))
    with monkeypatch.context() as patch:
        patch.setattr(torch.optim, kind, once)
        for number in range(1, config.rounds + 1):
            seed = seeding.derive(config.seed, "local/0", number, client)
            result = algorithm.local(Job(client, algorithm.broadcast(state, number), None, seed))
            state = algorithm.step(state, result.update, number)
    steps = {int(known["step"]) for known in made[0].state.values()}
    assert max(steps) > 1, "one step proves nothing about the second"
    return state["theta"]


def same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name, value in found.items():
        assert np.array_equal(value, expected[name]), name


@pytest.mark.parametrize("federation", ALONE, ids=lambda f: f.get("kind", "one client"))
def test_rounds_of_one_who_learns_alone_are_one_unbroken_run(
    model, tmp_path, monkeypatch, federation
):
    config = recipe(model, rounds=3, federation=federation)
    path = train(config, tmp_path)
    theta = unbroken(config, federation.get("client", 0), "AdamW", monkeypatch)
    same(last(path).states[0]["theta"], theta)


@pytest.mark.parametrize(
    "change",
    [
        {"estimator": "ppo", "critic_lr": 1e-2, "local_epochs": 2},
        {"beta": 0.5, "kl": 0.0, "entropy": 0.0},
        {"lora_rank": 2},
    ],
    ids=["the critic's too", "anchored", "adapters"],
)
def test_whatever_is_trained(model, tmp_path, monkeypatch, change):
    if "lora_rank" in change:
        pytest.importorskip("peft", reason="LoRA needs peft")
    config = recipe(model, rounds=3, federation=ALONE[0], algorithm=change)
    path = train(config, tmp_path)
    same(last(path).states[0]["theta"], unbroken(config, 0, "AdamW", monkeypatch))
    kept = last(path).clients[0]
    assert set(kept["exp_avg"]) == set(last(path).states[0]["theta"])


@pytest.mark.parametrize("federation", ALONE[:2], ids=lambda f: f["kind"])
def test_who_writes_reviews_alone_as_well(writes, tmp_path, monkeypatch, federation):
    config = review_runs.recipe(writes, federation=federation)
    path = review_runs.train(config, tmp_path)
    theta = unbroken(config, federation.get("client", 0), "Adam", monkeypatch)
    same(last(path).states[0]["theta"], theta)


def test_in_a_federation_it_starts_anew_unless_asked_to_go_on(model):
    def learned(keeping: str, state) -> tuple[dict, dict | None]:
        algorithm = build_algorithm(recipe(model, algorithm={"optimizer_state": keeping}))
        theta = algorithm.init(0)["theta"]
        result = algorithm.local(Job(0, {"theta": theta}, state, 5))
        return result.update, result.state

    fresh, nothing = learned("fresh", None)
    assert nothing is None
    same(learned("auto", None)[0], fresh)
    first, state = learned("kept", None)
    same(first, fresh)
    before = {name: np.copy(leaf) for name, leaf in tree.leaves(state)}
    second, after = learned("kept", state)
    assert not np.array_equal(
        second["model.embed_tokens.weight"], fresh["model.embed_tokens.weight"]
    )
    assert all(float(n) == 2 * float(state["step"][name]) for name, n in after["step"].items())
    same(dict(tree.leaves(state)), before)  # a round that is tried again starts from the same
    same(learned("kept", state)[0], second)


def test_alone_it_may_start_anew_too(model, tmp_path):
    config = recipe(model, federation=ALONE[0], algorithm={"optimizer_state": "fresh"})
    assert not last(train(config, tmp_path)).clients


def test_kept_by_each_client_of_a_federation_for_itself(model, tmp_path):
    config = recipe(model, rounds=3, algorithm={"optimizer_state": "kept"})
    snapshot = last(train(config, tmp_path))
    turns = [first_cohort(config.federation, config.seed, n) for n in (1, 2, 3)]
    assert set(snapshot.clients) == {client for turn in turns for client in turn}
    for client, state in snapshot.clients.items():
        count = sum(client in turn for turn in turns)  # one epoch, one minibatch or two each
        assert all(count <= float(n) <= 2 * count for n in state["step"].values())


def test_a_resumed_run_goes_on_with_the_moments(model, tmp_path):
    config = recipe(model, rounds=3, federation=ALONE[0])
    whole = train(config, tmp_path / "a")
    half = train(recipe(model, rounds=1, federation=ALONE[0]), tmp_path / "b")
    config, directory = runs.resume(half, ["--rounds", "3"])
    runs.train(config, directory, build_algorithm(config))
    one, other = last(whole), last(half)
    same(one.states[0]["theta"], other.states[0]["theta"])
    same(dict(tree.leaves(one.clients[0])), dict(tree.leaves(other.clients[0])))
    assert one.clients[0]["step"]
    assert (whole / "metrics.jsonl").read_bytes() == (half / "metrics.jsonl").read_bytes()


def test_moments_are_the_same_after_any_disk(model):
    algorithm = build_algorithm(recipe(model, federation=ALONE[0]))
    state = algorithm.local(Job(0, {"theta": algorithm.init(0)["theta"]}, None, 5)).state
    expected = dict(tree.leaves(state))
    trained = sum(array.size for array in algorithm.init(0)["theta"].values())
    assert sum(a.nbytes for n, a in expected.items() if "exp" in n) == 8 * trained
    same(dict(tree.leaves(serialization.unpack(serialization.pack(state)))), expected)
    snapshot = federation.Snapshot(1, [{}], {0: state})
    again, _ = checkpoint.unpack(checkpoint.pack(snapshot, {}))
    same(dict(tree.leaves(again.clients[0])), expected)


def test_a_plan_tells_what_a_client_keeps(model):
    assert not any("moments" in line for line in runs.plan(recipe(model)))
    lines = runs.plan(recipe(model, federation=ALONE[0]))
    assert sum("of AdamW's moments between its rounds" in line for line in lines) == 1


# The centralized client's tasks


@pytest.mark.parametrize("strategy", ["uniform", "preference", "coverage", "hardness", "scenes"])
def test_centralized_holds_the_whole_pool(model, strategy, tmp_path):
    labels = tmp_path / "labels.json"
    tasks = [task.id for task in build_world(recipe(model)).world.tasks("train")]
    assert len(tasks) == WORLD["train"]
    labels.write_text(
        "{" + ", ".join(f'"{t}": {str(i % 2 == 0).lower()}' for i, t in enumerate(tasks)) + "}"
    )
    how = {"strategy": strategy, "size": 4, "labels": str(labels) if strategy == "hardness" else ""}
    dealt = build_algorithm(recipe(model, partition=how))
    assert len({task for share in dealt.shares for task in share}) < len(tasks)
    assert build_algorithm(recipe(model, partition=how, federation=ALONE[0])).shares == [
        sorted(tasks)
    ]
