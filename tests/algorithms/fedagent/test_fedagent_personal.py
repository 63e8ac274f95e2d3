"""Adapters that a client keeps for itself: they never leave it, and make it a model of its own."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="FedAgent needs the extra llm")
pytest.importorskip("transformers", reason="FedAgent needs the extra llm")
pytest.importorskip("peft", reason="LoRA needs peft (fedrl[llm])")

from support import own_prompts
from support.agent_runs import last, recipe, train

from fedrl import cli
from fedrl.aggregation.mean import mean
from fedrl.algorithms.fedagent import memory_estimate
from fedrl.algorithms.fedagent.algorithm import OWN, FedAgent
from fedrl.api import Run
from fedrl.config.build import build_algorithm
from fedrl.core import tree
from fedrl.core.types import Job, UserError
from fedrl.engines.in_process import InProcess
from fedrl.engines.worker_pool import WorkerPool
from fedrl.envs.text import PartitionedWorld, Task, Turn
from fedrl.federation import client_sampling, round_loop
from fedrl.llm import builtin_model
from fedrl.llm.builtin_tokenizers import entity_tokenizer
from fedrl.llm.export import write_model
from fedrl.llm.generation.hf import HFSampler
from fedrl.llm.lora import is_personal, without_adapters
from fedrl.llm.policy import load
from fedrl.llm.rl.batches import to_rows
from fedrl.llm.rl.logprobs import answer_logprobs
from fedrl.llm.rollout import Sample
from fedrl.llm.weights import MergedWeights
from fedrl.runs import train as runs
from fedrl.runs.evaluate import evaluate

pytestmark = pytest.mark.slow

OVER_ALL = {"personal_rank": 2, "lora_alpha": 8, "lr": 1e-3, "lora_lr": 1e-2}
OVER_ADAPTERS = OVER_ALL | {"lora_rank": 3}
BOTH = pytest.mark.parametrize("change", [OVER_ALL, OVER_ADAPTERS], ids=["all", "adapters"])
TWO = {"clients": 2, "cohort": 2}


def begun(model: Path, change: dict) -> tuple[FedAgent, dict]:
    algorithm = build_algorithm(recipe(model, algorithm=change))
    return algorithm, algorithm.init(5)


@BOTH
def test_what_a_client_keeps_is_in_nothing_that_it_sends(model, change):
    algorithm, state = begun(model, change)
    sent = algorithm.broadcast(state, 1)
    result = algorithm.local(Job(0, sent, None, 3))
    assert result.update.keys() == algorithm.declare(sent).keys() == sent["theta"].keys()
    assert not any(map(is_personal, result.update))
    own = result.state[OWN]
    assert own
    assert all(map(is_personal, own))
    assert any(array.any() for name, array in own.items() if ".lora_B." in name)  # it has learned
    assert any(array.any() for array in result.update.values())  # and so has what is shared
    everything = b"".join(array.tobytes() for array in result.update.values())
    assert not any(array.tobytes() in everything for array in own.values() if array.any())


@BOTH
def test_a_client_begins_with_the_shared_model_to_the_bit(model, change):
    algorithm, state = begun(model, change)
    theta, tasks = state["theta"], [task.id for task in algorithm.eval_tasks]
    new = algorithm.trainer.actor.new_personal_adapters(7)
    assert any(array.any() for array in new.values())
    shared = algorithm.trainer.play(theta, tasks, 1, transcripts=True)
    mine = algorithm.trainer.play(theta | new, tasks, 1, transcripts=True)
    assert shared.transcripts == mine.transcripts
    assert [s.logprobs for s in shared.samples] == [s.logprobs for s in mine.samples]
    plain = load(str(model), torch.device("cpu")).model  # the model that the run began with
    algorithm.trainer.actor.load(theta)
    for name, weight in MergedWeights(algorithm.trainer.policy.model).items():
        assert torch.equal(weight, plain.get_parameter(name)), name
    one, other = (algorithm.trainer.actor.new_personal_adapters(seed) for seed in (7, 8))
    assert all(np.array_equal(one[name], new[name]) for name in new)
    assert any(not np.array_equal(one[name], other[name]) for name in new)


def test_shared_adapters_begin_as_they_do_without_personal_ones(model):
    _, with_own = begun(model, OVER_ADAPTERS)
    _, without = begun(model, OVER_ADAPTERS | {"personal_rank": 0})
    assert with_own["theta"].keys() == without["theta"].keys()
    for name, array in without["theta"].items():
        assert np.array_equal(array, with_own["theta"][name])


@BOTH
@pytest.mark.parametrize("kept", ["fresh", "kept"])
def test_the_next_round_goes_on_with_them(model, change, kept):
    algorithm, state = begun(model, change | {"optimizer_state": kept})
    sent = algorithm.broadcast(state, 1)
    first = algorithm.local(Job(0, sent, None, 3))
    assert ("step" in first.state) == (kept == "kept")
    before = {name: np.copy(leaf) for name, leaf in tree.leaves(first.state)}
    second = algorithm.local(Job(0, sent, first.state, 4))
    anew = algorithm.local(Job(0, sent, None, 4))
    assert any(not np.array_equal(a, anew.state[OWN][n]) for n, a in second.state[OWN].items())
    assert {n: a.tobytes() for n, a in tree.leaves(first.state)} == {
        n: a.tobytes() for n, a in before.items()
    }
    again = algorithm.local(Job(0, sent, first.state, 4))  # a round that is tried again
    assert all(np.array_equal(a, again.state[OWN][n]) for n, a in second.state[OWN].items())


class Memory:
    def __init__(self) -> None:
        self.rounds: list[round_loop.Round] = []
        self.snapshot: round_loop.Snapshot | None = None

    def load(self):
        return self.snapshot

    def log(self, done):
        self.rounds.append(done)

    def log_clients(self, records):
        raise AssertionError(records)

    def checkpoint(self, snapshot):
        self.snapshot = snapshot


def rounds_on(engine, algorithm, store=None, rounds: int = 2) -> Memory:
    store = store or Memory()
    round_loop.run(
        client_sampling.Settings(clients=2), algorithm, engine, mean, store, seed=1, rounds=rounds
    )
    return store


@pytest.fixture
def one_thread():
    """As a worker computes; more of them add up in another order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@BOTH
