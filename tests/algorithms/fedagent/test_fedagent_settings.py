"""What used to be constants of FedAgent: the settings say it, and it is what is computed with."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="FedAgent needs the extra llm")
transformers = pytest.importorskip("transformers", reason="FedAgent needs the extra llm")
pytest.importorskip("peft", reason="LoRA needs peft (fedrl[llm])")

from support.agent_runs import last, recipe, train
from support.tiny_model import rollout

from fedrl import cli
from fedrl.algorithms.fedagent import memory_estimate
from fedrl.algorithms.fedagent.local_optimizer import LocalOptimizer
from fedrl.config.build import build_algorithm
from fedrl.core.types import Job, UserError
from fedrl.engines.flower import policy_check
from fedrl.engines.flower.node_plan import Refused
from fedrl.engines.flower.policy import Policy
from fedrl.llm import policy as policies
from fedrl.llm.policy import load
from fedrl.llm.rl import advantages, ppo
from fedrl.runs import train as runs

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("easier_game")]

PLAYED = rollout(
    [[("a", 0.0), ("b", 1.0)], [("a", 1.0)], [("b", 0.0), ("a", 0.5)], [("c", -1.0)]], [0] * 4
)
LORA = {"lora_rank": 2, "lora_alpha": 8}
PPO = {"estimator": "ppo", "critic_lr": 1e-4}


def update(model, **change) -> dict[str, np.ndarray]:
    algorithm = build_algorithm(recipe(model, algorithm=change))
    return algorithm.local(Job(0, algorithm.broadcast(algorithm.init(0), 1), None, 3)).update


def differ(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return any(not np.array_equal(one[name], other[name]) for name in one)


# Discounts


@pytest.mark.parametrize(
    "change, expected",
    [
        ({}, advantages.grpo(PLAYED)),
        ({"gamma": 0.7}, advantages.grpo(PLAYED, gamma=0.7)),
        ({"estimator": "rloo"}, advantages.rloo(PLAYED)),
        ({"estimator": "rloo", "gamma": 0.7}, advantages.rloo(PLAYED, 0.7)),
        ({"estimator": "gigpo"}, advantages.gigpo(PLAYED, 0.95, 1.0)),
        (
            {"estimator": "gigpo", "gamma": 0.7, "gigpo_gamma": 0.4, "gigpo_omega": 0.3},
            advantages.gigpo(PLAYED, 0.4, 0.3, episode_gamma=0.7),
        ),
    ],
    ids=lambda change: "-".join(change) if isinstance(change, dict) else "",
)
def test_steps_are_judged_as_the_settings_say(model, change, expected):
    found = build_algorithm(recipe(model, algorithm=change)).advantage(PLAYED)
    np.testing.assert_array_equal(found, expected)


def test_the_critic_is_as_the_settings_say(model):
    usual = build_algorithm(recipe(model, algorithm={"estimator": "ppo"})).trainer.critic
    assert usual == ppo.Critic(1e-5, 0.5, 1.0, 1.0) == ppo.Critic()
    change = {"gamma": 0.9, "gae_lambda": 0.8, "value_clip": 0.1, "critic_lr": 1e-3}
    told = build_algorithm(recipe(model, algorithm={"estimator": "ppo"} | change)).trainer.critic
    assert told == ppo.Critic(lr=1e-3, clip=0.1, gamma=0.9, trace=0.8)


@pytest.mark.parametrize("change", [{"gamma": 0.5}, {"gae_lambda": 0.2}, {"value_clip": 1e-4}])
def test_each_of_them_moves_what_ppo_learns(model, change):
    base = {"estimator": "ppo", "critic_lr": 1e-1, "minibatch": 3, "local_epochs": 2}
    assert differ(update(model, **base), update(model, **base, **change))


# Adapters


def test_targets_alone_are_trained_sent_and_planned(model):
    change = LORA | {"lora_targets": ["q_proj", "down_proj"]}
    config = recipe(model, algorithm=change)
    algorithm = build_algorithm(config)
    theta = algorithm.init(0)["theta"]
    assert {name.partition(".lora_")[0].rpartition(".")[2] for name in theta} == {
        "q_proj", "down_proj"
    }  # fmt: skip
    size = 2 * (32 + 32) + 2 * (96 + 32)  # rank 2, one layer
    assert sum(array.size for array in theta.values()) == size
    found = memory_estimate.estimate_memory(config.algorithm, 0)
    assert found.trained == {name: array.shape for name, array in theta.items()}
    assert f"a client sends {size} numbers: " in "\n".join(runs.plan(config))


def test_an_export_merges_targets_and_scaling(model, tmp_path):
    change = LORA | {"lora_targets": ["q_proj"], "rslora": True, "lr": 1e-2}
    path = train(recipe(model, rounds=1, algorithm=change), tmp_path / "runs")
    assert cli.call(["export", str(path), "--out", str(tmp_path / "mine")]) == 0
    theta, here = last(path).states[0]["theta"], torch.device("cpu")
    name = "model.layers.0.self_attn.q_proj"
    a, b = (theta[f"base_model.model.{name}.lora_{x}.default.weight"] for x in "AB")
    assert b.any()
    before, after = (
        load(str(folder), here).model.get_parameter(f"{name}.weight").detach().numpy()
        for folder in (model, tmp_path / "mine")
    )
    np.testing.assert_allclose(after, before + 8 / np.sqrt(2) * b @ a, atol=1e-6)


def test_adapters_may_learn_at_a_rate_of_their_own(model):
    one = update(model, **LORA, lr=1e-3, lora_lr=5e-3)
    same = update(model, **LORA, lr=5e-3)
    assert not differ(one, same)
    assert differ(one, update(model, **LORA, lr=1e-3))
    algorithm = build_algorithm(recipe(model, algorithm=LORA | {"lora_lr": 5e-3} | PPO))
    rates = LocalOptimizer(
        algorithm.trainer, algorithm, algorithm.init(0), torch.Generator(), None
    ).optimizer.param_groups
    assert [group["lr"] for group in rates] == [5e-3, 1e-4]


# Four bits


def test_without_its_package_four_bits_are_one_line(model):
    if find_spec("bitsandbytes") is not None:
        pytest.skip("bitsandbytes is installed here")
    algorithm = build_algorithm(recipe(model, algorithm=LORA | {"four_bit": True}))
    with pytest.raises(UserError, match=r"algorithm\.four_bit needs the package bitsandbytes") as e:
        algorithm.init(0)
    assert "\n" not in str(e.value)


def test_how_four_bits_are_asked_for(model, monkeypatch):
    """transformers is given NF4 with its scales quantised; all else goes on as it does."""
    asked = {}
    original = transformers.AutoModelForCausalLM.from_pretrained

    def pretend(name, **more):
        asked.update({key: more.pop(key) for key in ("quantization_config", "device_map")})
        return original(name, **more)

    def there(name, *more):
        return object() if name == "bitsandbytes" else find_spec(name, *more)

    plain = update(model, **LORA)
    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", pretend)
    monkeypatch.setattr("importlib.util.find_spec", there)
    found = update(model, **LORA, four_bit=True)
    how = asked["quantization_config"]
    assert (how.load_in_4bit, how.bnb_4bit_quant_type) == (True, "nf4")
    assert how.bnb_4bit_use_double_quant
    assert how.bnb_4bit_compute_dtype is torch.float32
    assert asked["device_map"] == {"": "cpu"}
    assert not differ(plain, found)
    assert policies.quantisation(str(model), torch.device("cuda", 1))[
        "quantization_config"
    ].bnb_4bit_compute_dtype is torch.bfloat16  # fmt: skip


def test_four_bits_and_targets_are_planned(model):
    def planned(**change):
        settings = recipe(model, algorithm=LORA | {"device": "cuda"} | change).algorithm
        return memory_estimate.estimate_memory(settings, 0).memory

    linear = 4 * 32 * 32 + 3 * 32 * 96
    whole, packed = planned(rollouts="plain"), planned(four_bit=True)
    assert whole.weights - packed.weights == round(linear * (4 - 0.5 - 1 / 64 - 4 / 64 / 256))
    assert packed.sampler == 0  # no engine reads them
    assert packed[1:6] == whole[1:6]
    few = planned(lora_targets=["q_proj"])
    assert few.gradients == 4 * 2 * (32 + 32)
    assert few.activations == planned().activations  # the packed learner keeps the same for any
    padded = planned(device="cpu")
    assert planned(device="cpu", lora_targets=["q_proj"]).activations < padded.activations


# Prompts


def test_a_run_tells_its_agent_in_words_of_ones_own(model, tmp_path, monkeypatch):
    (tmp_path / "mine.txt").write_text("{goal} >\n{history}\n{observation}\n<action>")
    monkeypatch.chdir(tmp_path)
    change = {"format": "chat", "template": "mine.txt", "history": 1, "prompt_tokens": 900}
    config = recipe(model, algorithm=change)
    path = train(config, tmp_path / "runs")
    algorithm = build_algorithm(config)
    played = algorithm.play_tasks(last(path).states[0]["theta"], algorithm.eval_tasks[:1], 0)
    prompts = [prompt for prompt, _, _ in played.transcripts[0]]
    assert all(" >\n" in prompt and prompt.endswith("\n<action>") for prompt in prompts)
    assert [prompt.count("you saw:") for prompt in prompts] == [0] + [1] * (len(prompts) - 1)
    monkeypatch.chdir("/")  # a run remembers where its file is
    config, directory = runs.resume(path, ["--rounds", "3"])
    runs.train(config, directory, build_algorithm(config))


def test_a_node_reads_templates_of_its_own_folder_alone(model, tmp_path):
    def check(template: str) -> None:
        config = recipe(model, algorithm={"template": template})
        policy_check.check(
            config, Policy(), policy_check.Node(tmp_path, frozenset({"algorithm.model"}))
        )  # fmt: skip

    check("mine.txt")
    for elsewhere in ("/etc/passwd", "../mine.txt", "~/mine.txt"):
        with pytest.raises(Refused, match=r"algorithm\.template: this node opens only files of"):
            check(elsewhere)


@pytest.mark.parametrize(
    "change, told",
    [
        ({"gamma": 1.1}, r"gamma is 1\.1; it lies in \[0, 1\]"),
        ({"gigpo_gamma": -0.1}, "gigpo_gamma"),
        ({"gae_lambda": 2.0}, "gae_lambda"),
        ({"gigpo_omega": -1.0}, "gigpo_omega is -1"),
        ({"value_clip": 0.0}, "value_clip is 0"),
        ({"history": -2}, "history is -2; it is a number of turns"),
        ({"lora_targets": ["q_proj"]}, "lora_targets is for adapters: set algorithm.lora_rank"),
        ({"rslora": True}, "rslora is for adapters"),
        ({"lora_lr": 1e-3}, "lora_lr is for adapters"),
        ({"lora_rank": 2, "lora_lr": -1e-3}, "lora_lr is -0.001"),
        ({"four_bit": True}, "four_bit is for weights that are not trained"),
        ({"lora_rank": 2, "four_bit": True, "rollouts": "vllm"}, "reads whole weights"),
        ({"lora_rank": 2, "lora_targets": ["query"]}, "no linear layer 'query'"),
        ({"template": "none.txt"}, r"algorithm\.template is 'none.txt'"),
        ({"template": "none.txt", "format": "chat"}, "cannot read none.txt"),
    ],
)
def test_mistakes_are_named(model, change, told):
    with pytest.raises(UserError, match=told) as raised:
        build_algorithm(recipe(model, algorithm=change)).init(0)
    assert "\n" not in str(raised.value)
