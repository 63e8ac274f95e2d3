"""The scale `paper`: FedAgent's Table 1 with the authors' models, planned and filled cell by cell.

A plan says of every model and world what a client needs at its height (the estimate of `--dry-run`)
and how long a run takes on one GPU:

    tokens of a client epoch = tasks × group × steps × (prompt + answer)
    seconds of it = tokens / (tokens per second of the shape's local step × s)
    hours = client epochs × these seconds + visits of clients × v

with s, how much slower whole rounds are than a local step, and v, what setting, sending and
averaging weights takes, as they were measured for one shape (v grows with the weights); steps,
prompts and answers as `table1.toml` assumes them: an untrained model plays longer than a trained
one, so it is no more than a plan.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from fedrl.core.types import Tables
from reproductions.fedagent.claims import SUCCESS, shown
from reproductions.grid import Cell, Grid, read_grid
from reproductions.pages import Page, markdown_table
from reproductions.runner import Task, playable, tasks_of
from reproductions.study import Study

SCALE = "paper"
LORA_RANK = 32
WORLDS = {"alfworld": "ALFWorld", "webshop": "WebShop"}


def read() -> Grid:
    return read_grid(Path(__file__).parent / "table1.toml", SCALE)


def tasks(study: Study, parts: list[str]) -> list[Task]:
    cells = [cell for part in parts for cell in study.grid.cells[part]]
    return tasks_of(playable(cells, study.absent), study.grid, study.place)


def write(study: Study, page: Page, path: Path) -> None:
    page.write(
        path,
        template="table1.md.jinja",
        results=markdown_table(
            ("model", "method", "ALFWorld", "the paper's", "WebShop", "the paper's"), results(study)
        ),
        plan=markdown_table(
            ("model", "world", "memory, full", "memory, LoRA", "client epoch", "FedAgent's run",
             "all runs"),
            plan(study.grid),
        ),
        assumed=study.grid.tables["assumed"],
        rounds=study.grid.tables["rounds"],
        authors=authors(study.grid.tables),
        rank=LORA_RANK,
        origins=page.origins(study.records(), study.planned()),
    )  # fmt: skip


# What there is of the table


def results(study: Study) -> Iterator[list[str]]:
    found = study.runs()
    for model, said in study.grid.tables["paper"].items():
        for learner, paper in said.items():
            row = [model, learner]
            for world in WORLDS:
                ours = shown(found[f"table1_{world}"][f"{model}-{learner}"].value(SUCCESS))
                row += [ours or "not measured", paper[world]]
            yield row


# The plan


def plan(grid: Grid) -> Iterator[list[str]]:
    for model, about in grid.tables["models"].items():
        for world, title in WORLDS.items():
            runs = [c for c in grid.cells[f"table1_{world}"] if c.labels["model"] == model]
            ours = next(c for c in runs if c.labels["learner"] == "fedagent")
            pace = seconds(ours, about["rates"], grid.tables["assumed"][world])
            pace /= slowness(grid.tables, world, way(about))
            visit = visit_seconds(grid.tables, about)

            def hours(cell: Cell, pace: float = pace, visit: float = visit) -> float:
                visits = cell.epochs() / cell.resolved().algorithm.local_epochs
                return (cell.epochs() * pace + visits * visit) / 3600

            needed = [f"{gigabytes(ours, about, rank):.0f} GB" for rank in (0, LORA_RANK)]
            whole = sum(hours(cell) * len(cell.seeds) for cell in runs)
            yield [
                model, title, *needed, f"{pace:.0f} s", f"{hours(ours):.1f} h",
                f"{whole:,.0f} GPU-hours",
            ]  # fmt: skip


def seconds(cell: Cell, rates: Tables, assumed: Tables) -> float:
    """Of a client epoch, by the rate of full training, or of LoRA where that alone is measured."""
    settings = cell.resolved().algorithm
    tokens = settings.tasks * settings.group * assumed["steps"]
    tokens *= assumed["prompt"] + assumed["answer"]
    return float(tokens / rates.get("full", rates["lora"]))


def way(about: Tables) -> str:
    """LoRA, where no GPU has room for whole weights and their moments."""
    return "full" if "full" in about["rates"] else "lora"


def slowness(tables: Tables, world: str, way: str) -> float:
    """s: tokens per second of whole rounds over those of a local step, of the model measured."""
    rounds = tables["rounds"]
    return float(rounds["rate"][world][way] / tables["models"][rounds["model"]]["rates"][way])


def visit_seconds(tables: Tables, about: Tables) -> float:
    """v of this shape: as its weights to the measured model's; adapters take next to none."""
    if way(about) == "lora":
        return 0.0
    rounds = tables["rounds"]
    measured = parameters(tables["models"][rounds["model"]])
    return float(rounds["visit"] * parameters(about) / measured)


def parameters(about: Tables) -> int:
    """Of a shape, without its norms and biases."""
    size = about["width"] // about["heads"]
    attention = 2 * about["width"] * size * (about["heads"] + about["kv"])
    layer = attention + 3 * about["width"] * about["inner"]
    words = about["vocabulary"] * about["width"] * (1 if about["tied"] else 2)
    return int(about["layers"] * layer + words)


def gigabytes(cell: Cell, about: Tables, lora_rank: int) -> float:
    """What the estimate of `--dry-run` says of this shape on a GPU."""
    from fedrl.algorithms.fedagent.memory_estimate import estimate_memory

    settings = cell.resolved().algorithm
    with tempfile.TemporaryDirectory() as folder:
        configuration(about).save_pretrained(folder)
        shaped = replace(
            settings, model=folder, device="cuda", lora_rank=lora_rank,
            lora_lr=settings.lora_lr if lora_rank else 0.0,
        )  # fmt: skip
        return estimate_memory(shaped, settings.eval_tasks).memory.total / 1e9


def configuration(about: Tables):  # type: ignore[no-untyped-def]  # transformers' own
    """A model's shape, as its publisher has it."""
    import transformers

    kind = {"qwen2": transformers.Qwen2Config, "llama": transformers.LlamaConfig}[about["kind"]]
    return kind(
        hidden_size=about["width"], num_hidden_layers=about["layers"],
        num_attention_heads=about["heads"], num_key_value_heads=about["kv"],
        intermediate_size=about["inner"], vocab_size=about["vocabulary"],
        tie_word_embeddings=about["tied"], architectures=[f"{kind.__name__[:-6]}ForCausalLM"],
    )  # fmt: skip


def authors(tables: Tables) -> Tables:
    said = tables["authors"]
    return said | {"gpu_hours": [hours * said["gpus"] for hours in said["hours"]]}
