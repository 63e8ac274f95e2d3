"""Organisations with tasks of their own for a world or a tool that one of them wrote: a simulation
in one process and in workers, and nodes that hold one organisation's each."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the extra llm")
pytest.importorskip("flwr", reason="needs the extra flower")

from support.flower_runs import same_numbers, train
from support.own_classes import (
    PACKAGE,
    SIZES,
    WORLDS,
    install_code,
    make_model,
    recipe,
    rows_of,
    write,
)
from support.own_data import MEMBERS, Nodes, on_nodes

from fedrl.config import parts
from fedrl.config.build import build_algorithm
from fedrl.core.types import UserError

pytestmark = pytest.mark.slow

CANARY = "zanzibar9"
KINDS = pytest.mark.parametrize("kind", list(WORLDS))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "talker")


@pytest.fixture(autouse=True)
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(install_code(tmp_path / "site"))
    yield
    sys.modules.pop("own_quiz", None)


@KINDS
def test_a_client_trains_on_all_that_its_folder_holds(kind: str, model: Path, tmp_path: Path):
    algorithm = build_algorithm(recipe(kind, write(tmp_path), model, tmp_path))
    for client, member in enumerate(MEMBERS):
        rows = rows_of(member)
        held = [task.id for task in algorithm.own_held_out(client)]
        assert len(algorithm.shares[client]) == SIZES[member]
        assert len(algorithm.shares[client]) + len(held) == len(rows)
        assert not set(held) & set(algorithm.shares[client])
        found = {task.category for task in algorithm.world.tasks_of(client, "train")}
        assert found == {"rare" if member == "west" else "usual"}
    assert len(algorithm.eval_tasks) == SIZES["public"]


@KINDS
@pytest.mark.parametrize("held_out", ["public", "clients"])
def test_all_engines_give_the_same_numbers(
    kind: str, held_out: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    write(tmp_path, canary=CANARY)
    more = {"partition": {"held_out": held_out}}
    here = train(recipe(kind, tmp_path, model, tmp_path / "here", **more))
    apart = ("--engine", "workers", "--workers", "1")
    same_numbers(here, train(recipe(kind, tmp_path, model, tmp_path / "workers", *apart, **more)))
    alone = write(tmp_path / "driver", ["public"])  # the driver has nothing of the clients'
    nodes = Nodes(
        tmp_path / "nodes", [tmp_path / "data" / m for m in MEMBERS],
        "--algorithm.model", str(model), packages=(PACKAGE,),
    )  # fmt: skip
    flower = ("--engine", "flower", "--connection", "test")
    config = recipe(kind, alone, model, tmp_path / "there", *flower, **more)
    there = on_nodes(config, nodes, monkeypatch)
    same_numbers(here, there)
    told = "".join(nodes.crossed) + "".join(
        path.read_bytes().decode("latin-1")
        for folder in (there, here, tmp_path / "nodes", alone)
        for path in folder.rglob("*")
        if path.is_file()
    )
    assert CANARY not in told


def test_a_world_that_reads_no_files_cannot_be_of_folders(model: Path, tmp_path: Path):
    tables = recipe("texts", write(tmp_path), model, tmp_path)
    config = replace(tables, world=parts.world("own_quiz:Bare").settings(name="own_quiz:Bare"))
    with pytest.raises(UserError, match=r"reads no files: it has no setting `source`"):
        build_algorithm(config)
