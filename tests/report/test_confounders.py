"""What a report warns of where runs differ in more than the method that is compared."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.pages import Page, groups, write_run, write_runs

from fedrl.config.loading import to_toml
from fedrl.report import page as report
from fedrl.report.confounders import (
    confounders,
    more_than_the_method,
    tuned_for_another,
    unequal_samples,
)
from fedrl.report.terminal import summary
from fedrl.runs import sweep


def settings(folder: Path, of: str, **values: object) -> None:
    """More of them in a run's table `[of]`."""
    config = folder / "config.toml"
    lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())
    config.write_text(config.read_text().replace(f"[{of}]\n", f"[{of}]\n{lines}"))


def count(folder: Path, factor: float, name: str = "env/steps") -> None:
    """As if each of its rounds had so many times the samples."""
    file = folder / "metrics.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    told = [line | {name: line["env/steps"] * factor} for line in lines]
    file.write_text("".join(json.dumps(line) + "\n" for line in told))


@pytest.mark.slow
def test_who_learned_from_more_samples_is_named(tmp_path: Path):
    """Settings of a method may give it five times the samples of another one in a round."""
    folders = write_runs(tmp_path, {"pavg": [50, 60], "fedhapg-m": [90, 91]})
    assert confounders(groups(folders), "eval/return") == []
    for folder in folders[2:]:
        settings(folder, "algorithm", trajectories=5)
        count(folder, 5)
    (line,) = unequal_samples(groups(folders), "eval/return")
    assert line.startswith(
        "fedhapg-m learned from 5.0 times the environment steps of pavg (5002 and 1000 a round)."
    )
    page = Page(report.build(folders, tmp_path / "page.html").read_text())
    assert line in page.text
    assert line in summary(groups(folders))


def test_all_who_learned_from_fewer_samples_are_named(tmp_path: Path):
    folders = write_runs(tmp_path, {"pavg": [50], "fedhapg-m": [90], "fedsvrpg-m": [70]})
    for folder, times in zip(folders, (0.01, 0.04, 0.02), strict=True):
        count(folder, times, "env/episodes")
    (line,) = unequal_samples(groups(folders), "eval/return")
    assert line.startswith(
        "fedhapg-m learned from 4.0 times the episodes of pavg, 2.0 times those of fedsvrpg-m ("
    )


def test_longer_episodes_are_a_result_and_no_other_samples(tmp_path: Path):
    """A pole that stands for longer: as many episodes, more steps."""
    folders = write_runs(tmp_path, {"pavg": [50], "fedhapg-m": [90]})
    count(folders[1], 1.8)
    assert unequal_samples(groups(folders), "eval/return") == []
    config = folders[1] / "config.toml"
    config.write_text(config.read_text().replace("clients = 4", 'clients = 4\nkind = "local"'))
    assert len(unequal_samples(groups(folders), "eval/return")) == 1


def test_episodes_are_counted_where_a_run_has_them(tmp_path: Path):
    """Agents' episodes are of different lengths: as many of them are as many samples."""
    folders = write_runs(tmp_path, {"pavg": [50], "fedhapg-m": [90]})
    for folder in folders:
        count(folder, 0.01, "env/episodes")
    count(folders[1], 1.3)
    assert unequal_samples(groups(folders), "eval/return") == []
    count(folders[1], 0.02, "env/episodes")
    assert "2.6 times the episodes of pavg" in unequal_samples(groups(folders), "eval/return")[0]


def test_rounds_that_are_not_reached_yet_are_no_fewer_samples(tmp_path: Path):
    folders = write_runs(tmp_path / "long", {"pavg": [50]})
    folders.append(
        write_run(
            tmp_path / "short", algorithm='name = "fedhapg-m"', done=4, status="running"
        )
    )  # fmt: skip
    assert unequal_samples(groups(folders), "eval/return") == []


def test_another_model_is_more_than_another_method(tmp_path: Path):
    """It stands in the method's table, and is no part of one where all that are compared have it;
    where one has none, it belongs to those that do."""
    folders = write_runs(tmp_path, {"pavg": [50], "fedhapg-m": [90]})
    settings(folders[0], "algorithm", model="small")
    assert more_than_the_method(groups(folders)) == []
    settings(folders[1], "algorithm", model="large")
    (line,) = more_than_the_method(groups(folders))
    assert "algorithm.model" in line


@pytest.mark.slow
def test_a_page_warns_where_more_differs_than_the_method(tmp_path: Path):
    folders = write_runs(tmp_path, {"pavg": [50], "fedhapg-m": [90]})
    assert more_than_the_method(groups(folders)) == []
    config = folders[1] / "config.toml"
    config.write_text(config.read_text().replace("clients = 4", "clients = 5"))
    page = Page(report.build(folders, tmp_path / "page.html").read_text())
    assert "differ in more than the method: federation.clients." in page.text
    config.write_text(config.read_text().replace("fedhapg-m", "pavg"))
    assert more_than_the_method(groups(folders)) == []  # that is what is compared


