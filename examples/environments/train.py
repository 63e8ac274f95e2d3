"""Train a small agent in each of the environments here, over several seeds, and print the curve.

    python train.py higher_lower --seeds 0 1 2         # needs openenv-core
    python train.py word_hints                          # needs "verifiers<0.4"
    python train.py prices                             # needs nothing more

Every seed is a federation of two clients; minutes on a CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
from collections.abc import Sequence
from pathlib import Path

import prices
from beginner import Player, make_beginner
from transformers import PreTrainedTokenizerFast

import fedrl
from fedrl.config import parts
from fedrl.config.loading import read_recipe, resolve
from fedrl.envs.text import Turn
from fedrl.llm.builtin_tokenizers import bpe_tokenizer

WORDS = ("bat", "bit", "but", "cat", "cot", "cut", "hat", "hot", "hut")
TEMPLATE = (
    "{% for tool in tools %}{{ tool.function.name }}"
    "({{ tool.function.parameters.required | join }}) {% endfor %}"
    "{% for message in messages %}\n{{ message.role }}: {{ message.content }}"
    "{% for call in message.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>"
    "{% endfor %}{% endfor %}\nassistant:"
)


def guess_number(task: str, turn: Turn, rng: random.Random) -> str:
    """Every second time one of the numbers that are left."""
    low, high = re.findall(r"\d+", turn.observation) if rng.random() < 0.5 else (1, 20)
    return str(rng.randint(int(low), int(high)))


def guess_word(task: str, turn: Turn, rng: random.Random) -> str:
    return rng.choice(WORDS)


def clumsy_shopper(task: str, turn: Turn, rng: random.Random) -> str:
    """Asks for the right item every second time, and says the price that it was told likewise."""
    messages = turn.info.get("messages", ())
    if messages and messages[-1]["role"] == "user":
        wanted = messages[-1]["content"].split()[-2]
        item = wanted if rng.random() < 0.5 else rng.choice(list(prices.PRICES))
        call = {"name": "price", "arguments": {"item": item}}
        return f"<tool_call>{json.dumps(call)}</tool_call>"
    told = turn.observation
    return told if rng.random() < 0.5 else str(rng.choice(list(prices.PRICES.values())))


def shop_tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    tokenizer = bpe_tokenizer(texts, 360)
    tokenizer.chat_template = TEMPLATE
    return tokenizer


PLAYERS: dict[str, Player] = {
    "higher_lower": guess_number,
    "word_hints": guess_word,
    "prices": clumsy_shopper,
}


def prepare(name: str, flags: Sequence[str] = ()) -> Path:
    """The questions and the beginner that a recipe of this folder begins with; its path."""
    recipe = Path(f"{name}.toml")
    if name == "prices":
        prices.write(Path("questions"))
    config = resolve(read_recipe(recipe), flags)
    world = parts.world(config.world.name).make("world.name", config.world, 2, 0)
    more = {"prices": {"tokenizer": shop_tokenizer}, "word_hints": {"steps": 150}}
    make_beginner(world, PLAYERS[name], Path(config.algorithm.model), **more.get(name, {}))
    return recipe


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=PLAYERS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    asked, flags = parser.parse_known_args()  # the others are settings, as in `fedrl run`
    os.chdir(Path(__file__).parent)
    recipe = prepare(asked.name, flags)
    for seed in asked.seeds:
        run = fedrl.run(recipe, flags=[*flags, "--seed", str(seed)])
        curve = [
            f"{r}: {m['eval/success']:.0%}" for r, m in run.rounds.items() if "eval/success" in m
        ]
        print(f"seed {seed}, success by round   {'   '.join(curve)}", flush=True)


if __name__ == "__main__":
    main()
