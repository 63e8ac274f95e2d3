"""Whose layers become CUDA graphs, and how large their passes are: of models that learn here as on
a GPU, launch by launch."""

from __future__ import annotations

import copy
from functools import partial
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="FedAgent needs the extra llm")
pytest.importorskip("transformers", reason="FedAgent needs the extra llm")

from support.agent_runs import recipe, train

from fedrl.algorithms.fedagent import agent_model, gpu_admission, local_optimizer
from fedrl.config.build import build_algorithm, build_worker
from fedrl.core.abilities import GpuUse
from fedrl.core.types import Job
from fedrl.llm import gpu_share
from fedrl.llm.learner import decoder, graphed
from fedrl.llm.model_agreement import model_agreement
from fedrl.llm.rl import logprobs, ppo
from fedrl.runs import open_engine, preflight
from fedrl.runs.error_log import ErrorLog

pytestmark = pytest.mark.slow


@pytest.fixture
def captures(monkeypatch):
    """Packed rows on a CPU, and graphs where a GPU would have them."""
    pays, on_a_gpu = decoder.pays, [SimpleNamespace(is_cuda=True)]
    monkeypatch.setattr(logprobs, "packs", lambda model: True)
    monkeypatch.setattr(
        decoder, "pays", lambda layered, body: pays([(plan, on_a_gpu) for plan, _ in layered], body)
    )
    monkeypatch.setattr(decoder, "new_graphs", partial(decoder.new_graphs, captures=False))


def captured(model) -> bool:
    graphs = graphed.graphed_layers(model.get_decoder())
    return graphs is not None and bool(graphs.passes)


def learned(algorithm):
    """A round of a client; its trainer."""
    broadcast = algorithm.broadcast(algorithm.init(0), 1)
    algorithm.local(Job(0, broadcast, None, 7))
    return algorithm.trainer


MANY = {"ppo_epochs": 3}
"""Passes over the same samples: buckets are seen again."""


def test_the_reference_is_computed_launch_by_launch(model, captures, easier_game):
    trainer = learned(build_algorithm(recipe(model, algorithm={"kl": 0.1, **MANY})))
    assert captured(trainer.policy.model)
    assert not captured(trainer.reference)
    assert not any(p.requires_grad for p in trainer.reference.parameters())
    trains = copy.deepcopy(trainer.reference).requires_grad_(True)
    digests = [model_agreement(trainer.policy, base) for base in (trainer.reference, trains)]
    assert digests[0] == digests[1]


def test_the_round_before_is_computed_launch_by_launch(model, captures, easier_game):
    change = {"beta": 0.5, "entropy": 0.0, "local_epochs": 3, "tasks": 6}
    trainer = learned(build_algorithm(recipe(model, algorithm=change)))
    assert captured(trainer.policy.model)
    assert not captured(trainer.previous)


@pytest.mark.parametrize("whole", [True, False])
def test_who_got_no_room_for_graphs_has_none(model, captures, easier_game, monkeypatch, whole):
    """Whoever reserved the rest will use it."""
    kept = gpu_share.Reservation()
    kept.whole = whole
    monkeypatch.setattr(gpu_admission, "admit", lambda *words: kept)
    algorithm = build_algorithm(recipe(model, algorithm=MANY))
    assert algorithm.take_gpu(GpuUse(learns=True)) is whole
    assert captured(learned(algorithm).policy.model) is whole


@pytest.mark.parametrize("whole", [True, False])
def test_a_worker_hears_what_its_driver_got(model, monkeypatch, whole):
    begun, told, config = [], [], recipe(model, engine="workers")
    monkeypatch.setattr(open_engine, "WorkerPool", lambda *words: begun.append(words))
    kept = gpu_share.Reservation()
    kept.whole = whole
    monkeypatch.setattr(gpu_admission, "admit", lambda *words: kept)
    granted = preflight.take_gpu(config, build_algorithm(config))
    open_engine.open_engine(config, None, None, None, ErrorLog(None, None), granted)
    monkeypatch.setattr(
        agent_model.AgentModel, "take_gpu", lambda self, use: told.append((use.reserved, use.whole))
    )
    assert begun[0][0].func is build_worker
    begun[0][0]()
    assert told == [(True, whole)]


@pytest.mark.parametrize("packed", [True, False])
def test_a_critics_values_are_read_by_passes_of_so_many_tokens(
    packed, model, easier_game, monkeypatch, tmp_path
):
    """As all other passes of the learner are cut, by which memory is counted."""
    most, real, seen = 150, ppo.hidden_states, []

    def noted(model, batch):
        if not torch.is_grad_enabled():
            seen.append(batch.ids.numel() if packed else int(batch.mask.sum()))
        return real(model, batch)

    monkeypatch.setattr(ppo, "hidden_states", noted)
    for module in (logprobs, local_optimizer):
        monkeypatch.setattr(module, "packs", lambda model: packed)
    config = recipe(
        model, rounds=1, algorithm={"estimator": "ppo", "microbatch": 1000, "pass_tokens": most}
    )
    train(config, tmp_path)
    assert 0 < max(seen) <= most
    assert len(seen) > config.federation.cohort