def test_who_learns_alone_has_no_cohort_and_nobody_is_warned_of_it(tmp_path: Path):
    folders = write_runs(tmp_path, {"pavg": [50, 60], "fedhapg-m": [90]})
    texts = [(folder / "config.toml").read_text() for folder in folders]
    cohort = [text.replace("clients = 4", "clients = 4\ncohort = 2") for text in texts]
    alone = texts[2].replace("clients = 4", 'clients = 4\nkind = "centralized"')
    for folder, text in zip(folders, (cohort[0], cohort[1], alone), strict=True):
        (folder / "config.toml").write_text(text)
    assert more_than_the_method(groups(folders)) == []
    (folders[2] / "config.toml").write_text(texts[2])  # it is a federated one without a cohort
    assert "federation.cohort" in more_than_the_method(groups(folders))[0]


def test_settings_that_were_chosen_for_another_method_are_a_warning(tmp_path: Path):
    folders = write_runs(tmp_path, {"fedsvrpg-m": [90.0, 91], "fedhapg-m": [80.0, 84]})
    for folder in folders[2:]:
        config = folder / "config.toml"
        text = 'borrowed = ["fedsvrpg-m:lr", "fedsvrpg-m:beta"]\n' + config.read_text()
        config.write_text(text)
    there = groups(folders)
    (line,) = tuned_for_another(there)
    assert "ran with beta, lr that the recipe had chosen for fedsvrpg-m" in line
    assert line.startswith("fedhapg-m")
    assert more_than_the_method(there) == []  # no setting of its own
    assert tuned_for_another(there[1:]) == []  # compared with nothing
    assert len(groups([*folders, *write_runs(tmp_path / "own", {"fedhapg-m": [82.0]}, 2)])) == 2


def test_a_run_that_was_resumed_for_more_rounds_says_so(tmp_path: Path):
    folders = write_runs(tmp_path, {"pavg": [50, 60]})
    meta = folders[0] / "meta.json"
    meta.write_text(json.dumps(json.loads(meta.read_text()) | {"begun_for_rounds": 4}))
    (line,) = confounders(groups(folders), "eval/return")
    assert line.startswith("pavg-0 was begun for 4 rounds and resumed for more, up to 10:")


def test_groups_with_the_same_foreign_settings_are_one_line(tmp_path: Path):
    folders = write_runs(tmp_path, {"fedsvrpg-m": [90.0], "fedhapg-m": [80.0], "pavg": [70.0]})
    for folder in folders[1:]:
        config = folder / "config.toml"
        config.write_text('borrowed = ["fedsvrpg-m:lr"]\n' + config.read_text())
    (line,) = tuned_for_another(groups(folders))
    assert line.startswith("fedhapg-m, pavg ran with lr that the recipe had chosen for fedsvrpg-m")


def test_what_follows_from_warnings_is_said_once(tmp_path: Path):
    folders = write_runs(tmp_path, {"pavg": [50], "fedhapg-m": [90]})
    settings(folders[1], "algorithm", trajectories=5, lr=0.1)
    count(folders[1], 5)
    config = folders[1] / "config.toml"
    text = config.read_text().replace("clients = 4", "clients = 5")
    config.write_text('borrowed = ["pavg:lr"]\n' + text)
    lines = confounders(groups(folders), "eval/return")
    assert len(lines) == 3
    assert " ".join(lines).count("What differs in the results may come from these.") == 1
    assert lines[-1].endswith(" may come from these.")


def test_a_count_that_a_method_lacks_is_no_other_play(tmp_path: Path):
    """A method of one's own has no `initial_trajectories`; a longer episode is its result."""
    folders = write_runs(tmp_path, {"pavg": [50], "fedhapg-m": [90]})
    settings(folders[1], "algorithm", initial_trajectories=0)
    count(folders[1], 1.8)
    assert unequal_samples(groups(folders), "eval/return") == []
    config = folders[1] / "config.toml"
    config.write_text(config.read_text().replace("trajectories = 0", "trajectories = 50"))
    assert len(unequal_samples(groups(folders), "eval/return")) == 1


def test_a_switch_that_all_have_alike_is_not_tuned(tmp_path: Path):
    folders = write_runs(tmp_path, {"fedsvrpg-m": [90.0], "pavg": [70.0]})
    for folder in folders:
        settings(folder, "algorithm", standardize=True)
    config = folders[1] / "config.toml"
    config.write_text('borrowed = ["fedsvrpg-m:standardize"]\n' + config.read_text())
    assert tuned_for_another(groups(folders)) == []
    config = folders[0] / "config.toml"
    config.write_text(config.read_text().replace("standardize = true", "standardize = false"))
    assert len(tuned_for_another(groups(folders))) == 1


def test_the_sweep_that_ships_does_not_warn_of_itself(tmp_path: Path):
    folders = []
    for cell in sweep.read("momentum/lengths").cells([]):
        for seed in (0, 1):
            folder = write_run(tmp_path / f"{cell.name}-{seed}", seed=seed)
            (folder / "config.toml").write_text(to_toml(cell.config(seed, tmp_path)))
            count(folder, 1.0 if "pavg" in cell.name else 0.8)  # poles stand for longer
            folders.append(folder)
    there = groups(folders)
    assert len(there) == 4
    assert confounders(there, "eval/return") == []
