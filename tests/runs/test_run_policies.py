"""`Run.policy`, `Run.export` and `fedrl.load_policy`: the policy is what the run evaluates."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from support.packages import METHOD

import fedrl
import fedrl.config.parts
from fedrl.algorithms import METHODS
from fedrl.algorithms.qhd import q_learning_kernels as q_learner
from fedrl.algorithms.qhd.dqn import network as dqn
from fedrl.algorithms.splitmix64 import uniform
from fedrl.cli import call
from fedrl.config.build import build_algorithm
from fedrl.config.loading import to_toml
from fedrl.core.abilities import GivesPolicy, Policy
from fedrl.envs.control import random_mdp
from fedrl.envs.discrete import classic_kernels as classic

SMALL = {
    "control": {"world": {"name": "cartpole", "horizon": 20}},
    "discrete": {"world": {"name": "cartpole-v1"}},
    "tabular": {"world": {"name": "random_mdp", "states": 4, "actions": 2}},
}
QUICK = {
    "fedqhd": {"features": 64, "episodes": 2},
    "truncate-qhd": {"sizes": [40, 60], "episodes": 2},
    "feddqn": {"hidden": [8, 8], "episodes": 2},
    "distill-dqn": {"sizes": [8, 6], "episodes": 2, "anchors": 20, "distill_steps": 5},
}


def recipe(method: str, kind: str, clients: int = 2, **more) -> dict:
    steps = {} if method == "fedpg-br" else {"local_steps": 2}  # it sends one gradient
    quick = QUICK.get(method, {**steps, "eval_episodes": 2} if kind == "control" else {})
    algorithm = {"name": method, **quick}
    return {
        "algorithm": algorithm, "federation": {"clients": clients}, "rounds": 1,
        **SMALL[kind], **more,
    }  # fmt: skip


@pytest.fixture(scope="module")
def carts(tmp_path_factory: pytest.TempPathFactory) -> fedrl.Run:
    """A run of PAvg."""
    return fedrl.run(recipe("pavg", "control", out=str(tmp_path_factory.mktemp("carts"))))


CLASSICAL = [
    (name, kind)
    for name, entry in METHODS.builtin.items()
    for kind in SMALL
    if kind in fedrl.config.parts.method(name).kinds
]


@pytest.mark.parametrize(("name", "kind"), CLASSICAL)
def test_every_classical_method_gives_a_policy(name: str, kind: str):
    algorithm = build_algorithm(fedrl.configure(recipe(name, kind)))
    assert isinstance(algorithm, GivesPolicy)
    policy = algorithm.policy(algorithm.init(0), 1)
    assert isinstance(policy, Policy)
    seen = np.array([0, 3]) if kind == "tabular" else np.zeros((2, 4))
    assert policy.act(seen).shape == (2,)
    assert policy.act(seen[0]) in (0, 1)


def greedy_returns(policy: Policy, kernel: int, count: int, seed: int) -> np.ndarray:
    """Episodes of a compiled world from the seeds of `evaluate`, played by the policy in Python."""
    spectator = dqn.fresh((4, 1, 1, 2), dqn.draw_weights((4, 1, 1, 2), 0), 1, seed % 2**63, 0.0)
    state, draws = np.empty(classic.MOST_STATE), np.empty(classic.MOST_STATE)
    seen, returns = np.empty(classic.OBSERVATION[kernel], np.float32), np.zeros(count)
    for episode in range(count):
        for i in range(classic.DRAWS[kernel]):
            draws[i] = uniform(np.uint64(q_learner.draw(spectator.counters)))
        classic.reset(kernel, state, draws)
        steps, over = 0, False
        while not over and steps < classic.LIMIT[kernel]:
            classic.observe(kernel, state, seen)
            q_learner.draw(spectator.counters)  # whether to explore, with ε = 0
            reward, over = classic.step(kernel, state, policy.act(seen))
            returns[episode] += reward
            steps += 1
    return returns


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fedqhd", "truncate-qhd", "feddqn", "distill-dqn"])
def test_greedy_returns_are_those_of_the_evaluation(name: str, tmp_path: Path):
    run = fedrl.run(recipe(name, "discrete", out=str(tmp_path)))
    algorithm = build_algorithm(fedrl.configure(run.config))
    found = run.evaluate(episodes=5, seed=3)
    from fedrl.core import seeding

    drawn = seeding.derive(3, "eval command", found.round)
    for client in range(2):
        played = greedy_returns(run.policy(client=client), algorithm.world.kernel, 5, drawn)
        assert played.mean() == found.by_client[client]


def test_what_a_client_holds_is_another_policy_than_what_it_would_be_given(tmp_path: Path):
    run = fedrl.run(recipe("distill-dqn", "discrete", out=str(tmp_path)))
    states = np.random.default_rng(0).normal(size=(100, 4))
    given, own = run.policy(client=1), run.policy(client=1, own=True)
    assert not np.allclose(given.outputs(states), own.outputs(states), atol=1e-3)
    assert own.sizes == [4, 6, 6, 2]
    with pytest.raises(fedrl.UserError, match="network of its own: say whose policy"):
        run.policy()
    with pytest.raises(fedrl.UserError, match="own needs a client"):
        fedrl.run(recipe("feddqn", "discrete", out=str(tmp_path))).policy(own=True)


@pytest.mark.parametrize("policy", ["softmax", "direct"])
def test_a_table_pays_what_the_run_evaluates(policy: str, tmp_path: Path):
    chosen = {"name": "fedsvrpg-m", "policy": policy, "local_steps": 3}
    run = fedrl.run(recipe("fedsvrpg-m", "tabular", out=str(tmp_path)) | {"algorithm": chosen})
    world = build_algorithm(fedrl.configure(run.config)).world
    table = run.policy()
    p = table.table if table.output == "probabilities" else random_mdp.softmax(table.table)
    params = world.params(range(2))
    paid = random_mdp.performance(
        p.astype(float), params["kernel"].astype(float), params["reward"].astype(float),
        world.initial, world.gamma,
    )  # fmt: skip
    np.testing.assert_allclose(run.evaluate(episodes=1).by_client, paid, rtol=1e-5)


def test_a_client_that_learns_alone_has_its_own(tmp_path: Path):
    alone = {"clients": 3, "kind": "independent"}
    run = fedrl.run(recipe("pavg", "tabular", out=str(tmp_path)) | {"federation": alone})
    weights = [run.policy(client=client).tensors()["table"] for client in range(3)]
    assert not np.array_equal(weights[0], weights[2])
    with pytest.raises(fedrl.UserError, match="has 3 policies, one per client: say whose"):
        run.policy()
    with pytest.raises(fedrl.UserError, match="client is 3; it is 0 to 2"):
        run.policy(client=3)
    with pytest.raises(fedrl.UserError, match="whose clients keep no policy of their own"):
        run.policy(client=0, own=True)


@pytest.mark.slow
def test_continuous_actions_are_played_as_the_world_plays_them(tmp_path: Path):
    """The mean of a Gaussian, rescaled and cut as `world.action_bounds` says."""
    pytest.importorskip("gymnasium")
    world = {"name": "gymnasium", "id": "Pendulum-v1", "horizon": 5, "scaled": True}
    for bounds in ("clip", "rescale"):
        said = {
            "world": world | {"action_bounds": bounds},
            "algorithm": {"name": "pavg", "local_steps": 1},
        }
        said |= {"federation": {"clients": 2}, "rounds": 1, "out": str(tmp_path)}
        run = fedrl.run(said)
        algorithm, policy = build_algorithm(fedrl.configure(run.config)), run.policy()
        seen = np.random.default_rng(0).uniform(-8, 8, (50, 3))
        raw = policy.outputs(seen)
        np.testing.assert_allclose(policy.act(seen), algorithm.world.played(raw), atol=1e-6)
        assert np.abs(policy.act(seen, np.random.default_rng(0))).max() <= 2.0
        assert policy.scaling is not None


# The folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind"), [("pavg", "control"), ("fedqhd", "discrete"), ("qavg", "tabular")]
)
def test_an_exported_policy_acts_like_the_runs_without_the_run(
    name: str, kind: str, tmp_path: Path, capsys, request
):
    if name == "pavg":
        run = request.getfixturevalue("carts")
    else:
        run = fedrl.run(recipe(name, kind, out=str(tmp_path / "runs")))
    out = tmp_path / "mine"
    capsys.readouterr()
    assert call(["export", str(run.path), "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"policy of round 1: {out}\n"
    policy, before = fedrl.load_policy(out), run.policy()
    seen = np.arange(4) if kind == "tabular" else np.random.default_rng(0).normal(size=(50, 4))
    assert np.array_equal(policy.act(seen), before.act(seen))
    assert np.array_equal(*(p.act(seen, np.random.default_rng(1)) for p in (policy, before)))
    card = (out / "README.md").read_text(encoding="utf-8")
    shown = run.rounds[1]["eval/return"]
    for word in (f"`{name}`", f"| eval/return | {shown:.6g} |", 'fedrl.load_policy("mine")'):
        assert word in card
    about = json.loads((out / "policy.json").read_text())
    assert (about["algorithm"], about["round"]) == (name, 1)
    assert call(["export", str(run.path), "--out", str(out)]) == 2  # what exists is left alone


def test_an_exported_policy_names_no_folder_of_this_machine(tmp_path: Path):
    """A method in a file is known by where it lies; who gets the policy need not know that."""
    (tmp_path / "home").mkdir()
    file = tmp_path / "home" / "mine.py"
    file.write_text(METHOD)
    run = fedrl.run(recipe(f"{file}:Doubled", "tabular", out=str(tmp_path / "runs")))
    run.export(tmp_path / "policy")
    told = [(tmp_path / "policy" / name).read_text() for name in ("README.md", "policy.json")]
    for text in told:
        assert "mine.py:Doubled" in text
        assert str(tmp_path) not in text


@pytest.mark.slow
def test_without_the_package_onnx_there_is_a_line(carts, tmp_path: Path, monkeypatch, capsys):
    run = carts
    monkeypatch.setitem(sys.modules, "onnx", None)
    done = run.export(tmp_path / "mine")
    assert done.lacking == 'the package onnx is not installed: pip install "fedrl[onnx]"'
    assert not (done.path / "policy.onnx").exists()
    assert done.lacking in (done.path / "README.md").read_text()
    assert call(["export", str(run.path), "--out", str(tmp_path / "again")]) == 0
    assert f"without policy.onnx: {done.lacking}" in capsys.readouterr().err


@pytest.mark.slow
def test_with_the_package_there_is_a_model(carts, tmp_path: Path):
    pytest.importorskip("onnx")
    from onnx.reference import ReferenceEvaluator

    run = carts
    done = run.export(tmp_path / "mine")
    assert done.lacking == ""
    seen = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    evaluator = ReferenceEvaluator(str(done.path / "policy.onnx"))
    action, logits = evaluator.run(["action", "logits"], {"observation": seen})
    np.testing.assert_allclose(logits, run.policy().outputs(seen), atol=1e-5)
    assert np.array_equal(action, logits.argmax(1))


@pytest.mark.slow
def test_what_is_no_exported_policy_is_told(carts, tmp_path: Path):
    with pytest.raises(fedrl.UserError, match=r"is no exported policy: it has no policy\.json"):
        fedrl.load_policy(tmp_path)
    out = carts.export(tmp_path / "mine").path
    about = json.loads((out / "policy.json").read_text())
    for change, said in (({"format": 9}, "another version"), ({"kind": "tree"}, "cannot be used")):
        (out / "policy.json").write_text(json.dumps(about | change))
        with pytest.raises(fedrl.UserError, match=said):
            fedrl.load_policy(out)
    (out / "policy.json").write_text(json.dumps(about))
    (out / "policy.safetensors").write_bytes(b"\0" * 9)
    with pytest.raises(fedrl.UserError, match="cannot be read"):
        fedrl.load_policy(out)


def test_a_method_without_a_policy_is_told(tmp_path: Path):
    said = {"algorithm": {"name": "fedrlhf"}, "world": {"name": "movielens"}}
    config = fedrl.configure(said, federation={"clients": 2})
    (tmp_path / "config.toml").write_text(to_toml(config))
    with pytest.raises(fedrl.UserError, match="a run of fedrlhf, which gives no policy"):
        fedrl.Run(tmp_path).export(tmp_path / "mine")
