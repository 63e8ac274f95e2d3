"""FedAgent's Table 1 at the authors' size: the plan's arithmetic, and its page."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the plan estimates memory of language models (fedrl[llm])")

from fedrl.api.papers import reproduce
from fedrl.core.types import UserError
from reproductions.fedagent import table1

RESULTS = Path(__file__).parents[2] / "docs" / "results"


def test_the_plan_has_four_models_two_worlds_and_five_methods():
    grid = table1.read()
    for part in ("table1_alfworld", "table1_webshop"):
        runs = {cell.name: cell for cell in grid.cells[part]}
        assert len(runs) == 4 * 5
        assert sum(len(cell.seeds) for cell in runs.values()) == 4 * (3 + 3 + 1 + 1 + 1)
        ours, pooled = runs["qwen2.5-1.5b-fedagent"], runs["qwen2.5-1.5b-centralized"]
        assert (ours.epochs(), pooled.epochs()) == (70 * 2 * 3, 70 * 3)
        assert {cell.recipe["algorithm"]["model"] for cell in runs.values()} == {
            about["id"] for about in grid.tables["models"].values()
        }


def test_seconds_of_an_epoch_by_hand():
    grid = table1.read()
    cell = grid.cells["table1_alfworld"][0]
    settings = cell.resolved().algorithm
    assert (settings.tasks, settings.group) == (8, 8)
    assumed = {"steps": 10, "prompt": 300, "answer": 100}
    assert table1.seconds(cell, {"full": 64_000, "lora": 1}, assumed) == 64 * 10 * 400 / 64_000
    assert table1.seconds(cell, {"lora": 32_000}, assumed) == 64 * 10 * 400 / 32_000


@pytest.mark.slow
def test_hours_are_epochs_and_visits():
    """Of the one shape that whole rounds were measured with, nothing is scaled."""
    grid = table1.read()
    row = next(row for row in table1.plan(grid) if row[:2] == ["qwen2.5-1.5b", "ALFWorld"])
    assumed, rounds = grid.tables["assumed"]["alfworld"], grid.tables["rounds"]
    tokens = 64 * assumed["steps"] * (assumed["prompt"] + assumed["answer"])
    epoch = tokens / rounds["rate"]["alfworld"]["full"]
    assert row[4] == f"{epoch:.0f} s"
    assert row[5] == f"{(70 * 2 * 3 * epoch + 70 * 2 * rounds['visit']) / 3600:.1f} h"


def test_rates_are_those_that_were_measured():
    """The plan's tokens per second stand on the page that names the command behind them."""
    page = (RESULTS.parent / "benchmarks.md").read_text(encoding="utf-8")
    for model, about in table1.read().tables["models"].items():
        rows = [line for line in page.splitlines() if line.lower().startswith(f"| {model} |")]
        (row,) = [line for line in rows if "tokens/s" in line]  # others tell of memory
        lora, full = row.split("|")[2:4]
        assert f"{about['rates']['lora']:,} tokens/s" in lora
        assert ("full" in about["rates"]) == ("tokens/s" in full)
        if "full" in about["rates"]:
            assert f"{about['rates']['full']:,} tokens/s" in full
    for rates in table1.read().tables["rounds"]["rate"].values():
        assert all(f"| {rate:,} |" in page for rate in rates.values())


def test_what_has_a_rate_with_adapters_alone_is_planned_with_them():
    grid = table1.read()
    for cell in (*grid.cells["table1_alfworld"], *grid.cells["table1_webshop"]):
        about = grid.tables["models"][cell.labels["model"]]
        assert (cell.resolved().algorithm.lora_rank > 0) == (table1.way(about) == "lora")


@pytest.mark.parametrize(("model", "billions"), [("qwen2.5-1.5b", 1.54), ("llama-3.2-3b", 3.21)])
def test_shapes_are_the_published_models(model, billions):
    import torch
    import transformers

    about = table1.read().tables["models"][model]
    with torch.device("meta"):
        built = transformers.AutoModelForCausalLM.from_config(table1.configuration(about))
    count = sum(p.numel() for p in built.parameters())
    assert count / 1e9 == pytest.approx(billions, abs=0.01)
    assert table1.parameters(about) == pytest.approx(count, rel=1e-3)


@pytest.mark.slow
def test_full_training_needs_what_adamw_needs():
    """Weights, gradients, two moments and the reference are 20 bytes a parameter, and more comes on
    top; adapters need far less."""
    grid = table1.read()
    cell, about = grid.cells["table1_alfworld"][0], grid.tables["models"]["qwen2.5-1.5b"]
    full, lora = (table1.gigabytes(cell, about, rank) for rank in (0, table1.LORA_RANK))
    assert 20 * 1.54 < full < 2 * 20 * 1.54
    assert lora < full / 2


@pytest.mark.slow
def test_the_published_plan_is_what_the_command_writes(tmp_path):
    page = tmp_path / "fedagent_table1.md"
    records = RESULTS / "fedagent" / "records"
    reproduce("fedagent", "paper", out=tmp_path / "runs", page=page, records=records, processes=0)
    published = RESULTS / "fedagent_table1.md"
    assert page.read_text(encoding="utf-8") == published.read_text(encoding="utf-8")


def test_other_papers_have_no_such_scale():
    with pytest.raises(UserError, match="--scale paper is not for momentum, only for fedagent"):
        reproduce("momentum", "paper", processes=0)
