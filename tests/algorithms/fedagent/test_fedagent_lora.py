"""FedAgent with LoRA: only adapters travel, every client merges the same model, and it exports."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="FedAgent needs the extra llm")
pytest.importorskip("transformers", reason="FedAgent needs the extra llm")
pytest.importorskip("peft", reason="LoRA needs peft (fedrl[llm])")

from support.agent_runs import last, recipe, train

from fedrl import cli
from fedrl.aggregation.mean import mean
from fedrl.config.build import build_algorithm
from fedrl.core import tree
from fedrl.core.types import Job, UserError
from fedrl.engines.in_process import InProcess
from fedrl.federation import round_loop
from fedrl.llm.generation.hf import HFSampler
from fedrl.llm.policy import load
from fedrl.llm.warmstart_record import shown_tasks
from fedrl.llm.weights import MergedWeights
from fedrl.runs import train as runs

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("easier_game")]

LORA = {"lora_rank": 4, "lora_alpha": 8, "lr": 1e-2, "tasks": 6, "group": 4}
HERE = torch.device("cpu")


class Kept:
    """A store in memory, and the wire: what every client sent."""

    def __init__(self) -> None:
        self.rounds, self.snapshot = [], None

    def load(self):
        return None

    def log(self, done):
        self.rounds.append(done)

    def log_clients(self, records):
        raise AssertionError(records)

    def checkpoint(self, snapshot):
        self.snapshot = snapshot


class Wire(InProcess):
    sent: list

    def run(self, jobs, deadline=0.0):
        self.sent = []
        for result in super().run(jobs, deadline):
            self.sent.append(result.update)
            yield result


def exchanged(config):
    """(algorithm, its first state, the clients' updates, the store) of one federated round."""
    algorithm = build_algorithm(config)
    wire, store = Wire(algorithm), Kept()
    first = algorithm.init(5)
    algorithm.init = lambda seed: first
    round_loop.run(config.federation, algorithm, wire, mean, store, seed=1, rounds=1)
    return algorithm, first["theta"], wire.sent, store


def test_only_adapters_travel(model):
    _, first, updates, store = exchanged(recipe(model, algorithm=LORA))
    width, inner = 32, 96
    shapes = {"q_proj": (width, width), "k_proj": (width, width), "v_proj": (width, width),
              "o_proj": (width, width), "gate_proj": (width, inner), "up_proj": (width, inner),
              "down_proj": (inner, width)}  # fmt: skip
    size = sum(4 * (into + out) for into, out in shapes.values())  # rank 4, one layer
    assert len(updates) == 2
    for update in updates:
        assert all(".lora_A." in name or ".lora_B." in name for name in update)
        assert update.keys() == first.keys()
        assert any(array.any() for array in update.values()), "nothing was learned"
        assert tree.nbytes(update) == 4 * size
    metrics = store.rounds[-1].metrics
    assert metrics["comm/bytes_up"] == metrics["comm/bytes_down"] == 2 * 4 * size


def test_after_a_round_every_client_merges_the_same_model(model):
    """Which is the folder's weights plus the scaled product of the mean adapters."""
    algorithm, first, updates, store = exchanged(recipe(model, algorithm=LORA))
    theta = store.snapshot.states[0]["theta"]
    for name in theta:
        average = (updates[0][name] + updates[1][name]) / np.float32(2)
        np.testing.assert_allclose(theta[name], first[name] + average, rtol=1e-6, atol=1e-8)
    others = [build_algorithm(recipe(model, algorithm=LORA)) for _ in range(2)]
    found = []
    for each in (algorithm, *others):  # the server's process, and two that know the broadcast only
        each.trainer.actor.load(theta)
        found.append(MergedWeights(each.trainer.policy.model))
    base = dict(load(str(model), HERE).model.named_parameters())
    for name, weight in found[0].items():
        assert all(torch.equal(weight, other[name]) for other in found[1:]), name
        key = "base_model.model." + name.removesuffix(".weight")
        delta = 0
        if f"{key}.lora_A.default.weight" in theta:
            a, b = (torch.from_numpy(theta[f"{key}.lora_{x}.default.weight"]) for x in "AB")
            delta = 8 / 4 * b @ a
        torch.testing.assert_close(weight, base[name] + delta)
    moved = found[0]["model.layers.0.mlp.up_proj.weight"]
    assert not torch.equal(moved, base["model.layers.0.mlp.up_proj.weight"])


def test_the_runs_seed_decides_the_first_adapters(model):
    one, other = (build_algorithm(recipe(model, algorithm=LORA)) for _ in range(2))
    a, b, c = one.init(1)["theta"], other.init(1)["theta"], other.init(2)["theta"]
    assert all(np.array_equal(a[name], b[name]) for name in a)
    assert any(not np.array_equal(a[name], c[name]) for name in a)
    # A client does with the broadcast alone what any other would, whatever it was drawn with.
    results = [each.local(Job(0, {"theta": a}, None, 3)).update for each in (one, other)]
    assert all(np.array_equal(results[0][name], results[1][name]) for name in a)


def test_a_resumed_run_equals_an_undisturbed_one(model, tmp_path):
    change = LORA | {"kl": 0.05}
    whole = train(recipe(model, rounds=3, algorithm=change), tmp_path / "a")
    half = train(recipe(model, rounds=1, algorithm=change), tmp_path / "b")
    config, directory = runs.resume(half, ["--rounds", "3"])
    runs.train(config, directory, build_algorithm(config))
    for name, value in last(whole).states[0]["theta"].items():
        assert np.array_equal(value, last(half).states[0]["theta"][name]), name
    assert (whole / "metrics.jsonl").read_bytes() == (half / "metrics.jsonl").read_bytes()


@pytest.mark.parametrize(
    "change",
    [
        {"kl": 0.1, "save_memory": True},
        {"beta": 0.5, "entropy": 0.0},
        {"estimator": "ppo", "prox": 0.1},
        {"server_optimizer": "adam", "server_lr": 0.01},
    ],
    ids=lambda change: "-".join(f"{key}={value}" for key, value in change.items()),
)
def test_adapters_go_with_every_other_option(model, change):
    algorithm, first, updates, _ = exchanged(recipe(model, algorithm=LORA | change))
    sent = algorithm.broadcast(algorithm.init(0), 1)
    assert updates[0].keys() == algorithm.declare(sent).keys()
    assert all(np.isfinite(array).all() for array in updates[0].values())
    moved = [name for name in first if ".lora_B." in name and updates[0][name].any()]
    assert moved


@pytest.mark.parametrize(
    "change", [LORA, {"lr": 1e-2}, {"estimator": "ppo"}, LORA | {"estimator": "ppo"}]
)
def test_an_exported_folder_answers_like_the_runs_policy(model, tmp_path, change, capsys):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    path = train(recipe(model, algorithm=change), tmp_path / "runs")
    out = tmp_path / "model"
    assert cli.call(["export", str(path), "--out", str(out)]) == 0
    assert "round 2" in capsys.readouterr().out
    algorithm = build_algorithm(recipe(model, algorithm=change))
    algorithm.trainer.actor.load(last(path).states[0]["theta"])
    policy, saved = algorithm.trainer.policy, AutoModelForCausalLM.from_pretrained(out).eval()
    assert set(saved.state_dict()) == set(load(str(model), HERE).model.state_dict())
    words = AutoTokenizer.from_pretrained(out)
    prompts = words(["go to fridge 1", "you see a mug 1"], add_special_tokens=False)["input_ids"]
    answers = [
        HFSampler(each, policy.end, policy.pad).generate(
            prompts, 6, 1.0, torch.Generator().manual_seed(2)
        )
        for each in (policy.model, saved)
    ]
    assert answers[0].tokens == answers[1].tokens
    for x, y in zip(*(a.logprobs for a in answers), strict=True):
        assert y == pytest.approx(x, abs=1e-4)
    again = build_algorithm(recipe(out))  # the next run's algorithm.model
    assert set(again.init(0)["theta"]) == {name for name, _ in saved.named_parameters()}
    assert cli.call(["export", str(path), "--out", str(out)]) == 2  # what exists is left alone


def test_an_exported_folder_remembers_what_its_model_was_shown(model, tmp_path):
    path = train(recipe(model, rounds=1), tmp_path / "runs")
    out = tmp_path / "mine"
    assert cli.call(["export", str(path), "--out", str(out)]) == 0
    assert shown_tasks(str(out)) == shown_tasks(str(model))
    assert sorted(tmp_path.iterdir()) == [out, tmp_path / "runs"]
    with pytest.raises(UserError, match="its warm start was shown task"):
        build_algorithm(recipe(out, algorithm={"eval_split": "public"}))


def test_an_export_that_fails_is_one_line_and_leaves_nothing(model, tmp_path, monkeypatch, capsys):
    from safetensors import SafetensorError

    path = train(recipe(model, rounds=1), tmp_path / "runs")
    (tmp_path / "file").touch()
    before = sorted(tmp_path.iterdir())
    capsys.readouterr()
    assert cli.call(["export", str(path), "--out", str(tmp_path / "file" / "m")]) == 2
    told = capsys.readouterr().err
    assert f"--out {tmp_path / 'file' / 'm'}: cannot make this folder" in told
    assert told.count("\n") == 1

    def full(self, folder, **more):
        (Path(folder) / "half").touch()
        raise SafetensorError("no space left")

    kind = type(load(str(model), HERE).model)
    monkeypatch.setattr(kind, "save_pretrained", full)
    assert cli.call(["export", str(path), "--out", str(tmp_path / "mine")]) == 2
    told = capsys.readouterr().err
    assert "no space left" in told
    assert told.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before


def test_a_run_of_many_models_is_not_exported(model, tmp_path):
    from fedrl.runs.exports import export

    alone = {"kind": "independent", "clients": 2, "cohort": 0}
    path = train(recipe(model, rounds=1, federation=alone), tmp_path / "runs")
    with pytest.raises(UserError, match="2 models, one per client"):
        export(path, tmp_path / "model")
