"""The learner's kernels are the plain operations. Without a GPU: TRITON_INTERPRET=1."""

from __future__ import annotations

import os

import pytest

torch = pytest.importorskip("torch", reason='needs PyTorch: pip install "fedrl[llm]"')

from fedrl.llm.learner import plain_ops

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cuda" if torch.cuda.is_available() and not INTERPRETED else "cpu"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        DEVICE == "cpu" and not INTERPRETED, reason="kernels need a GPU, or TRITON_INTERPRET=1"
    ),
]
BOUNDS = {torch.float32: 3e-5, torch.bfloat16: 2e-2}


@pytest.fixture
def fused():
    pytest.importorskip("triton", reason="kernels need triton")
    from fedrl.llm.learner import fused_ops

    return fused_ops


@pytest.fixture(params=[torch.float32, torch.bfloat16], ids=str)
def dtype(request):
    torch.manual_seed(1)
    return request.param


def close(found, expected, dtype) -> None:
    for f, e in zip(found, expected, strict=True):
        assert f.dtype == e.dtype
        scale = max(1.0, float(e.float().abs().max()))
        torch.testing.assert_close(f, e, rtol=BOUNDS[dtype], atol=BOUNDS[dtype] * scale)


@pytest.mark.parametrize("rows, width", [(1, 16), (70, 48), (33, 576)])
def test_norms(fused, dtype, rows, width):
    x, beside = torch.randn(2, rows, width, device=DEVICE)
    delta, grad = torch.randn(2, rows, width, device=DEVICE).to(dtype)
    weight = torch.randn(width, device=DEVICE)
    found, expected = ([], [])
    for ops, told in ((fused, found), (plain_ops, expected)):
        told += [ops.norm(x, weight, 1e-5, dtype), *ops.add_norm(x, delta, weight, 1e-5)]
        told += ops.norm_backward(grad, x, weight, 1e-5, beside)
        told += ops.norm_backward(grad, x, weight, 1e-5, None)
    close(found, expected, dtype)


@pytest.mark.parametrize("heads, kv, size", [(6, 2, 16), (9, 3, 64), (4, 4, 24)])
@pytest.mark.parametrize("back", [False, True])
def test_turning(fused, dtype, heads, kv, size, back):
    qkv = torch.randn(7, (heads + 2 * kv) * size, device=DEVICE).to(dtype)
    angles = torch.randn(7, size // 2, device=DEVICE)
    found, expected = qkv.clone(), qkv.clone()
    for ops, x in ((fused, found), (plain_ops, expected)):
        ops.turn(x, angles.cos(), angles.sin(), heads + kv, back)
    close([found], [expected], dtype)
    assert not torch.equal(found, qkv)
    fused.turn(found, angles.cos(), angles.sin(), heads + kv, not back)
    close([found], [qkv], dtype)


@pytest.mark.parametrize("rows, width", [(5, 80), (3, 2500)])
def test_swiglu(fused, dtype, rows, width):
    inner = torch.randn(rows, 2 * width, device=DEVICE).to(dtype)
    grad = torch.randn(rows, width, device=DEVICE).to(dtype)
    close([fused.swiglu(inner)], [plain_ops.swiglu(inner)], dtype)
    found, expected = (ops.swiglu_backward(grad, inner) for ops in (fused, plain_ops))
    close(found, expected, dtype)


@pytest.mark.parametrize("temperature", [1.0, 0.4])
def test_choosing(fused, dtype, temperature):
    logits = 3 * torch.randn(4, 5003, device=DEVICE)
    target = torch.tensor([0, 5002, 17, 4096], device=DEVICE)
    grads = tuple(torch.randn(2, 4, device=DEVICE))
    expected = plain_ops.choose(logits, target, temperature)
    close(fused.choose(logits, target, temperature), expected, torch.float32)
    _, entropy, lse = expected
    words = (logits, target, temperature, lse, entropy, grads, dtype)
    close([fused.choose_backward(*words)], [plain_ops.choose_backward(*words)], dtype)


@pytest.mark.parametrize("name", ["llama", "qwen2"])
def test_the_whole_learner_on_kernels(fused, name):
    """A body of two layers and its output: log-probabilities, entropies and all gradients."""
    transformers = pytest.importorskip("transformers")
    from support.tiny_model import samples

    from fedrl.llm.learner.decoder import packed_states, packed_statistics
    from fedrl.llm.rl.batches import to_packed

    kind = {"llama": transformers.LlamaConfig, "qwen2": transformers.Qwen2Config}[name]
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(
        kind(vocab_size=12, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=2, initializer_range=0.3, pad_token_id=0)
    ).to(DEVICE)  # fmt: skip

    def gradients(ops):
        batch = to_packed(samples(4), next(model.parameters()).device)
        model.zero_grad(set_to_none=True)
        hidden = packed_states(model, batch, ops)
        told, entropy = packed_statistics(model, hidden[batch.at], batch.target, 0.8, ops)
        (told.sum() + 0.2 * entropy.square().sum()).backward()
        gradients = [p.grad.clone() for p in model.parameters()]
        return [told.detach(), entropy.detach(), *gradients]

    ours, plain = gradients(fused), gradients(plain_ops)
    if DEVICE == "cpu":
        close(ours, plain, torch.float32)
        return
    # A sum of roundings has no bound of its own: the kernels may be no farther from the exact
    # result than the plain operations, which round as often.
    model.cpu()
    exact = gradients(plain_ops)
    for index, told in enumerate(exact):
        gaps = [(found[index].cpu() - told).norm() for found in (ours, plain)]
        errors = [float(gap / told.norm()) for gap in gaps]
        assert errors[0] < max(1.5 * errors[1], 0.02)
