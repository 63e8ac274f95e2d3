"""The report: groups, intervals, what the page says, and that nothing in it leaves the page."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.pages import Page, write_run

from fedrl.cli import notes_printed
from fedrl.core.types import UserError
from fedrl.report import page as report
from fedrl.report import plots, tables
from fedrl.report.chart_data import chart_data
from fedrl.report.panels import main_panels, panel, possible
from fedrl.report.run_groups import (
    Group,
    curve,
    drawn_metrics,
    env_steps,
    group_names,
    group_runs,
    main_metric,
    summary_row,
)
from fedrl.runs.read import load


def groups_of(*folders: Path) -> list[Group]:
    return group_runs([load(folder) for folder in folders])


# Curves


def test_band_is_the_interval() -> None:
    _, [axes] = plots.figure()
    samples = np.array([[1.0, 4.0], [3.0, 6.0]])
    plots.band_plot(axes, [0, 1], {"empty": np.empty((0, 0)), "a": samples, "one": samples[:1]})
    assert len(axes.collections) == 1  # one seed has no band
    band = axes.collections[0].get_paths()[0].vertices
    half = 12.7062 * 1.0  # t of one degree of freedom times sqrt(2) / sqrt(2)
    assert sorted(set(np.round(band[:, 1], 3))) == pytest.approx(
        [2 - half, 5 - half, 2 + half, 5 + half], abs=1e-3
    )
    np.testing.assert_allclose(axes.lines[0].get_ydata(), [2, 5])
    assert axes.lines[0].get_color() == plots.PALETTE[1]  # the line without points keeps its turn


def test_no_band_leaves_what_a_metric_can_be() -> None:
    inside, below = np.array([[0.1, 0.9]]), np.array([[-0.1, 0.9]])
    free = (-np.inf, np.inf)
    assert possible("train/weight_clipped", [inside]) == (0.0, 1.0)
    assert possible("eval/success_clean", [inside]) == (0.0, 1.0)
    assert possible("train/weight_var", [inside]) == (0.0, np.inf)
    assert possible("eval/spearman", [below]) == (-1.0, 1.0)
    assert possible("eval/return", [inside]) == free
    assert possible("train/invalid", [inside, below]) == free  # of somebody's own method


def test_curve_against_steps_reads_each_seed_off_its_own_curve(tmp_path: Path) -> None:
    runs = [load(write_run(tmp_path / f"{s}", seed=s)) for s in (0, 500)]
    x, y = curve(runs, "eval/return", env_steps)
    # Seed s makes 1000 + s steps a round and gains 10 a round: 10 x / (1000 + s) at step x.
    np.testing.assert_allclose(y[0], 10 * x / 1000)
    np.testing.assert_allclose(y[1], 10 * x / 1500)
    assert x[-1] == 10_000  # no further than the seed with the fewest steps


def test_a_caption_says_where_curves_end_before_the_last_round(tmp_path: Path) -> None:
    def captions(*folders: Path) -> str:
        groups = groups_of(*folders)
        return " ".join(report.notes(groups, main_panels(groups, "eval/return")))

    first, second = (write_run(tmp_path / f"{s}", seed=s) for s in (0, 500))
    # Both send as many bytes a round, and seed 500 makes half as many steps again.
    assert "Against environment steps a curve ends where its shortest seed" in captions(
        first, second
    )
    assert "shortest seed" not in captions(first)


def test_curve_stops_where_the_first_seed_stops(tmp_path: Path) -> None:
    runs = [
        load(write_run(tmp_path / "a", final=100)),
        load(write_run(tmp_path / "b", final=200, seed=1, done=5, status="stopped")),
    ]
    x, y = curve(runs, "eval/return")
    assert x.tolist() == [0, 2, 4]
    np.testing.assert_allclose(y, [[0, 20, 40], [0, 40, 80]])


# Groups


def test_seeds_form_groups_named_by_what_differs(tmp_path: Path) -> None:
    momentum = 'name = "fedsvrpg-m"\nbeta = {}'
    folders = [
        write_run(tmp_path / f"{number}-{seed}", seed=seed, algorithm=text)
        for seed in (1, 0)
        for number, text in enumerate(
            [momentum.format(0.2), momentum.format(0.8), 'name = "pavg"\nlr = 0.1']
        )
    ]
    groups = groups_of(*folders)
    assert [one.name for one in groups] == ["fedsvrpg-m β=0.2", "fedsvrpg-m β=0.8", "pavg"]
    for one in groups:
        assert [run.config["seed"] for run in one.runs] == [0, 1]


def test_what_is_of_a_file_goes_by_its_name_and_not_its_folder() -> None:
    mine = {"algorithm.name": "/home/me/study/mine.py:FedDyn", "world.name": "/home/me/w.py:Plane"}
    ours = {"algorithm.name": "pavg", "world.name": "cartpole"}
    assert not any("/" in name for name in group_names([mine, ours]))
    assert "FedDyn" in group_names([mine, ours])[0]


def test_a_rule_is_named_with_its_table_and_brings_no_settings_along() -> None:
    krum = {"aggregate.name": "krum", "aggregate.trim": 0.2, "packages": []}
    mine = {"aggregate.name": "/home/me/mine.py:near", "packages": ["mine.py:file:fb81c0ffee"]}
    kept = [mine | {"aggregate.radius": radius} for radius in (1.0, 2.0)]
    assert group_names([krum, *kept]) == [
        "aggregate.name=krum", "aggregate.name=near radius=1.0", "aggregate.name=near radius=2.0",
    ]  # fmt: skip
    labels = [{"partition.labels": f"/home/me/{name}.json"} for name in ("a", "b")]
    assert group_names(labels) == ["labels=a.json", "labels=b.json"]


def test_variants_of_a_sweep_keep_their_names() -> None:
    configs = [{"algorithm.lr": lr, "packages": []} for lr in (0.1, 0.2, 0.3)]
    assert group_names(configs, ["clipped-liar", "b", ""]) == ["clipped-liar", "b", "run"]
    assert group_names(configs, ["a", "a", "b"]) == ["a lr=0.1", "a lr=0.2", "b"]
    codes = [{"packages": [f"mine.py:file:{word}00ffee"]} for word in ("aa", "bb")]
    assert group_names(codes, ["a", "a"]) == ["a (code aa00ff)", "a (code bb00ff)"]


def test_what_differs_in_its_code_alone_is_named_by_that(tmp_path: Path) -> None:
    """Also beside groups that differ in a setting; the table says which code that is."""
    mine = 'name = "mine.py:Mine"\nlr = {}'
    folders = []
    for at, (lr, code) in enumerate([(0.1, "af0a55"), (0.1, "bb77cc"), (0.2, "bb77cc")]):
        folders.append(write_run(tmp_path / f"{at}", algorithm=mine.format(lr)))
        config = folders[-1] / "config.toml"
        hashes = f'packages = ["mine.py:file:{code}0123", "world.py:file:999999"]\n'
        config.write_text(hashes + config.read_text())
    groups = groups_of(*folders)
    assert [group.name for group in groups] == [
        "lr=0.1 (code af0a55)", "lr=0.1 (code bb77cc)", "lr=0.2",
    ]  # fmt: skip
    table = tables.settings(groups).different
    assert table is not None
    assert table.head == ["", "algorithm.lr", "code"]
    assert table.rows[0][2] == "mine.py af0a55, world.py 999999"
    alone = [{"packages": []}, {"packages": ["mine.py:file:af0a550123"]}]
    assert group_names(alone) == ["(code of fedrl alone)", "(code af0a55)"]


def test_names_of_settings_that_share_their_last_word() -> None:
    configs = [
        {"algorithm.clip": 1.0, "privacy.clip": 0.5, "rounds": 3},
        {"algorithm.clip": 2.0, "privacy.clip": 0.5, "rounds": 3},
        {"algorithm.clip": 2.0, "privacy.clip": 0.9, "rounds": 4},
    ]
    assert group_names(configs) == [
        "algorithm.clip=1.0 privacy.clip=0.5 rounds=3",
        "algorithm.clip=2.0 privacy.clip=0.5 rounds=3",
        "algorithm.clip=2.0 privacy.clip=0.9 rounds=4",
    ]
    assert group_names([{"a": 1}, {"a": "1"}, {}]) == ["a=1", "a=1 #2", "defaults"]


def test_columns_that_say_nothing_are_left_out(tmp_path: Path) -> None:
    """The name that a row has already, hashes, folders, settings of rules that nobody has set."""
    folders = []
    for name, rule in {
        "a": 'name = "mean"\ntrim = 0.2',
        "b": 'name = "/home/me/m.py:near"',
    }.items():
        run = write_run(tmp_path / name, name=f"{name}-seed0.{'c' * 12}")
        config = run / "config.toml"
        config.write_text(f'packages = ["{name}"]\n{config.read_text()}[aggregate]\n{rule}\n')
        folders.append(run)
    table = tables.settings(groups_of(*folders)).different
    assert table is not None
    assert table.head == ["", "aggregate.name"]
    assert table.rows == [["a", '"mean"'], ["b", '"near"']]


def test_numbers_of_a_group(tmp_path: Path) -> None:
    finals = (90.0, 100.0, 110.0)
    folders = [write_run(tmp_path / f"{s}", seed=s, final=f) for s, f in enumerate(finals)]
    [one] = groups_of(*folders)
    row = summary_row(one, "eval/return")
    # Standard error 10 / sqrt(3), t of two degrees of freedom 4.3027: 24.8.
    assert row["final return"] == "100 ± 25"
    assert row["mean over rounds"] == "50 ± 12"
    assert row["best"] == "100 (round 10)"
    assert row["sent"] == "30 MB"
    assert row["wall time"] == "1 min 30 s"
    assert (row["of it training"], row["of it start-up, compiling"]) == ("–", "–")
    assert (row["seeds"], row["failures"]) == ("3: 0, 1, 2", "0")


def test_compiling_is_no_part_of_the_time_that_training_takes(tmp_path: Path) -> None:
    folders = [write_run(tmp_path / f"{s}", seed=s) for s in range(2)]
    for folder in folders:
        config = folder / "config.toml"
        config.write_text('engine = "inprocess"\n' + config.read_text())
        meta = json.loads((folder / "meta.json").read_text())
        (folder / "meta.json").write_text(json.dumps(meta | {"startup_seconds": 5.0}))
        lines = [{"round": 0, "clients": 40.0, "evaluate": 3.0, "compile": {"clients": 35.0}}]
        lines += [{"round": 1, "clients": 2.0, "cpu": {"clients": 1.0}, "compile": {"clients": 0}}]
        (folder / "timings.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    row = summary_row(groups_of(*folders)[0], "eval/return")
    assert row["wall time"] == "1 min 30 s"
    assert (row["of it training"], row["of it start-up, compiling"]) == ("10 s", "40 s")
    # Clients in processes of their own compile there: what this one saw is not all of it.
    config = folders[0] / "config.toml"
    config.write_text(config.read_text().replace("inprocess", "workers"))
    assert load(folders[0]).training_seconds is None
    # A line of a version before, which did not tell.
    log = folders[1] / "timings.jsonl"
    log.write_text(log.read_text() + '{"round": 2, "clients": 2.0}\n')
    assert load(folders[1]).starting_seconds is None


# The page


@pytest.mark.slow
def test_page_of_one_run(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", name='<b>&"x', failures=((3, 2, "<i>NaN</i>"),))
    out = report.build([run], None)
    assert out == run / "report.html"
    text = out.read_text(encoding="utf-8")
    page = Page(text)
    assert not page.attributes("b")
    assert not page.attributes("i")
    assert '<b>&"x' in page.text
    assert "<i>NaN</i>" in page.text
    assert "pavg on cartpole, 4 clients, 10 rounds, 1 seed: final return 100." in page.text
    assert "Unfinished" not in page.text
    assert "abc1234" in page.text
    pictures = {path.name for path in (run / "plots").iterdir()}
    drawn = ("eval_return", "eval_grad_norm_sq", "train_return", "cohort_failed_so_far")
    endings = ("png", "svg")
    assert pictures == {f"{name}.{end}" for name in drawn for end in endings} | {"numbers.csv"}
    assert text == report.build([run], None).read_text(encoding="utf-8")  # the same bytes again


@pytest.mark.slow
def test_page_of_several_runs_is_self_contained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [
        write_run(tmp_path / f"{name}-{seed}", seed=seed, algorithm=f'name = "{name}"', final=final)
        for name, final in (("pavg", 50.0), ("fedhapg-m", 80.0))
        for seed in (0, 1, 2)
    ]
    monkeypatch.chdir(tmp_path)
    text = report.build(folders, None).read_text(encoding="utf-8")
    page = Page(text)
    assert (tmp_path / "report.html").is_file()
    images = page.attributes("img")
    assert len(images) == 5
    for attributes in images:
        assert (attributes["src"] or "").startswith("data:image/")
        assert (attributes["alt"] or "").startswith("Line plot of ")
    links = [a.get("src") or a.get("href") for _, a in page.tags if a.get("src") or a.get("href")]
    assert all((link or "").startswith("data:") for link in links)
    assert all("src" not in script for script in page.attributes("script"))
    assert not page.attributes("link")
    without_scripts = re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)
    assert not re.search(r"url\(|@import|https?:", without_scripts)
    assert "highest final return fedhapg-m with 80 ± 0, then pavg with 50 ± 0" in page.text
    assert "<strong>fedhapg-m</strong> with <strong>80 ± 0</strong>" in text
    plotted = sorted((tmp_path / "report_plots").glob("*.png"))
    assert len(plotted) == 3
    for path in plotted:
        from matplotlib.image import imread

        assert imread(path).shape[0] > 200


def test_log_axis_only_where_all_is_positive(tmp_path: Path) -> None:
    groups = groups_of(write_run(tmp_path / "run"))
    assert panel(groups, "eval/grad_norm_sq").log
    groups[0].runs[0].rounds[0]["eval/grad_norm_sq"] = 0.0
    assert not panel(groups, "eval/grad_norm_sq").log


@pytest.mark.parametrize(("metric", "log"), [("eval/q_error", True), ("train/td_error", False)])
def test_a_distance_to_the_optimum_has_a_log_axis(tmp_path: Path, metric: str, log: bool) -> None:
    """1e-2 and 1e-8 are the two outcomes of QAvg's theorem, and one line on a linear axis."""
    groups = groups_of(write_run(tmp_path / "run"))
    for number, metrics in groups[0].runs[0].rounds.items():
        metrics[metric] = 10.0**-number
    shown = panel(groups, metric)
    assert shown.log == log
    assert json.loads(chart_data(shown))["log"] == log


