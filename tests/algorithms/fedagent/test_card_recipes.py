"""The recipes for cards of 24 and 80 GB fit there by the estimate, and the page has its numbers."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace

import pytest

pytest.importorskip("torch", reason="language models need torch (fedrl[llm])")
pytest.importorskip("transformers", reason="language models need transformers")
pytest.importorskip("peft", reason="LoRA needs peft (fedrl[llm])")

from support.repository import DOCS

from fedrl import api
from fedrl.algorithms.fedagent.memory_estimate import estimate_memory
from fedrl.llm.memory import CALIBRATION

pytestmark = pytest.mark.slow
SHAPES = {  # of Qwen2.5: hidden, intermediate, layers, heads, key-value heads, vocabulary, tied
    "0.5B": (896, 4864, 24, 14, 2, 151936, True),
    "1.5B": (1536, 8960, 28, 12, 2, 151936, True),
    "3B": (2048, 11008, 36, 16, 2, 151936, True),
    "7B": (3584, 18944, 28, 28, 4, 152064, False),
}
KEYS = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
        "num_key_value_heads", "vocab_size", "tie_word_embeddings")  # fmt: skip
EVALUATED = {"household": 134, "webshop": 500}
CARDS = {"_lora": ("1.5B", 24), "_7b_lora": ("7B", 80)}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    kind = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]}
    for name, shape in SHAPES.items():
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps(kind | dict(zip(KEYS, shape))))
    return folder


def on_a_card(recipe: str, model) -> tuple[float, float]:
    """Gigabytes on a GPU, and those that a client sends."""
    settings = api.configure(f"fedagent/{recipe}", []).algorithm
    world = recipe.partition("_")[0]
    found = estimate_memory(replace(settings, model=str(model), device="cuda"), EVALUATED[world])
    sent = sum(4 * math.prod(shape) for shape in found.trained.values())
    return found.memory.least / 1e9, sent / 1e9


@pytest.mark.parametrize("world", EVALUATED)
@pytest.mark.parametrize("kind", CARDS)
def test_a_recipe_fits_the_card_that_it_names(models, world, kind):
    size, card = CARDS[kind]
    recipe = f"{world}{kind}"
    told = api.configure(f"fedagent/{recipe}", []).algorithm
    assert told.model == f"Qwen/Qwen2.5-{size}-Instruct"
    needed, _ = on_a_card(recipe, models / size)
    assert 0.5 * card < needed + CALIBRATION.context / 1e9 < 0.95 * card
    whole, _ = on_a_card(world, models / size)
    assert whole > card, "without adapters it would fit as well"


def test_the_table_of_cards_is_the_estimate(models):
    table = (DOCS / "agents.md").read_text("utf-8").split("### Which model on which card")[1]
    rows = re.findall(r"^\| (\S+B) \| (.+) \|$", table.split("\n## ")[0], re.M)
    assert [size for size, _ in rows] == list(SHAPES)
    for size, cells in rows:
        recipes = ("household", "household_lora", "webshop", "webshop_lora")
        found = [on_a_card(recipe, models / size) for recipe in recipes]
        said = cells.split(" | ")
        assert said[:4] == [marked(gigabytes) for gigabytes, _ in found]
        assert said[4] == f"{found[0][1]:.1f} GB / {1000 * found[1][1]:.0f} MB"


def marked(gigabytes: float) -> str:
    context = CALIBRATION.context / 1e9
    sign = "**" if gigabytes + context < 24 else "*" if gigabytes + context < 80 else ""
    return f"{sign}{gigabytes:.1f}{sign}"
