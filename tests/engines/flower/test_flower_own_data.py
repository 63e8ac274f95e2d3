"""Every kind of data of one's own on real nodes, each with a folder of its own: the numbers are the
simulation's.

What the nodes of this process show, kind by kind, is in `tests/algorithms`; here are processes.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")
pytest.importorskip("torch", reason="needs the extra llm")

from support import own_classes, own_prompts, own_ratings, own_reviews, own_worlds
from support.agent_runs import make_model
from support.flower_runs import QUICK, same_numbers, train
from support.own_data import MEMBERS, write_lines
from support.review_runs import make_model as make_review_model

from fedrl.config.schema import Config
from fedrl.engines.flower.connection import FOLDER
from fedrl.engines.flower.local_federation import LocalFederation

pytestmark = pytest.mark.machines

KINDS = ("ratings", "reviews", "household", "webshop", "prompts", *own_classes.WORLDS)


class Organisations(LocalFederation):
    """Nodes that have a folder each, and nothing of the others'."""

    def __init__(self, folder: Path, data: Path) -> None:
        models = ["algorithm.model"]  # lies where the test has made it
        super().__init__(
            folder, len(MEMBERS), name="test", program=QUICK, allowed=models,
            packages=[own_classes.PACKAGE],
        )  # fmt: skip
        self.folders = data

    def start_node(self, client: int) -> None:
        self.program = [*QUICK, "--data", str(self.folders / MEMBERS[client])]
        super().start_node(client)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders with data of all kinds, and the driver's with what is public of each."""
    folder = tmp_path_factory.mktemp("organisations")
    own_ratings.organisations(folder)
    own_reviews.organisations(folder)
    own_worlds.households(folder)
    own_worlds.shops(folder)
    own_prompts.organisations(folder)
    own_classes.write(folder)
    own_classes.make_model(folder / "talker")
    driver = folder / "driver"
    own_ratings.write(driver / "data" / "public" / "movielens", own_ratings.rows_of("public"))
    own_reviews.organisations(driver, members=["public"])
    own_worlds.households(driver, ["public"])
    own_worlds.shops(driver, ["public"])
    rows = map(json.dumps, own_prompts.rows_of("public"))
    write_lines(driver / "data" / "public" / "sums.jsonl", rows)
    own_classes.write(driver, ["public"])
    make_model(folder / "agent")
    make_review_model(folder / "writer", steps=30)
    return folder


@pytest.fixture(scope="module")
def up(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFederation]:
    folder = tmp_path_factory.mktemp("federation")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FOLDER, str(folder / "connections"))
        code = str(own_classes.install_code(folder / "site"))
        patch.syspath_prepend(code)
        patch.setenv("PYTHONPATH", os.pathsep.join([code, os.environ.get("PYTHONPATH", "")]))
        with Organisations(folder, place / "data") as federation:
            yield federation
    sys.modules.pop("own_quiz", None)


def recipe(kind: str, place: Path, root: Path, out: Path, *flags: str) -> Config:
    if kind == "ratings":
        return own_ratings.recipe(root, out, *flags)
    if kind == "reviews":
        return own_reviews.recipe(root, place / "writer", out, *flags)
    if kind == "prompts":
        return own_prompts.recipe(place, out, *flags, partition={"folder": str(root / "data")})
    if kind in own_classes.WORLDS:
        return own_classes.recipe(kind, root, place / "talker", out, *flags)
    return own_worlds.recipe(kind, root, place / "agent", out, *flags)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_numbers_as_in_a_simulation(
    kind: str, place: Path, up: LocalFederation, tmp_path: Path
):
    apart = ("--engine", "workers", "--workers", "1")
    here = train(recipe(kind, place, place, tmp_path / "here", *apart))
    flower = ("--engine", "flower", "--connection", "test")
    there = train(recipe(kind, place, place / "driver", tmp_path / "there", *flower))
    same_numbers(here, there)