@pytest.mark.parametrize("top", [2.4, 30.0, 1e4])
def test_log_axis_has_labels_that_differ(top: float) -> None:
    figure, [axes] = plots.figure()
    plots.band_plot(axes, [0, 1], {"a": np.array([[2.0, top]])}, log=True)
    figure.draw_without_rendering()
    low, high = axes.get_ylim()
    ticks = zip(axes.get_yticks(), axes.get_yticklabels(), strict=True)
    labels = [text.get_text() for at, text in ticks if low <= at <= high]
    assert len(set(labels)) == len(labels) >= 3


@pytest.mark.slow
def test_unfinished_run_and_doubled_seed_are_said_first(tmp_path: Path) -> None:
    folders = [
        write_run(tmp_path / name, seed=seed, done=done, status="running")
        for name, seed, done in (("a", 0, 6), ("b", 1, 4), ("c", 0, 5))
    ]
    text = Page(report.build(folders, tmp_path / "x.html").read_text(encoding="utf-8")).text
    unfinished = text.index("Unfinished: b is at round 4 of 10 (status: running).")
    doubled = text.index("Left out: c has seed 0 of the same settings as a, so it is no further")
    assert "up to 10 rounds" in text
    assert max(unfinished, doubled) < text.index("Settings")


def test_resumed_rounds_count_once_and_costs_are_carried_on(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", done=1)
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"round": 1, "eval/return": 7.0, "env/steps": 900}\n')
        file.write('{"round": 2, "eval/return": 9.0}\n')
    rounds = load(run).rounds
    assert list(rounds) == [0, 1, 2]
    assert (rounds[1]["eval/return"], rounds[2]["env/steps"]) == (7.0, 900.0)


