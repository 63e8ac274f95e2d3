"""Organisations that bring prompts of their own: simulated, and on nodes that hold one each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the extra llm")
pytest.importorskip("flwr", reason="needs the extra flower")

from support.flower_runs import records, same_numbers, train
from support.own_data import MEMBERS, Nodes, on_nodes, write_lines
from support.own_prompts import SIZES, organisations, recipe, rows_of
from support.prompt_files import prompts

from fedrl.config.build import build_algorithm
from fedrl.core.abilities import GpuUse
from fedrl.core.types import UserError
from fedrl.partition.own_folders import OwnFolders
from fedrl.runs import train as runs
from fedrl.runs.evaluate import evaluate
from fedrl.runs.run_dir import RunDir
from fedrl.runs.warmstart import Settings as WarmStart
from fedrl.runs.warmstart import warmstart

pytestmark = pytest.mark.slow

CANARY = "zanzibar9"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return organisations(tmp_path_factory.mktemp("organisations"), CANARY)


FLOWER = ("--engine", "flower", "--connection", "test")


def test_a_client_trains_on_all_that_its_folder_holds(place: Path, tmp_path: Path):
    algorithm = build_algorithm(recipe(place, tmp_path))
    for client, member in enumerate(MEMBERS):
        held = [task.id for task in algorithm.own_held_out(client)]
        assert len(algorithm.shares[client]) + len(held) == SIZES[member]
        assert not set(held) & set(algorithm.shares[client])
        assert all(task.startswith(f"client-{client}:") for task in algorithm.shares[client])
    kinds = [{t.category for t in algorithm.world.tasks_of(k, "train")} for k in range(3)]
    assert kinds[2] == {"words"}
    assert "words" not in kinds[0] | kinds[1]
    assert len(algorithm.eval_tasks) == round(0.1 * SIZES["public"])


def test_a_node_counts_what_it_holds_out_and_plays(place: Path, tmp_path: Path):
    """By its own folder; a simulation by the largest; a driver of nodes has none to count."""
    client, held = GpuUse(learns=True, evaluates=False), {"held_out": "clients"}
    config = recipe(place, tmp_path, partition=held)
    played = build_algorithm(config).evaluations(GpuUse(learns=True))
    sizes = [len(build_algorithm(config).own_held_out(k)) for k in range(3)]
    assert [one.episodes for one in played] == sizes
    assert min(sizes) > 0
    node = build_algorithm(config, place / "data" / "west").evaluations(client)
    assert {one.episodes for one in node} == {sizes[2]}
    assert build_algorithm(config).evaluations(GpuUse()) == []
    driver = recipe(place, tmp_path, *FLOWER, partition=held | {"folder": str(tmp_path / "hub")})
    (tmp_path / "hub").mkdir()
    (tmp_path / "hub" / "public").symlink_to(place / "data" / "public")
    assert build_algorithm(driver).evaluations(GpuUse(learns=True)) == []


def test_a_model_without_a_chat_template_is_refused_before_there_is_a_folder(
    place: Path, tmp_path: Path
):
    config = recipe(place, tmp_path / "runs", algorithm={"format": "chat"})
    for refused in (runs.plan, lambda config: runs.start(config, build_algorithm(config))):
        with pytest.raises(UserError, match=r"algorithm\.model has no chat template"):
            refused(config)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("held_out", ["public", "clients"])
def test_nodes_give_the_numbers_of_the_simulation(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held_out: str
):
    more = {"partition": {"held_out": held_out}}
    here = train(recipe(place, tmp_path / "here", "--engine", "workers", "--workers", "1", **more))
    same_numbers(here, train(recipe(place, tmp_path / "inprocess", **more)))
    alone = tmp_path / "driver" / "data"  # the driver has nothing of the clients'
    write_lines(alone / "public" / "sums.jsonl", map(json.dumps, rows_of("public")))
    nodes = Nodes(
        tmp_path / "nodes", [place / "data" / m for m in MEMBERS],
        "--algorithm.model", str(place / "model"),
    )  # fmt: skip
    more = {"partition": {"held_out": held_out, "folder": str(alone)}}
    there = on_nodes(recipe(place, tmp_path / "there", *FLOWER, **more), nodes, monkeypatch)
    same_numbers(here, there)
    last = json.loads((there / "metrics.jsonl").read_text().splitlines()[-1])
    assert ("held/success" in last) == (held_out == "clients") != ("eval/success" in last)
    kept = [run / "episodes.jsonl" for run in (here, there)]  # of the coordinator's tasks alone
    assert [log.exists() for log in kept] == [held_out == "public"] * 2
    assert held_out == "clients" or kept[0].read_bytes() == kept[1].read_bytes()
    # Nothing of West's is anywhere but in West's folder.
    told = "".join(nodes.crossed) + "".join(
        path.read_text(errors="replace")
        for folder in (there, here, *(tmp_path / "nodes" / f"node-{k}" for k in (0, 1)), alone)
        for path in folder.rglob("*")
        if path.is_file()
    )
    assert CANARY not in told


def test_baselines_hold_what_they_should(place: Path, tmp_path: Path):
    every = build_algorithm(recipe(place, tmp_path, federation={"kind": "centralized"}))
    assert len(every.shares[0]) == sum(SIZES[m] - len(every._some_held_out(
        every.world.tasks_of(k, "test"))) for k, m in enumerate(MEMBERS))  # fmt: skip
    run = train(recipe(place, tmp_path, federation={"kind": "local", "client": 2}, rounds=1))
    assert {record["client"] for record in records(run)} == {2}
    assert evaluate(run, 5, 0).by_client.shape == (3,)


def test_a_run_goes_on_only_with_the_data_that_it_began_with(place: Path, tmp_path: Path):
    config = recipe(place, tmp_path, rounds=1)
    path = train(config)
    assert len(resolve_written(path)["partition"]["digests"]) == 4  # the public one, too
    extra = write_lines(place / "data" / "south" / "more.jsonl", ["{}"])
    try:
        again, directory = runs.resume(path, ["--rounds", "2"])
        directory.close()
        with pytest.raises(UserError, match=r"client 1 \(south\): its data has changed since"):
            build_algorithm(again)
    finally:
        extra.unlink()
    public = place / "data" / "public" / "more.jsonl"  # what the curve is measured on
    write_lines(public, ["{}"])
    try:
        again, directory = runs.resume(path, ["--rounds", "2"])
        directory.close()
        with pytest.raises(UserError, match=r"public: its data has changed since the run began"):
            build_algorithm(again)
    finally:
        public.unlink()
    again, directory = runs.resume(path, ["--rounds", "2"])
    runs.train(again, directory, build_algorithm(again))
    assert RunDir(path).checkpoints()


def resolve_written(path: Path) -> dict:
    import tomllib

    return tomllib.loads((path / "config.toml").read_text())


def test_data_that_changes_on_a_node_between_rounds_is_refused_there(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    own = [write_lines(tmp_path / m / "sums.jsonl", map(json.dumps, rows_of(m, CANARY))).parent
           for m in MEMBERS]  # fmt: skip
    flags = "--algorithm.model", str(place / "model")
    nodes = Nodes(tmp_path / "nodes", own, *flags)
    config = recipe(place, tmp_path / "a", *FLOWER, rounds=1)
    path = on_nodes(config, nodes, monkeypatch)
    write_lines(own[2] / "sums.jsonl", map(json.dumps, rows_of("west", CANARY)[1:]))
    run = on_nodes(config, nodes, monkeypatch, path, rounds=2)
    reasons = {(r["round"], r["client"]): r.get("reason", "") for r in records(run)}
    assert "its data has changed since the run began" in reasons[2, 2]
    assert not reasons[2, 0]


@pytest.mark.parametrize("private", [(), ("--privacy.clip", "1", "--privacy.secure", "true")])
def test_a_model_that_is_not_the_runs_is_named_before_round_one(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, private: tuple[str, ...]
):
    """Whatever is put around the clients' updates."""
    other = WarmStart(tasks=10, steps=1, batch=8, width=16, layers=1)
    world = prompts(place / "sums.jsonl", public=0.4, answer="answer")
    warmstart(world, other, tmp_path / "other")
    nodes = Nodes(
        tmp_path / "nodes", [place / "data" / m for m in MEMBERS],
        "--algorithm.model", str(tmp_path / "other"),
    )  # fmt: skip
    config = recipe(place, tmp_path / "out", *FLOWER, *private)
    with pytest.raises(UserError, match=r"none of 3 clients is ready: .* its model is not the run"):
        on_nodes(config, nodes, monkeypatch)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"world": {"source": "generated"}}, "it names what lies in each client's folder"),
        ({"world": {"source": "/etc/passwd"}}, "it names what lies in each client's folder"),
        ({"world": {"source": "../x.jsonl"}}, "it names what lies in each client's folder"),
        ({"federation": {"clients": 4}}, r"federation.clients is 4, but .* 3 folders .*: north, s"),
        ({"partition": {"folder": "nowhere"}}, "there is no folder nowhere"),
        ({"world": {"source": "other.jsonl"}}, "there is no file or folder"),
    ],
)
def test_mistakes_with_folders_are_one_line(place: Path, tmp_path: Path, change: dict, line: str):
    with pytest.raises(UserError, match=line):
        train(recipe(place, tmp_path, **change))


