"""What joining brings a client: judged on its own data, at the same work, and told to nobody."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the extra llm")
pytest.importorskip("flwr", reason="needs the extra flower")

from support.flower_runs import records, train
from support.own_data import MEMBERS, Nodes, on_nodes
from support.own_prompts import SIZES, organisations, recipe

import fedrl
from fedrl.analysis.joining import Joining, alone, of_run
from fedrl.cli import call
from fedrl.cli.joining import verdict
from fedrl.core.types import UserError
from fedrl.engines.flower.kept_model import load

pytestmark = pytest.mark.slow

FLOWER = ("--engine", "flower", "--connection", "test")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return organisations(tmp_path_factory.mktemp("joining"))


def test_the_gain_is_paired_over_tasks():
    rng = np.random.default_rng(0)
    hard, lift = rng.random(400), 0.1 + 0.01 * rng.standard_normal(400)
    found = Joining(0, 5, hard, hard + lift, hard)
    gain, half = found.gain()
    assert gain == pytest.approx(lift.mean())
    assert half == pytest.approx(1.96 * lift.std(ddof=1) / 20, rel=0.01)
    assert verdict(gain, half, 400).startswith("the federated model")
    assert verdict(-gain, half, 400).startswith("training alone")
    assert verdict(0.0, half, 400).startswith("no difference")
    assert verdict(1.0, 0.0, 3) == "3 items are too few to tell (10 at least)"


def test_of_one_client_alone_both_models_are_the_same(place: Path, tmp_path: Path):
    """A federation of one is training alone: the comparison must find nothing."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "north").symlink_to(place / "data" / "north")
    config = recipe(
        place, tmp_path, federation={"clients": 1},
        partition={"folder": str(tmp_path / "data"), "held_out": "clients"},
        algorithm={"optimizer_state": "kept"},
    )  # fmt: skip
    found = fedrl.joining(train(config), progress=False)
    assert found.rounds == 2
    assert found.measure == "success"
    assert len(found.start) == 2  # a tenth of 20
    assert np.array_equal(found.federated, found.alone)


def test_alone_means_this_clients_data_its_rounds_and_nobody_elses_noise(
    place: Path, tmp_path: Path
):
    config = recipe(
        place, tmp_path / "run", "--privacy.clip", "1", "--privacy.noise", "0.01",
        federation={"cohort": 2}, rounds=3,
    )  # fmt: skip
    path = train(config)
    lines = map(json.loads, (path / "clients.jsonl").read_text().splitlines())
    counts = [0, 0, 0]
    for line in lines:
        counts[line["client"]] += 1
    client = int(np.argmax(counts))
    member = of_run(path, client)
    assert member.rounds == counts[client]
    by_itself = alone(member, tmp_path / "alone")
    assert by_itself.privacy.noise == 0
    assert by_itself.federation.kind == "local"
    found = fedrl.joining(path, client=client, evaluations=1, progress=False)
    held = max(round(0.1 * SIZES[MEMBERS[client]]), 1)
    assert len(found.alone) == held
    with pytest.raises(UserError, match="clients are numbered 0 to 2"):
        fedrl.joining(path, client=3)


