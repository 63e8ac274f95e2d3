"""Models with random weights and the prompts that they are given."""

from __future__ import annotations

import copy
import random
from typing import Any

import harness
import torch
from torch import nn

from language.timing import DEVICE, DTYPE, GPU

SMOLLM2 = ("llama", 576, 30, 9, 3, 1536, 49_152, True)
SHAPES = {  # kind, width, layers, heads, key-value heads, inner width, vocabulary, tied
    "qwen2.5-1.5b": ("qwen2", 1536, 28, 12, 2, 8960, 151_936, True),
    "qwen2.5-3b": ("qwen2", 2048, 36, 16, 2, 11_008, 151_936, True),
    "llama-3.2-3b": ("llama", 3072, 28, 24, 8, 8192, 128_256, True),
    "qwen2.5-7b": ("qwen2", 3584, 28, 28, 4, 18_944, 152_064, False),
}
LORA_ONLY = ("qwen2.5-7b",)
LORA_RANK = 32


def built(shape: tuple, dtype: torch.dtype) -> Any:
    """A model of this shape with random weights; a tiny one of the same kind without a GPU."""
    import transformers

    kind, width, layers, heads, kv, inner, vocabulary, tied = shape
    if not GPU:
        width, layers, inner, vocabulary = 16 * heads, 2, 64, 199
    config = (transformers.LlamaConfig if kind == "llama" else transformers.Qwen2Config)(
        hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=kv, intermediate_size=inner, vocab_size=vocabulary,
        tie_word_embeddings=tied, max_position_embeddings=4096, bos_token_id=None,
        eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    with torch.device(DEVICE):
        torch.manual_seed(0)
        return transformers.AutoModelForCausalLM.from_config(config, dtype=dtype).eval()


class Adapter(nn.Module):
    """LoRA on a linear layer: what peft does, for machines without it."""

    active_adapters = ("default",)

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base_layer = base
        place: Any = {"device": base.weight.device, "dtype": torch.float32, "bias": False}
        self.scaling = {"default": 1.0}
        self.disable_adapters = False
        self.lora_A = nn.ModuleDict({"default": nn.Linear(base.in_features, LORA_RANK, **place)})
        self.lora_B = nn.ModuleDict({"default": nn.Linear(LORA_RANK, base.out_features, **place)})
        nn.init.zeros_(self.lora_B["default"].weight)

    @property
    def weight(self) -> torch.Tensor:
        return self.base_layer.weight

    @property
    def bias(self) -> torch.Tensor | None:
        return self.base_layer.bias

    def get_delta_weight(self, adapter: str) -> torch.Tensor:
        return self.lora_B[adapter].weight @ self.lora_A[adapter].weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base_layer(x) + self.lora_B["default"](self.lora_A["default"](x))


def adapted(model: Any) -> Any:
    """With adapters on every linear layer of the body, which alone learn."""
    if not harness.missing("peft"):
        import peft

        config = peft.LoraConfig(
            r=LORA_RANK, lora_alpha=LORA_RANK, target_modules="all-linear", bias="none"
        )
        return peft.get_peft_model(model, config)
    print("peft is not installed: adapters of the same arithmetic stand in for it")
    model.requires_grad_(False)
    for layer in model.model.layers:
        for parent in (layer.self_attn, layer.mlp):
            for name, child in list(parent.named_children()):
                if isinstance(child, nn.Linear):
                    setattr(parent, name, Adapter(child))
    return model


def household(tokenizer: Any, count: int, limit: int) -> list[list[int]]:
    """What an agent of the household is told after some random commands."""
    from fedrl.envs.household.world import Household, Settings
    from fedrl.llm.prompts.chat import Chat

    world, format, rng = (
        Household(Settings(size="dataset", train=20)),
        Chat(False),
        random.Random(0),
    )
    tasks, told = [task.id for task in world.tasks("train")], []
    while len(told) < count:
        episode, turn = world.start(rng.choice(tasks))
        notes = format.start(episode.goal, turn)
        for _ in range(rng.randrange(1, 8)):
            command = rng.choice(turn.admissible)
            turn = episode.step(command)
            format.observe(notes, command, turn)
        told.append(notes)
    return format.encode(tokenizer, told, limit)


def half(model: Any) -> Any:
    return copy.deepcopy(model).to(DTYPE).eval()


def parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    learning = [p for p in model.parameters() if p.requires_grad]
    return torch.optim.AdamW(learning, 1e-6, weight_decay=0.01, fused=GPU)