def test_clients_are_in_the_order_that_people_sort_by(tmp_path: Path):
    for name in ("client-10", "client-9", "client-1", ".hidden", "public"):
        (tmp_path / name).mkdir()
    folders = OwnFolders(tmp_path, 3)
    assert [folders.of(k).name for k in range(3)] == ["client-1", "client-9", "client-10"]
    assert folders.named(2) == "client 2 (client-10)"


def test_nobody_trains_on_what_all_are_evaluated_on(place: Path, tmp_path: Path):
    for member in (*MEMBERS, "public"):
        rows = rows_of("public")[3:] if member == "south" else rows_of(member)
        write_lines(tmp_path / "data" / member / "sums.jsonl", map(json.dumps, rows))
    config = recipe(place, tmp_path, partition={"folder": str(tmp_path / "data")})
    algorithm = build_algorithm(config)
    with pytest.raises(UserError, match=r"client 1 \(south\) trains on \d+ of the tasks that the"):
        runs.start(config, algorithm)
    assert not (tmp_path / "test").exists()


def test_a_warm_start_that_has_seen_what_is_evaluated_is_refused(place: Path, tmp_path: Path):
    public = place / "data" / "public" / "sums.jsonl"
    how = WarmStart(tasks=20, steps=1, batch=8, width=16, layers=1)
    warmstart(prompts(public, public=0.8, answer="answer"), how, tmp_path / "seen")
    config = recipe(place, tmp_path, "--algorithm.model", str(tmp_path / "seen"),
                    world={"test": 0.5})  # fmt: skip
    with pytest.raises(UserError, match=r"its warm start was shown \d+ of the 15 tasks that are"):
        assert build_algorithm(config).eval_tasks