def test_a_node_finds_out_for_itself(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    flags = "--algorithm.model", str(place / "model")
    nodes = Nodes(tmp_path / "nodes", [place / "data" / m for m in MEMBERS], *flags)
    for node in nodes.members.values():
        node.keep_model = True
    config = recipe(place, tmp_path / "there", *FLOWER, partition={"held_out": "clients"}, rounds=1)
    run = on_nodes(config, nodes, monkeypatch)
    home, data = tmp_path / "nodes" / "node-0", place / "data" / "north"
    with pytest.raises(UserError, match="comes from no round of its own yet"):
        fedrl.joining(home, data=data, own=flags)
    run = on_nodes(config, nodes, monkeypatch, run, rounds=3)
    crossed = len(nodes.crossed)
    words = [str(home), "--data", str(data), "--evaluations", "1", "--json", str(tmp_path / "n")]
    assert call(["joining", *words, "--", *flags]) == 0
    told = json.loads((tmp_path / "n").read_text())
    assert told["rounds"] == 2
    assert told["held_out"] == 2
    assert "joining brings" in capsys.readouterr().out
    assert len(nodes.crossed) == crossed
    with pytest.raises(UserError, match="has kept no run 'x'; it has"):
        fedrl.joining(home, data=data, run="x")
    with pytest.raises(UserError, match="--data is needed"):
        fedrl.joining(home)
    with pytest.raises(UserError, match=r"there is no .*/data/sums\.jsonl: --data is the folder"):
        fedrl.joining(home, data=data.parent)
    assert not (run / "joined").exists()


def test_a_node_that_ran_a_packages_code_may_run_it_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Its owner allowed the package when the run came; any other is still refused."""
    from fedrl.engines.flower import kept_model, node_recipes

    asked: list[list[str]] = []
    kept = SimpleNamespace(recipe='packages = ["fedrl-fedcm:0.1.0:abc"]\n')

    def configuration(recipe: str, own: object, packages: list[str]) -> None:
        asked.append(packages)
        raise UserError("asked")

    monkeypatch.setattr(kept_model, "load", lambda *_: kept)
    monkeypatch.setattr(node_recipes, "configuration", configuration)
    with pytest.raises(UserError, match="asked"):
        fedrl.joining(tmp_path, data=tmp_path)
    assert asked == [["fedrl-fedcm"]]


def test_the_kept_model_and_the_work_alone_are_of_the_same_rounds(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A node of three rounds has the model of two: that of a simulation of two rounds."""
    flags = "--algorithm.model", str(place / "model")
    nodes = Nodes(tmp_path / "nodes", [place / "data" / m for m in MEMBERS], *flags)
    for node in nodes.members.values():
        node.keep_model = True
    more = {"rounds": 3, "algorithm": {"optimizer_state": "kept"}}
    on_nodes(recipe(place, tmp_path / "there", *FLOWER, **more), nodes, monkeypatch)
    two = train(recipe(place, tmp_path / "here", **(more | {"rounds": 2})))
    kept, seen = load(tmp_path / "nodes" / "node-1"), of_run(two, 1)
    assert kept.rounds == [1, 2]
    assert seen.rounds == 2
    for name, array in seen.broadcast["theta"].items():
        assert np.array_equal(kept.broadcast["theta"][name], array)
    assert seen.state is not None
    assert kept.state is not None
    assert kept.state.keys() == seen.state.keys()


def test_adapters_that_a_member_keeps_count_as_its_federated_agent(place: Path, tmp_path: Path):
    pytest.importorskip("peft")
    config = recipe(place, tmp_path, algorithm={"personal_rank": 2})
    found = fedrl.joining(train(config), client=0, evaluations=1, progress=False)
    assert len(found.federated) == len(found.alone) == 2


@pytest.mark.parametrize("kind", ["independent", "local", "centralized"])
def test_where_nobody_joins_anybody_there_is_no_answer(place: Path, tmp_path: Path, kind: str):
    path = train(recipe(place, tmp_path, federation={"kind": kind}, rounds=1))
    with pytest.raises(UserError, match="nobody joined anybody"):
        fedrl.joining(path)


def test_other_data_is_judged_on_when_it_is_named(place: Path, tmp_path: Path):
    path = train(recipe(place, tmp_path, rounds=1))
    member = of_run(path, 0)
    for data in (member.data, place / "data" / "west"):
        config = alone(replace(member, data=data), tmp_path / "alone")
        assert (Path(config.partition.folder) / "own").resolve() == data.resolve()


def test_a_disk_that_is_full_costs_no_update_and_a_damaged_file_is_one_line(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    flags = "--algorithm.model", str(place / "model")
    nodes = Nodes(tmp_path / "nodes", [place / "data" / m for m in MEMBERS], *flags)
    for node in nodes.members.values():
        node.keep_model = True
    home = tmp_path / "nodes" / "node-0"
    (home / "joined").mkdir()
    (home / "joined" / "other.safetensors").write_bytes(b"half of it")
    with monkeypatch.context() as patch:
        patch.setattr("fedrl.engines.flower.kept_model.write_private", full)
        run = on_nodes(recipe(place, tmp_path / "there", *FLOWER, rounds=1), nodes, monkeypatch)
    assert {r["status"] for r in records(run)} == {"ok"}
    assert any("the model was not kept: No space left" in line for line in nodes.logs[0])
    with pytest.raises(UserError, match=r"other.safetensors is damaged: remove it"):
        load(home, "other")


def full(path: Path, data: bytes) -> None:
    raise OSError(28, "No space left on device")


def test_alone_there_is_no_servers_optimiser(place: Path, tmp_path: Path):
    more = {"server_optimizer": "adam", "server_lr": 0.01}
    path = train(recipe(place, tmp_path, rounds=1, algorithm=more))
    by_itself = alone(of_run(path, 0), tmp_path / "alone").algorithm
    assert (by_itself.server_optimizer, by_itself.server_lr) == ("sgd", 1.0)


def test_a_client_that_holds_nothing_out_is_told_before_it_trains(place: Path, tmp_path: Path):
    path = train(recipe(place, tmp_path, rounds=1, world={"test": 0.0}))
    with pytest.raises(UserError, match="holds nothing out to be judged on"):
        fedrl.joining(path, client=0)
    assert not list((path / "alone").glob("alone-*"))


PAYS = """
def graded(prompts, completions, **columns):
    return [0.1 + 0.3 * len(said) for said in completions]
"""


def test_a_reward_of_ones_own_is_compared_by_what_it_pays(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture
):
    """As `fedrl eval` does: success is a threshold that nobody may have thought of."""
    (tmp_path / "mine.py").write_text(PAYS)
    world = {"reward": [f"{tmp_path / 'mine.py'}:graded"], "success": 100.0}
    path = train(recipe(place, tmp_path, rounds=1, world=world))
    words = ["--client", "0", "--evaluations", "1", "--json", str(tmp_path / "told")]
    assert call(["joining", str(path), *words]) == 0
    told = json.loads((tmp_path / "told").read_text())
    assert told["measure"] == "mean return"
    assert min(told["start"], told["alone"], told["federated"]) >= 0.1
    assert told["success"] == {"start": 0.0, "federated": 0.0, "alone": 0.0}
    out = capsys.readouterr().out
    assert "mean return" in out
    assert "success" in out