@pytest.mark.usefixtures("one_thread")
def test_every_engine_keeps_them_alike(model, change, tmp_path, monkeypatch):
    pytest.importorskip("flwr", reason="needs the extra flower")
    from support.flower_nodes import Net

    few = {"tasks": 2, "eval_tasks": 1}
    config = recipe(model, federation={"clients": 2, "cohort": 0}, algorithm=change | few)
    algorithm = build_algorithm(config)
    here = rounds_on(InProcess(algorithm), algorithm)
    theta = here.snapshot.states[0]["theta"]
    assert not any(map(is_personal, theta))
    with WorkerPool(partial(build_algorithm, config), 1) as pool:
        beside = rounds_on(pool, build_algorithm(config))
    monkeypatch.setattr("fedrl.engines.flower.node_calls.POLL_SECONDS", 0.01)
    net = Net(build_algorithm(config), tmp_path, 2)
    messages: list[bytes] = []

    def overheard(answer):
        messages.append(repr(answer.content).encode())
        return answer

    net.spoil = overheard
    server = build_algorithm(config)  # in another process than the clients
    nodes = rounds_on(net.engine(piece_mb=1.0), server, rounds=1)
    there = rounds_on(net.engine(piece_mb=1.0), server, nodes)  # resumed
    for other in (beside, there):
        assert [r.metrics for r in other.rounds] == [r.metrics for r in here.rounds]
        for name, array in theta.items():
            assert np.array_equal(array, other.snapshot.states[0]["theta"][name]), name
    assert messages
    assert not any(b"personal" in message for message in messages)
    for client, kept in here.snapshot.clients.items():
        for name, array in kept[OWN].items():
            assert np.array_equal(array, beside.snapshot.clients[client][OWN][name])
    assert all(OWN not in kept for kept in there.snapshot.clients.values())  # the server has none


def test_a_resumed_run_equals_an_undisturbed_one(model, tmp_path):
    change = OVER_ADAPTERS | {"optimizer_state": "kept", "kl": 0.05}
    whole = train(recipe(model, rounds=3, federation=TWO, algorithm=change), tmp_path / "a")
    half = train(recipe(model, rounds=1, federation=TWO, algorithm=change), tmp_path / "b")
    config, directory = runs.resume(half, ["--rounds", "3"])
    runs.train(config, directory, build_algorithm(config))
    one, other = (dict(tree.leaves(last(path).clients[1])) for path in (whole, half))
    assert one.keys() == other.keys()
    assert all(np.array_equal(one[name], other[name]) for name in one)
    assert (whole / "metrics.jsonl").read_bytes() == (half / "metrics.jsonl").read_bytes()