def test_a_new_run_of_the_same_recipe_takes_the_data_as_it_is_then(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Next month's training, with more data, a README beside it, and logs in the folder."""
    own = [write_lines(tmp_path / m / "sums.jsonl", map(json.dumps, rows_of(m, CANARY))).parent
           for m in MEMBERS]  # fmt: skip
    nodes = Nodes(tmp_path / "nodes", own, "--algorithm.model", str(place / "model"))
    path = on_nodes(recipe(place, tmp_path / "a", *FLOWER, rounds=1), nodes, monkeypatch)
    write_lines(own[0] / "README", ["no data"])  # beside what world.source names
    path = on_nodes(None, nodes, monkeypatch, path, rounds=2)
    assert {r["status"] for r in records(path)} == {"ok"}
    write_lines(own[2] / "sums.jsonl", map(json.dumps, rows_of("west", CANARY)[1:]))
    again = on_nodes(recipe(place, tmp_path / "b", *FLOWER, rounds=1), nodes, monkeypatch)
    assert {r["status"] for r in records(again)} == {"ok"}


def test_a_mistake_in_the_data_that_its_owner_mends_is_no_change(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    own = [write_lines(tmp_path / m / "sums.jsonl", map(json.dumps, rows_of(m))).parent
           for m in MEMBERS]  # fmt: skip
    write_lines(own[2] / "sums.jsonl", ['{"frage": "1+1="}'])
    nodes = Nodes(tmp_path / "nodes", own, "--algorithm.model", str(place / "model"))
    path = on_nodes(recipe(place, tmp_path / "a", *FLOWER, rounds=1), nodes, monkeypatch)
    assert any("world.prompt is 'prompt', which" in line for line in nodes.logs[2])
    write_lines(own[2] / "sums.jsonl", map(json.dumps, rows_of("west")))
    path = on_nodes(None, nodes, monkeypatch, path, rounds=2)
    found = {(r["round"], r["client"]): r["status"] for r in records(path)}
    assert found[1, 2] == "failed"
    assert found[2, 2] == "ok"


def test_no_guess_of_the_data_can_be_tried_on_a_node(place: Path, tmp_path: Path):
    """With a digest in the recipe a node would say whether it is right."""
    from fedrl.config.loading import to_toml
    from fedrl.engines.flower.node_recipes import configuration

    sent = to_toml(recipe(place, tmp_path, "--world.digest", "0" * 32))
    assert configuration(sent, ()).world.digest == ""


def test_a_column_that_a_reward_reads_is_asked_for_before_round_one(place: Path, tmp_path: Path):
    for member in (*MEMBERS, "public"):
        rows = [dict(row) for row in rows_of(member)]
        if member == "south":
            for row in rows:
                row["solution"] = row.pop("answer")
        write_lines(tmp_path / "data" / member / "sums.jsonl", map(json.dumps, rows))
    config = recipe(place, tmp_path, partition={"folder": str(tmp_path / "data")})
    line = r"client 1 \(south\).*'exact_match' reads the column 'answer', which .*line 1 has not"
    with pytest.raises(UserError, match=line):
        runs.start(config, build_algorithm(config))


def test_a_client_that_is_not_ready_says_why_once_in_the_log_and_to_the_driver(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    other = WarmStart(tasks=10, steps=1, batch=8, width=16, layers=1)
    world = prompts(place / "sums.jsonl", public=0.8, answer="answer")
    warmstart(world, other, tmp_path / "other")
    own = [place / "data" / m for m in MEMBERS]
    nodes = Nodes(tmp_path / "nodes", own, "--algorithm.model", str(tmp_path / "other"))
    with pytest.raises(UserError):
        on_nodes(recipe(place, tmp_path / "out", *FLOWER), nodes, monkeypatch)
    told = [line for line in nodes.logs[0] if "not ready" in line]
    assert len(told) == 1
    assert "secure sum" not in told[0]
    assert told[0].count("could not start") == 1


def test_nobody_holds_out_more_tasks_than_there_can_be(place: Path, tmp_path: Path):
    algorithm = build_algorithm(recipe(place, tmp_path))
    assert algorithm.ranges["held/tasks"].high == 10_000_000
    assert algorithm.ranges["held/tasks"].whole
