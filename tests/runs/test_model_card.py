"""The card of an exported language model: all that it has to say, and no text of the data."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="language models need torch (fedrl[llm])")
pytest.importorskip("transformers", reason="language models need transformers (fedrl[llm])")

from support import own_prompts
from support.agent_runs import recipe, train
from support.small_talkers import talker

import fedrl
from fedrl.cli import call
from fedrl.core.data_outline import outlined
from fedrl.runs import model_card

pytestmark = pytest.mark.slow

CANARY = "quokka"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return talker(
        tmp_path_factory.mktemp("models") / "talker", "go to take 1 cabinet > ;", "", True
    )


@pytest.fixture(scope="module")
def run(model: Path, tmp_path_factory: pytest.TempPathFactory) -> fedrl.Run:
    """Prompts of one's own, in a private folder, with a canary in prompts, columns and names."""
    folder = tmp_path_factory.mktemp(f"{CANARY}-folder")
    rows = [
        {"question": f"{CANARY} {i}", "answer": f"{CANARY} 1", "topic": f"{CANARY}-topic-{i % 2}"}
        for i in range(20)
    ]
    (folder / "data.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (folder / "pay.py").write_text(
        "def paid(completions, **columns):\n    return [float('1' in said) for said in completions]"
    )
    world = {
        "name": "prompts", "source": str(folder / "data.jsonl"), "prompt": "question",
        "category": "topic", "reward": [f"{folder / 'pay.py'}:paid"], "test": 0.3,
    }  # fmt: skip
    more = {"rounds": 1, "federation": {"clients": 2, "cohort": 0}, "partition": {"size": 5}}
    config = recipe(model, algorithm={"eval_split": "test", "lora_rank": 2}, **more)
    tables = fedrl.config.loading.as_dict(config) | {"world": world}
    return fedrl.Run(train(fedrl.config.loading.resolve(tables), folder / "runs"))


def test_it_tells_of_data_in_counts_and_digests_alone(run: fedrl.Run, tmp_path: Path) -> None:
    run.export(tmp_path / "agent", license="apache-2.0")
    text = (tmp_path / "agent" / "README.md").read_text("utf-8")
    assert CANARY not in text
    assert str(run.path.parent) not in text
    front = text.split("---\n")[1]
    assert 'license: "apache-2.0"' in front
    assert 'library_name: "transformers"' in front
    digest = run.config["world"]["digest"]
    meta = json.loads((run.path / "meta.json").read_text())
    for told in (
        "| clients | 2 invited, 2 in a round; 2 trained in every round |",
        "in all, 5 by each client", f"`{digest}`",
        "No differential privacy: ε is infinite", "the server saw each client's update",
        "LoRA adapters of rank 2 were trained and are merged", f"| fedrl | {fedrl.__version__} |",
        f"| commit of fedrl | {meta['commit']} |", "| seed | 0 |", "algorithm.lora_rank = 2",
        'algorithm.model = "talker"', 'world.reward = [\n    "pay.py:paid",\n]',
        "```text\nPROMPT\n```", "Intervals are Wilson's, 95%, over the 6 tasks", "| success | ",
        '"max_tokens": 6',
    ):  # fmt: skip
        assert told in text, told
    for file in (tmp_path / "agent").iterdir():
        assert CANARY.encode() not in file.read_bytes(), file.name


def test_the_block_of_the_card_runs(run: fedrl.Run, tmp_path: Path, monkeypatch, capsys) -> None:
    run.export(tmp_path / "agent")
    text = (tmp_path / "agent" / "README.md").read_text("utf-8")
    monkeypatch.chdir(tmp_path)
    code = text.split("```python\n")[1].split("```")[0]
    exec(compile(code, "README.md", "exec"), {"prompt": "go to cabinet 1"})
    assert capsys.readouterr().out == run.policy().act("go to cabinet 1") + "\n"


def test_adapters_are_written_as_peft_reads_them(
    run: fedrl.Run, model: Path, tmp_path: Path
) -> None:
    peft = pytest.importorskip("peft", reason="LoRA needs peft (fedrl[llm])")
    import torch

    out, whole = tmp_path / "adapters", tmp_path / "whole"
    assert call(["export", str(run.path), "--out", str(out), "--adapters"]) == 0
    run.export(whole)
    assert not list(out.glob("model*"))
    text = (out / "README.md").read_text("utf-8")
    assert 'library_name: "peft"' in text
    assert CANARY not in text
    adapted = peft.AutoPeftModelForCausalLM.from_pretrained(out)
    from transformers import AutoModelForCausalLM

    merged = AutoModelForCausalLM.from_pretrained(whole)
    ids = torch.tensor([[3, 4, 5, 6]])
    torch.testing.assert_close(adapted(ids).logits, merged(ids).logits)
    first = AutoModelForCausalLM.from_pretrained(model)
    assert not torch.allclose(first(ids).logits, merged(ids).logits)


