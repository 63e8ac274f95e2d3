"""Memory that PyTorch keeps beyond what was used goes back to the GPU between phases."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason='needs PyTorch: pip install "fedrl[llm]"')

from fedrl.llm import kept_memory
from fedrl.llm.kept_memory import SLACK, free_kept_memory

GPU = torch.device("cuda", 0)


@pytest.fixture
def allocator(monkeypatch):
    """One that says these numbers; the list tells when it was emptied."""
    emptied: list[str] = []

    def says(peak: int, kept: int) -> list[str]:
        monkeypatch.setattr(kept_memory.torch.cuda, "max_memory_allocated", lambda device: peak)
        monkeypatch.setattr(kept_memory.torch.cuda, "memory_reserved", lambda device: kept)
        monkeypatch.setattr(kept_memory.torch.cuda, "empty_cache", lambda: emptied.append("once"))
        return emptied

    return says


@pytest.mark.parametrize(
    ("kept", "freed"), [(5 * SLACK, 0), (6 * SLACK, 0), (6 * SLACK + 1, 1), (9 * SLACK, 1)]
)
def test_only_what_was_never_used_at_once_is_given_back(allocator, kept, freed):
    emptied = allocator(5 * SLACK, kept)
    assert free_kept_memory(GPU) == bool(freed)
    assert len(emptied) == freed


def test_without_a_gpu_nobody_is_asked(allocator):
    emptied = allocator(0, 9 * SLACK)
    assert not free_kept_memory(torch.device("cpu"))
    assert emptied == []


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_pieces_of_another_size_go_back_on_a_gpu():
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    for pieces in (3, 5, 7):  # each fits into no piece of those before
        some = [torch.empty(pieces * SLACK // 8, dtype=torch.uint8, device=GPU) for _ in range(12)]
        del some
    peak = torch.cuda.max_memory_allocated(GPU)
    assert torch.cuda.memory_reserved(GPU) > peak + SLACK
    assert free_kept_memory(GPU)
    assert torch.cuda.memory_reserved(GPU) <= peak + SLACK