def test_the_reference_stays_the_model_that_the_run_began_with(model):
    """Also where the whole model is trained under a client's adapters."""
    algorithm, state = begun(model, OVER_ALL | {"kl": 0.05})
    found = [Sample(0, 0, [5, 6, 7], [8, 9], [-1.0, -1.0], "")]
    rows = to_rows(found, 0, torch.device("cpu"))
    plain = load(str(model), torch.device("cpu")).model
    algorithm.local(Job(0, algorithm.broadcast(state, 1), None, 3))
    with torch.no_grad(), without_adapters(algorithm.trainer.reference):
        told, _ = answer_logprobs(algorithm.trainer.reference, rows, 1.0)
        expected, _ = answer_logprobs(plain, rows, 1.0)
        now, _ = answer_logprobs(algorithm.trainer.policy.model, rows, 1.0)
    torch.testing.assert_close(told, expected)
    assert not torch.allclose(now, expected)


@BOTH
def test_memory_counts_them_and_the_wire_does_not(model, change):
    config = recipe(model, algorithm=change)
    found = memory_estimate.estimate_memory(config.algorithm, 0)
    algorithm = build_algorithm(config)
    theta = algorithm.init(0)["theta"]
    own = algorithm.trainer.actor.new_personal_adapters(0)
    kept, sent = (sum(array.size for array in part.values()) for part in (own, theta))
    assert found.trained == {name: array.shape for name, array in theta.items()}
    assert found.kept == kept == 2 * (4 * (32 + 32) + 3 * (32 + 96))
    assert found.memory.gradients == 4 * (sent + kept)
    lines = "\n".join(runs.plan(config))
    assert f"a client sends {sent:,} numbers" in lines
    assert f"a client keeps {kept:,} of them for itself" in lines


@pytest.mark.parametrize(
    "change, told",
    [
        ({"personal_rank": -1}, "personal_rank is -1"),
        ({"personal_rank": 2, "beta": 0.5, "entropy": 0.0}, "keeps a part from them"),
        ({"personal_rank": 2, "four_bit": True}, "four_bit is for weights that are not trained"),
    ],
)
def test_mistakes_are_named(model, change, told):
    with pytest.raises(UserError, match=told):
        recipe(model, algorithm=change)


@pytest.mark.parametrize("kind", ["centralized", "local", "independent"])
def test_who_learns_alone_has_nobody_to_keep_them_from(model, kind):
    config = recipe(model, federation={"kind": kind, "cohort": 0}, algorithm=OVER_ALL)
    with pytest.raises(UserError, match="personal_rank is for clients that share a model"):
        build_algorithm(config)


# In use


@BOTH
def test_evaluation_and_export_of_a_clients_own_agent(model, change, tmp_path, capsys):
    from transformers import AutoModelForCausalLM

    path = train(recipe(model, federation=TWO, algorithm=change), tmp_path / "runs")
    assert cli.call(["eval", str(path), "--episodes", "3"]) == 0
    told = capsys.readouterr().out
    assert "of its own model" in told
    assert "of their own models: mean" in told
    found, snapshot = evaluate(path, 3, 0), last(path)
    algorithm, theta = build_algorithm(recipe(model, algorithm=change)), snapshot.states[0]["theta"]
    assert found.own.shape == found.by_client.shape == (2,)
    out = {None: tmp_path / "shared", 1: tmp_path / "mine"}
    assert cli.call(["export", str(path), "--out", str(out[None])]) == 0
    flags = ["--client", "1", "--own"]
    assert cli.call(["export", str(path), "--out", str(out[1]), *flags]) == 0
    prompts, seed = [[5, 6, 7], [8, 9]], 2
    said = {}
    for client, folder in out.items():
        own = {} if client is None else snapshot.clients[client][OWN]
        algorithm.trainer.actor.load(theta | own)
        policy = algorithm.trainer.policy
        saved = AutoModelForCausalLM.from_pretrained(folder).eval()
        answers = [
            HFSampler(each, policy.end, policy.pad).generate(
                prompts, 6, 1.0, torch.Generator().manual_seed(seed)
            )
            for each in (policy.model, saved)
        ]
        assert answers[0].tokens == answers[1].tokens
        for x, y in zip(*(a.logprobs for a in answers), strict=True):
            assert y == pytest.approx(x, abs=1e-4)
        said[client] = answers[0].logprobs
    assert said[None] != said[1]
    assert "client 1's own model" in (out[1] / "README.md").read_text("utf-8")
    assert "own model" not in (out[None] / "README.md").read_text("utf-8")
    run = Run(path)
    question = "task put egg in fridge 1 >"
    answers = [run.policy().act(question), run.policy(client=1, own=True).act(question)]
    assert all(isinstance(answer, str) for answer in answers)
    capsys.readouterr()
    assert cli.call(["export", str(path), "--out", str(tmp_path / "x"), "--client", "1"]) == 2
    assert cli.call(["export", str(path), "--out", str(tmp_path / "x"), "--client", "7", "--own"])
    assert "holds no adapters of this client's own" in capsys.readouterr().err


