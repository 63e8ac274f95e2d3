"""Records and the runner that makes them: none is lost, none is another's, each names its code."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from support.result_pages import row

from fedrl.api import complete
from fedrl.api.papers import PAPERS
from fedrl.config.loading import find_recipe
from fedrl.core.types import UserError
from fedrl.report import plots
from fedrl.runs import provenance
from fedrl.runs.process_pool import pool
from reproductions import pages, records, runner
from reproductions.grid import Cell
from reproductions.records import Store
from reproductions.runner import Place, record_run, run_name
from reproductions.study import prepare, write_page

RESULTS = Path(__file__).parents[2] / "docs" / "results"
RECIPE = {
    "rounds": 3,
    "algorithm": {"name": "fedqhd", "features": 50, "anchors": 20, "episodes": 1},
    "world": {"name": "cartpole-v1"},
    "federation": {"clients": 2},
}


def cell_of(*seeds: int, together: bool = False) -> Cell:
    return Cell("part", "cell", RECIPE, seeds or (0,), together=together)


def test_a_run_that_got_less_far_leaves_the_record_of_another_machine(tmp_path, monkeypatch):
    """The run itself lies elsewhere, so that it begins anew here, and is stopped early."""
    cell, place = cell_of(), Place(tmp_path, Store(tmp_path / "records"))
    key = (cell.part, run_name(cell, 0), cell.digest(0))
    place.store.write(*key, {"rounds": 2})

    def stopped(config, processes):
        complete(replace(config, rounds=1))
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "train", stopped)
    with pytest.raises(KeyboardInterrupt):
        record_run(cell, 0, place, ("eval/return",), ())
    record = place.store.read(*key)
    assert record is not None
    assert record["rounds"] == 2


def test_a_run_that_was_killed_before_its_record_is_only_recorded(tmp_path, monkeypatch):
    cell, place = cell_of(), Place(tmp_path, Store(tmp_path / "records"))
    complete(cell.config(0, tmp_path))
    monkeypatch.setattr(runner, "complete", lambda config: pytest.fail("computed again"))
    record_run(cell, 0, place, ("eval/return",), ())
    record = place.store.read(cell.part, run_name(cell, 0), cell.digest(0))
    assert record is not None
    assert record["rounds"] == 3
    assert record["seeds"] == [0]


@pytest.mark.parametrize("text", ["", '{"part": "pa', "[1]", "{}", '{"digest": "of another"}'])
def test_half_a_record_and_one_of_other_settings_are_named(tmp_path, text):
    store = Store(tmp_path)
    path = store.path("part", "cell", "abc")
    path.parent.mkdir()
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=r"cell-abc\.json is no record"):
        store.read("part", "cell", "abc")


def test_seeds_computed_together_are_part_of_the_digest():
    first = cell_of(0, 1, 2, together=True)
    assert first.span == {"first": 0, "count": 3}
    others = [cell_of(*seeds, together=True) for seeds in [(0, 1), (1, 2, 3), (0, 1, 5)]]
    assert len({cell.digest(0) for cell in [first, *others]}) == 4
    assert not others[-1].span


def test_a_run_of_a_cell_has_a_folders_name(tmp_path):
    recipe = {"world": {"name": "cartpole"}, "algorithm": {"name": "pavg"}}
    plain, odd = (Cell("part", name, recipe, (0,)) for name in ("a-b.c+d", "a beta=0.5,rate=1"))
    assert plain.config(0, tmp_path).name.startswith("a-b.c+d-seed0.")
    assert odd.config(0, tmp_path).name.startswith("a_beta_0.5_rate_1-seed0.")


def test_processes_are_of_the_commit_that_the_command_began_with(monkeypatch):
    """Hours later the checkout may have another, which computed nothing."""
    monkeypatch.setattr(provenance, "commit", lambda: "0123456789")
    with pool(1) as executor:
        assert executor.submit(provenance.collect).result()["commit"] == "0123456789"


def test_a_record_keeps_no_folder_of_its_machine():
    said = records.portable("fedrl reproduce fedqhd --out /somewhere/of/mine/runs --only table")
    assert said == "fedrl reproduce fedqhd --out runs --only table"
    assert records.portable(None) is None


def test_every_published_record_names_its_origin():
    paths = sorted(RESULTS.glob("*/records/*/*.json"))
    assert len(paths) > 400
    for path in paths:
        record = json.loads(path.read_text(encoding="utf-8"))
        assert path.name.endswith(f"-{record['digest']}.json")
        assert record["part"] == path.parent.name
        assert record["commit"]
        assert record["hardware"]["cpu"]
        assert record["hardware"]["cores"]
        assert {"command", "date", "seconds"} <= set(record)


def test_commits_of_records_and_rules_can_be_looked_up_or_are_marked():
    def git(*words: str) -> str:
        command = ["git", "-C", str(RESULTS), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    try:
        if "true" in git("rev-parse", "--is-shallow-repository"):
            pytest.skip("a shallow clone has no history")
        history = git("log", "--format=%H").split()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a checkout: there is no history")
    said = [
        json.loads(path.read_text("utf-8"))["commit"] for path in RESULTS.glob("*/records/*/*.json")
    ]
    for path in Path(pages.__file__).parent.glob("*/grid.toml"):
        said += [
            v for k, v in tomllib.loads(path.read_text("utf-8")).items() if k.endswith("_commit")
        ]
    named = {one for text in said for one in re.findall(r"[0-9a-f]{7,10}", text)}
    known = {whole[:digits] for whole in history for digits in (7, 10)}
    assert named <= known | pages.FOLDED
    assert all((pages.FOLD in pages.looked_up(one)) == (one not in known) for one in named)


@pytest.mark.slow
@pytest.mark.parametrize("paper", PAPERS)
def test_a_published_page_is_what_its_records_say(paper, tmp_path, monkeypatch):
    """Pages are not written by hand, and not left behind by records, templates or rules."""
    monkeypatch.setattr(plots, "save", lambda *_, **__: None)
    shutil.copytree(RESULTS / paper, tmp_path / paper)
    scale = "small" if "small" in PAPERS[paper].published else "full"
    try:
        study = prepare(paper, scale, tmp_path / "runs", tmp_path / paper / "records")
    except UserError as error:
        pytest.skip(str(error))
    write_page(study, tmp_path / f"{paper}.md", published=True)
    written = (tmp_path / f"{paper}.md").read_text(encoding="utf-8")
    assert written == (RESULTS / f"{paper}.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_networks_that_are_not_tuned_are_marked_and_not_judged(tmp_path):
    """Nothing on the page is in favour of FedQHD against a network that had no chance."""
    pytest.importorskip("numba", reason="FedQHD needs the extra classic")
    from reproductions.fedqhd import measuring

    page = (RESULTS / "fedqhd.md").read_text(encoding="utf-8")
    text = " ".join(page.split())
    assert "Oracle DQN's values diverge" not in text
    study = prepare("fedqhd", "small", tmp_path, RESULTS / "fedqhd" / "records")
    results = measuring.collect(study)
    plan = results.plan
    for (task, name), at in results.tuned.items():
        method, _, encoders = name.rpartition("-")
        title = plan.methods[method].title
        begun = bool(at.screened or at.full)
        marked = f"| {plan.tasks[task]} | {title}, {encoders} ‡ |" in text
        assert marked == (not begun and (task, name) in results.tried)
        if method in ("feddqn", "distill") and not at.done:
            shown = page.partition("Own encoders:\n")[2] if encoders == "own" else page
            verdict = row(shown, f"better than {title} |")[1 + list(plan.tasks).index(task)]
            assert verdict.startswith(("not judged", "not measured", "**does not hold**"))
    minutes = page.partition("## Table 2")[2].partition("## ")[0]
    ours = " ".join(minutes.split()).partition("Ours: ")[2].partition("Kernels")[0]
    if "†" in minutes:  # of older runs, on other machines
        assert "; where marked, AMD EPYC, 2 cores" in ours


def test_a_recipe_quotes_the_page_that_there_is():
    said = find_recipe("momentum/walker").read_text(encoding="utf-8")
    page = (RESULTS / "momentum.md").read_text(encoding="utf-8")
    section = page.partition("## The curves behind Table 3: Walker2d")[2].partition("\n## ")[0]
    quoted = re.findall(r"\d+\.\d(?= at the end|\)|,)", said.partition("\nrounds")[0])
    assert len(quoted) == 4
    assert all(f"| {number} ± " in section for number in quoted)