def test_privacy_is_said_plainly(model: Path) -> None:
    def lines(epsilon: float | None = None, **privacy) -> str:
        config = recipe(model, federation={"clients": 50, "cohort": 5}, privacy=privacy)
        return " ".join(model_card.privacy_lines(config, epsilon))

    assert "ε is infinite" in lines()
    clipped = lines(clip=0.5)
    assert "length 0.5 (L2)" in clipped
    assert "ε is infinite" in clipped
    noisy = lines(3.21, clip=0.5, noise=1.5, delta=1e-5)
    assert "(ε, δ) = (3.21, 1e-05) for each client" in noisy
    assert "multiplier 1.5 on the sum" in noisy
    assert "infinite" not in noisy
    assert "protects nobody" in lines(3.21, clip=0.5, noise=1.5, seeded=True)
    assert "every client on its own update" in lines(9.0, clip=1.0, noise=1.0, where="local")
    assert "saw only sums" in lines(clip=0.5, secure=True)
    alone = recipe(model, federation={"kind": "centralized", "cohort": 0})
    assert model_card.privacy_lines(alone, None) == [
        "None: this is a centralized model, not a federated one."
    ]


def test_epsilon_is_that_of_the_models_round(model: Path, tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting", reason="ε needs dp-accounting (fedrl[privacy])")
    noisy = {"clip": 0.5, "noise": 1.0}
    path = train(recipe(model, rounds=1, privacy=noisy), tmp_path / "runs")
    fedrl.Run(path).export(tmp_path / "agent")
    text = (tmp_path / "agent" / "README.md").read_text("utf-8")
    spent = fedrl.Run(path).rounds[1]["privacy/epsilon"]
    assert f"(ε, δ) = ({spent:.4g}, 1e-05)" in text


@pytest.mark.parametrize(
    "name, told",
    [
        ("org/model-1b", "org/model-1b"), ("./models/mine", "mine"), ("/home/me/models/x", "x"),
        ("models/deep/down", "down"), ("file.gguf", "file.gguf"),
    ],
)  # fmt: skip
def test_a_model_is_told_without_its_path(name: str, told: str) -> None:
    assert model_card.base_name(name) == told


def test_the_licence_of_the_first_model_goes_along(model: Path, tmp_path: Path) -> None:
    readme = model / "README.md"
    readme.write_text('---\ntags: ["a"]\nlicense: "mit"\n---\n# x\nlicense: no\n')
    try:
        path = train(recipe(model, rounds=1), tmp_path / "runs")
        fedrl.Run(path).export(tmp_path / "agent")
        assert 'license: "mit"' in (tmp_path / "agent" / "README.md").read_text("utf-8")
    finally:
        readme.unlink()


@pytest.mark.parametrize(
    "words, said",
    [
        (["--license", "my own: terms"], "name it in one word"),
        (["--client", "0"], "leave --client and --own out"),
    ],
)
def test_a_mistake_is_one_line(run: fedrl.Run, tmp_path: Path, words, said: str, capsys) -> None:
    assert call(["export", str(run.path), "--out", str(tmp_path / "x"), *words]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_no_adapters_where_none_were_trained(model: Path, tmp_path: Path, capsys) -> None:
    path = train(recipe(model, rounds=1), tmp_path / "runs")
    words = ["export", str(path), "--out", str(tmp_path / "x"), "--adapters"]
    assert call(words) == 2
    assert "there are no adapters" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_settings_are_toml_as_a_recipe_has_it(model: Path) -> None:
    config = replace(recipe(model), packages=("reward.py:file:f7e1",))
    told = tomllib.loads("\n".join(model_card.settings_lines(config)))
    assert told["packages"] == ["reward.py:file:f7e1"]
    assert told["algorithm"]["name"] == "fedagent"


def test_digests_are_of_all_ids_in_any_order() -> None:
    one, other = (
        outlined("tasks", [2], ["a", "b"], ["c"]),
        outlined("tasks", [2], ["b", "a"], ["c"]),
    )
    assert one == other
    assert outlined("tasks", [2], ["a", "x"], ["c"]).training_digest != one.training_digest
    assert (one.trained, one.evaluated, one.held) == (2, 1, (2,))


@pytest.mark.parametrize("held_out", ["public", "clients"])
def test_of_clients_who_bring_their_own_data_nothing_is_counted(
    tmp_path: Path, held_out: str
) -> None:
    place = own_prompts.organisations(tmp_path / "data", CANARY)
    more = {"rounds": 1, "partition": {"held_out": held_out}}
    run = fedrl.Run(train(own_prompts.recipe(place, tmp_path, **more), tmp_path / "runs"))
    run.export(tmp_path / "agent")
    text = (tmp_path / "agent" / "README.md").read_text("utf-8")
    assert CANARY not in text
    assert "| tasks for training | each client's own; a simulation on one machine |" in text
    record = (tmp_path / "agent" / "warmstart.json").read_text("utf-8")
    assert str(tmp_path) not in record
    assert json.loads(record)["world"]["source"] == "sums.jsonl"
    if held_out == "public":
        assert "| tasks for evaluation | 3" in text
        assert "over the 3 tasks" in text
    else:
        assert "| tasks for evaluation | what each client holds out of its own |" in text
        assert "Means over clients" in text
    assert isinstance(run.policy().act("2+2="), str)