def test_where_clients_hold_out_tasks_they_tell_of_both_models(tmp_path):
    place = own_prompts.organisations(tmp_path)
    algorithm = build_algorithm(
        own_prompts.recipe(
            place, tmp_path / "runs", "--algorithm.personal_rank", "2",
            partition={"held_out": "clients"},
        )
    )  # fmt: skip
    sent = algorithm.broadcast(algorithm.init(0), 1)
    first = algorithm.local(Job(0, sent, None, 3))
    assert first.metrics["held/own_success"] == first.metrics["held/success"]  # nothing yet
    assert first.metrics.keys() <= algorithm.reports
    judged = []
    algorithm.judge = lambda job, own=None: judged.append(own) or np.zeros(2)
    second = algorithm.local(Job(0, sent, first.state, 4))
    assert second.metrics["held/own_success"] == 0.0
    assert judged[0] == {}  # the model that all share
    assert all(np.array_equal(judged[1][n], a) for n, a in first.state[OWN].items())


class Doors:
    """One question, and two kinds of task whose answers are each other's mistakes."""

    name, splits, max_steps = "doors", ("train", "unseen"), 1

    def tasks(self, split):
        return [Task(f"{side}-{split}-{i}", side) for side in ("left", "right") for i in range(2)]

    def start(self, task, seed=0):
        return Door(task.partition("-")[0]), Turn("doors", 0.0, False, (), {"won": False})


class Door:
    goal = "choose"

    def __init__(self, side: str) -> None:
        self.side = side

    def step(self, command: str) -> Turn:
        won = command == self.side
        return Turn("", float(won), True, (), {"won": won})


@pytest.mark.parametrize("rank", [0, 2], ids=["all", "adapters"])
def test_two_clients_with_opposite_tasks_both_learn(rank, tmp_path):
    """No shared policy wins more than half of both clients' tasks: to both it is one question."""
    words = entity_tokenizer(["task choose ; saw doors >", "left right up down"])
    shape = builtin_model.Shape(width=32, layers=1)
    write_model(builtin_model.build_model(words, shape), words, tmp_path / "model")
    settings = replace(
        recipe(tmp_path / "model").algorithm,
        model=str(tmp_path / "model"), answer_tokens=1, tasks=2, group=64, local_epochs=4, lr=1e-3,
        lora_lr=2e-2, lora_rank=rank, lora_alpha=8, personal_rank=2, entropy=0.0, eval_tasks=1,
    )  # fmt: skip
    world = Doors()
    shares = [[task.id for task in world.tasks("train") if task.category == side]
              for side in ("left", "right")]  # fmt: skip
    algorithm = FedAgent(settings, PartitionedWorld(world, shares), 8, [[0], [1]])
    store = rounds_on(InProcess(algorithm), algorithm, rounds=8)
    state, clients = store.snapshot.states[0], store.snapshot.clients
    prompt = words("task choose ; saw doors >", add_special_tokens=False)["input_ids"]

    def chances(theta) -> list[float]:
        """Of "left" and "right"."""
        algorithm.trainer.actor.load(theta)
        with torch.no_grad():
            logits = algorithm.trainer.policy.model(input_ids=torch.tensor([prompt])).logits[0, -1]
        return logits.softmax(-1)[words.convert_tokens_to_ids(["left", "right"])].tolist()

    left, right = (chances(algorithm.own_theta(state, clients[k])) for k in (0, 1))
    assert left[0] > 0.8
    assert right[1] > 0.8
    assert sum(chances(state["theta"])) / 2 <= 0.5 + 1e-6
