"""Random numbers by row: Philox's known answers, and independence of the batch."""

from __future__ import annotations

import os

import pytest

torch = pytest.importorskip("torch", reason='needs PyTorch: pip install "fedrl[llm]"')

from fedrl.llm.generation.row_noise import LOW, SCALE, Draws, uniform

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


def philox(counter: int, key: tuple[int, int]) -> int:
    """The first of four numbers, as the paper writes it, in Python's integers."""
    x, k = [counter & LOW, 0, 0, 0], list(key)
    for _ in range(10):
        a, b = 0xD2511F53 * x[0], 0xCD9E8D57 * x[2]
        x = [(b >> 32) ^ x[1] ^ k[0], b & LOW, (a >> 32) ^ x[3] ^ k[1], a & LOW]
        k = [(k[0] + 0x9E3779B9) & LOW, (k[1] + 0xBB67AE85) & LOW]
    return x[0]


def test_the_papers_first_known_answer():
    """Random123's test vector for a counter and a key of zeros."""
    assert philox(0, (0, 0)) == 0x6627E8D5


@pytest.mark.parametrize("seed", [0, 1, 2**31 + 7, 2**62 + 12345])
def test_it_is_philox(seed):
    found = uniform(Draws(torch.tensor([seed]), torch.tensor([3])), 50)[0]
    for i in (0, 1, 49):
        x = philox(3 * 50 + i, (seed & LOW, seed >> 32))
        signed = LOW - x if x >= 2**31 else x
        assert float(found[i]) == pytest.approx(signed * SCALE, rel=1e-6)


def test_rows_do_not_depend_on_each_other():
    seeds, drawn = torch.tensor([5, 6, 5, 2**40]), torch.tensor([0, 0, 1, 7])
    whole = uniform(Draws(seeds, drawn), 30)
    for i in range(4):
        assert torch.equal(uniform(Draws(seeds[[i]], drawn[[i]]), 30)[0], whole[i])
    assert len({tuple(row.tolist()) for row in whole}) == 4


@pytest.mark.slow
def test_it_is_uniform():
    """The mean of 200,000 within six deviations, and within [0, 1)."""
    many = uniform(Draws(torch.arange(200), torch.zeros(200, dtype=torch.long)), 1000)
    assert float(many.min()) >= 0
    assert float(many.max()) < 1
    assert abs(float(many.mean()) - 0.5) < 6 / (12 * many.numel()) ** 0.5
    assert abs(float((many < 0.1).float().mean()) - 0.1) < 6 * (0.09 / many.numel()) ** 0.5


@pytest.mark.skipif(
    not (torch.cuda.is_available() or INTERPRETED), reason="needs a GPU, or TRITON_INTERPRET=1"
)
def test_the_kernel_draws_the_same():
    pytest.importorskip("triton", reason="kernels need triton")
    from fedrl.llm.generation import decode_kernels, torch_ops

    device = "cpu" if INTERPRETED else "cuda"
    torch.manual_seed(0)
    logits = torch.randn(40, 97, device=device)
    draws = Draws(torch.arange(40, device=device) * 2**35 + 9, torch.arange(40, device=device) % 5)
    knobs = [torch.tensor([x], device=device) for x in (0.7, 1.0)]
    plain, ours = (ops.sample(logits, draws, *knobs) for ops in (torch_ops, decode_kernels))
    assert ours[0].tolist() == plain[0].tolist()
    torch.testing.assert_close(ours[1], plain[1], rtol=1e-5, atol=1e-5)
    assert len(set(plain[0].tolist())) > 20