def test_torn_last_line_is_ignored_and_any_other_is_named(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    whole = load(run).rounds
    path = run / "metrics.jsonl"
    path.write_text(path.read_text() + '{"round": 11, "eval/ret')
    assert load(run).rounds == whole
    path.write_text(path.read_text() + '\n{"round": 12}\n')
    with pytest.raises(UserError, match=r"metrics\.jsonl, line 12: no valid JSON$"):
        load(run)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "expected a folder with config.toml, found nothing"),
        (lambda path: path.write_text(""), "expected a folder with config.toml, found a file"),
        (lambda path: path.mkdir(), "expected config.toml in it, found an empty folder"),
        (lambda path: (path / "b").mkdir(parents=True), "expected config.toml in it, found b"),
    ],
)
def test_what_is_no_run(tmp_path: Path, make: Any, message: str) -> None:
    make(tmp_path / "x")
    with pytest.raises(UserError) as caught:
        report.build([tmp_path / "x"], None)
    assert str(caught.value) == f"{tmp_path / 'x'} is no run: {message}"


def test_run_without_metrics(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    (run / "metrics.jsonl").write_text("")
    with pytest.raises(UserError, match=r"has no metrics yet: .*metrics\.jsonl"):
        report.build([run], None)


@pytest.mark.slow
def test_a_page_elsewhere_leaves_the_runs_folder_alone(tmp_path: Path) -> None:
    """It may be somebody else's, or on a disk that is read-only."""
    run = write_run(tmp_path / "run")
    before = sorted(run.rglob("*"))
    page = report.build([run], tmp_path / "elsewhere" / "page.html")
    assert sorted(run.rglob("*")) == before
    assert list((page.parent / "page_plots").glob("*.png"))


@pytest.mark.slow
def test_one_run_that_cannot_be_read_is_left_out_and_named(
    tmp_path: Path, capsys, monkeypatch
) -> None:
    whole = [write_run(tmp_path / "a"), write_run(tmp_path / "b", seed=1)]
    empty = write_run(tmp_path / "empty")
    (empty / "metrics.jsonl").write_text("")
    damaged = write_run(tmp_path / "damaged")
    (damaged / "config.toml").write_bytes(b"\xff")
    for folders in ([empty, *whole], [*whole, damaged]):
        with notes_printed():
            page = report.build(folders, tmp_path / "x.html")
        (line,) = capsys.readouterr().err.splitlines()
        odd = next(folder for folder in folders if folder not in whole)
        assert line.startswith("left out: ")
        assert str(odd) in line
        text = Page(page.read_text(encoding="utf-8")).text
        assert f"Left out: {odd}" in text
        assert "2 seeds" in text
    shut = write_run(tmp_path / "shut")  # where cohorts are secret, other users' runs are
    read = Path.read_text

    def read_text(path: Path, *words, **options) -> str:
        if path.parent == shut:
            raise PermissionError(13, "Permission denied", str(path))
        return read(path, *words, **options)

    monkeypatch.setattr(Path, "read_text", read_text)
    with notes_printed():
        report.build([shut, *whole], tmp_path / "x.html")
    assert f"left out: {shut / 'config.toml'}: Permission denied" in capsys.readouterr().err
    with pytest.raises(UserError, match=r"none of these 2 can be shown: .* no metrics yet"):
        report.build([empty, damaged], tmp_path / "x.html")


@pytest.mark.parametrize(
    ("file", "data"),
    [
        ("config.toml", b"\xff"),
        ("config.toml", b"rounds ="),
        ("meta.json", b"\xff"),
        ("meta.json", b"[]"),
        ("meta.json", b"[" * 9999),
        ("metrics.jsonl", b'{"round": true}\n'),
        ("metrics.jsonl", b"[" * 9999 + b"\n{}\n"),
        ("clients.jsonl", b"3\n"),
    ],
)
def test_a_damaged_file_is_one_line(tmp_path: Path, file: str, data: bytes) -> None:
    run = write_run(tmp_path / "run")
    (run / file).write_bytes(data)
    with pytest.raises(UserError, match=file) as caught:
        report.build([run], None)
    assert "\n" not in str(caught.value)


def test_numbers_that_are_none_are_not_read(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", done=1)
    (run / "meta.json").write_text('{"seconds": "long"}')
    (run / "timings.jsonl").write_text('{"round": 1, "a": "x", "b": 2.5, "c": null}\n')
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"round": 2, "eval/return": 7.0, "a/b": ' + "9" * 400 + ', "a/c": true}\n')
    found = load(run)
    assert found.seconds == 2.5
    assert not {"a/b", "a/c"} & set(found.rounds[2])


def test_what_a_run_has_for_every_client_is_not_drawn(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    text = (run / "metrics.jsonl").read_text()
    (run / "metrics.jsonl").write_text(
        text.replace('"eval/return":', '"eval/reward_client12": 1.0, "eval/reward":')
    )
    groups = groups_of(run)
    assert drawn_metrics(groups) == ["eval/grad_norm_sq", "eval/reward", "train/return"]
    assert main_metric(groups) == "eval/reward"


def test_failed_clients_are_counted_and_named(tmp_path: Path) -> None:
    failures = tuple((when, 3, "timeout") for when in (1, 2, 3, 7))
    [one] = groups_of(write_run(tmp_path / "run", failures=failures))
    assert summary_row(one, "eval/return")["failures"] == "4"
    found = tables.failures([one])
    assert found is not None
    assert "1–3, 7" in found.table.rows[0]
    assert one.runs[0].rounds[10]["cohort/failed_so_far"] == 4


@pytest.mark.slow
def test_matplotlib_is_loaded_only_to_draw() -> None:
    program = "import sys, fedrl.report.page; assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@pytest.mark.slow
def test_the_seeds_of_a_sweep_are_one_group(tmp_path: Path):
    """A grid's runs have names of their own, of a hash and the seed: they are repetitions."""
    import fedrl

    runs = fedrl.sweep(
        {"recipe": "momentum/random_mdp", "seeds": [0, 1], "runs": {"b": "", "a": ""}},
        out=tmp_path, processes=1, rounds=1, federation={"clients": 2},
        world={"states": 3, "actions": 2},
    )  # fmt: skip
    groups = group_runs([load(run.path) for run in runs])
    assert [(group.name, len(group.runs)) for group in groups] == [("b", 2), ("a", 2)]
    page = fedrl.Runs(runs).report(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<h1>b and a</h1>" in page
