"""Adapters of one input are two products: what they are made into, and what it costs."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason='needs PyTorch: pip install "fedrl[llm]"')
pytest.importorskip("transformers", reason="needs transformers")
pytest.importorskip("peft", reason="LoRA needs peft")

from support.tiny_model import samples, tiny
from torch.utils._python_dispatch import TorchDispatchMode

from fedrl.llm import lora, memory
from fedrl.llm.learner.adapters import stacks
from fedrl.llm.learner.decoder import packed_states, plans
from fedrl.llm.rl.batches import to_packed
from fedrl.llm.weights import base_model, decoder_and_head

pytestmark = pytest.mark.slow
CPU = torch.device("cpu")
NAMES = ("qkv", "out", "up", "down")


def adapted(adapters: lora.Adapters):
    model = lora.with_adapters(tiny(), adapters)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(1)
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.normal_()
    return model


def projections(model):
    body = decoder_and_head(model)[0]
    return [
        (getattr(plan, name), parameters)
        for plan, parameters in plans(body, base_model(model).config)
        for name in NAMES
    ]


class Products(TorchDispatchMode):
    """Counts matrix products."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        self.count += name.rstrip("_") in ("mm", "addmm")
        return func(*args, **(kwargs or {}))


def products(model) -> int:
    rows = to_packed(samples(5), CPU)
    with Products() as counted:
        packed_states(model, rows).sum().backward()
    return counted.count


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "adapters",
    [
        lora.Adapters(3, 7, stabilised=True),
        lora.Adapters(4, 8, ("k_proj", "up_proj")),
        lora.Adapters(3, 6, personal=2),
    ],
)
def test_a_stack_is_the_sum_of_its_adapters(adapters, dtype):
    """(s B) A of each layer, in its own rows; each number rounded once."""
    found = projections(adapted(adapters))
    some = 0
    for (plan, parameters), stack in zip(found, stacks(found, dtype), strict=True):
        if stack is None:
            assert not plan.adapters
            continue
        out = sum(len(parameters[i]) for i in plan.weights)
        expected = torch.zeros(out, parameters[plan.weights[0]].shape[1])
        for one in plan.adapters:
            up = (parameters[one.up] * one.scale).to(dtype).float()
            expected[one.start : one.stop] += up @ parameters[one.down].to(dtype).float()
            some += 1
        torch.testing.assert_close(stack.up.float() @ stack.down.float(), expected)
    assert some


def test_without_adapters_nothing_is_stacked():
    assert stacks(projections(tiny()), torch.float32) == [None] * 4 * len(
        decoder_and_head(tiny())[0].layers
    )


def test_adapters_cost_seven_products_for_each_input():
    """Two there and five back, however many layers read it. What trains whole weights is not
    needed any more: one each."""
    layers = len(decoder_and_head(tiny())[0].layers)
    assert products(adapted(lora.Adapters(4, 8))) - products(tiny()) == (7 - 1) * 4 * layers


def test_the_estimate_counts_what_is_stacked():
    model = adapted(lora.Adapters(3, 6, personal=2))
    made = [stack for stack in stacks(projections(model), torch.bfloat16) if stack is not None]
    held = sum(2 * (stack.down.numel() + stack.up.numel()) for stack in made)
    assert memory.adapter_bytes(memory.shape_of(base_model(model).config), 2, 5) == held
