"""Figures 5 to 16: which they are, what they are of, and that no task is on their page."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.realdata import data

pytest.importorskip("matplotlib", reason="pictures need the extra report")
pytest.importorskip("rapidfuzz", reason="the shop needs the extra gym")

from fedrl.api.papers import write_partitions
from fedrl.core.types import UserError
from reproductions.fedagent import partitions


def test_they_are_the_papers_in_its_order():
    told = {one.number: one.title for one in partitions.pictures()}
    assert list(told) == list(range(5, 17))
    assert told[5] == "WebShop, preference, ω = 0.1"
    assert told[8] == "ALFWorld, preference, ω = 0.9"
    assert told[9] == "WebShop, coverage, ξ = 1"
    assert told[12] == "ALFWorld, coverage, ξ = 256"
    assert told[14] == "WebShop, hardness, ξ′ = 256"
    assert told[15] == "ALFWorld, hardness, ξ′ = 1"


def test_the_published_page_is_of_genuine_data_alone(monkeypatch):
    monkeypatch.delenv("FEDRL_DATA", raising=False)
    with pytest.raises(UserError, match="set FEDRL_DATA"):
        write_partitions()


def test_a_folder_without_the_data_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDRL_DATA", str(tmp_path))
    with pytest.raises(UserError, match="FEDRL_DATA has no folder webshop"):
        write_partitions(tmp_path / "page.md")


@pytest.mark.slow
def test_generated_worlds_are_called_so(tmp_path, monkeypatch):
    monkeypatch.delenv("FEDRL_DATA", raising=False)
    drawn = []
    monkeypatch.setattr(partitions, "draw", lambda found, path: drawn.append((found, path)))
    text = write_partitions(tmp_path / "page.md").read_text(encoding="utf-8")
    assert "generated worlds, because FEDRL_DATA is not set" in " ".join(text.split())
    assert [path.name for _, path in drawn] == [f"figure-{n:02d}.png" for n in range(5, 17)]
    by_number = dict(zip(range(5, 17), (found for found, _ in drawn), strict=True))
    for mild, strong in ((7, 8), (12, 11)):
        first, second = by_number[mild], by_number[strong]
        assert len(first.shares) == len(second.shares) == 100
        assert first.settings.strategy == second.settings.strategy
    assert by_number[8].measures.category_divergence > by_number[7].measures.category_divergence
    assert by_number[11].measures.size_std > 5 * by_number[12].measures.size_std
    assert by_number[15].measures.success_std > 2 * by_number[16].measures.success_std
    for found in by_number.values():
        assert not any(task.id in text for task in found.tasks[:50])


@pytest.mark.slow
@pytest.mark.realdata
def test_genuine_labels_deal_out_the_hardness():
    root = Path(data("alfworld")).parent
    wild, even = (one for one in partitions.pictures() if one.number in (15, 16))
    found = [partitions.dealt(one, root).measures for one in (wild, even)]
    assert found[0].tasks == 3553
    assert found[0].success_mean == pytest.approx(2112 / 3553, abs=0.02)
    assert found[0].success_std > 5 * found[1].success_std
