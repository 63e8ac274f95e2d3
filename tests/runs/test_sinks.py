"""Live tracking: what is logged can be read back, and a resumed run is one curve."""

from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from fedrl.core.types import UserError
from fedrl.runs.tracking import open_sinks


class FakeRun:
    def __init__(self) -> None:
        self.logged: list[tuple[int, dict[str, float]]] = []
        self.finished = False

    def log(self, metrics: dict[str, float], step: int) -> None:
        self.logged.append((step, metrics))

    def finish(self) -> None:
        self.finished = True


@pytest.fixture
def fake_tracker(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Any:
    """A stand-in for the package that the test names: keeps init's arguments and the run."""
    module: Any = types.ModuleType(request.param)
    module.run = FakeRun()
    module.settings = {}

    def init(**settings: Any) -> FakeRun:
        module.settings.update(settings)
        return module.run

    module.init = init
    monkeypatch.setitem(sys.modules, request.param, module)
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    return module


def scalars(run_dir: Path, tag: str) -> dict[int, float]:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(run_dir / "tensorboard")).Reload()
    points = events.Scalars(tag)
    assert len({point.step for point in points}) == len(points)
    return {point.step: point.value for point in points}


def test_tensorboard_reads_back_what_was_logged(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    [sink] = open_sinks(["tensorboard"], tmp_path, {})
    sink.log(0, {"eval/return": 1.5, "comm/bytes_up": 3e9})
    sink.log(1, {"comm/bytes_up": 6e9})
    sink.log(2, {"eval/return": 2.5})
    sink.close()
    assert scalars(tmp_path, "eval/return") == {0: 1.5, 2: 2.5}
    assert scalars(tmp_path, "comm/bytes_up") == {0: 3e9, 1: 6e9}


def test_tensorboard_shows_a_resumed_run_as_one_curve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tensorboard")
    # Event files carry the second in their name, and are read in the order of their names.
    clock = iter(range(1_700_000_000, 1_800_000_000, 10))
    monkeypatch.setattr("time.time", lambda: float(next(clock)))
    for first, value in ((0, 1.0), (3, 2.0)):  # killed after round 4, resumed from round 3
        [sink] = open_sinks(["tensorboard"], tmp_path, {})
        for round in range(first, 5 if first == 0 else 6):
            sink.log(round, {"eval/return": value})
        sink.close()
    assert scalars(tmp_path, "eval/return") == {0: 1, 1: 1, 2: 1, 3: 2, 4: 2, 5: 2}


def test_tensorboard_does_not_load_torch(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    program = (
        "import sys; from pathlib import Path; from fedrl.runs.tracking import open_sinks\n"
        "assert not {'tensorboard', 'wandb', 'trackio'} & set(sys.modules)\n"
        "open_sinks(['tensorboard'], Path(sys.argv[1]), {})[0].close()\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True, timeout=60)


@pytest.mark.parametrize("fake_tracker", ["wandb"], indirect=True)
def test_wandb_continues_the_run_of_this_folder(tmp_path: Path, fake_tracker: Any) -> None:
    run_dir = tmp_path / "fedavg-s3 #1"
    config = {"name": "cartpole", "seed": 3}
    [sink] = open_sinks(["wandb"], run_dir, config)
    sink.log(7, {"eval/return": 4.0})
    assert not fake_tracker.run.finished
    sink.close()
    settings = fake_tracker.settings
    assert settings["resume"] == "allow"
    assert settings["id"] == "fedavg-s3--1"  # wandb refuses "#" and "/" in an id
    assert (settings["project"], settings["group"]) == ("fedrl", "cartpole")
    assert settings["config"] == config
    assert fake_tracker.run.logged == [(7, {"eval/return": 4.0})]
    assert fake_tracker.run.finished


@pytest.mark.parametrize("fake_tracker", ["wandb"], indirect=True)
def test_wandb_keeps_the_users_project(
    tmp_path: Path, fake_tracker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    open_sinks(["wandb"], tmp_path, {})
    assert fake_tracker.settings["project"] == "mine"


@pytest.mark.parametrize("fake_tracker", ["trackio"], indirect=True)
def test_trackio_continues_the_run_of_this_folder(tmp_path: Path, fake_tracker: Any) -> None:
    [sink] = open_sinks(["trackio"], tmp_path / "fedavg-s3-ab12", {"name": "cartpole"})
    sink.log(0, {"eval/return": 4.0})
    sink.close()
    assert fake_tracker.settings["name"] == "fedavg-s3-ab12"
    assert fake_tracker.settings["resume"] == "allow"
    assert fake_tracker.run.logged == [(0, {"eval/return": 4.0})]
    assert fake_tracker.run.finished


@pytest.mark.parametrize(
    ("name", "install"),
    [("wandb", "wandb"), ("trackio", "trackio"), ("tensorboard", '"fedrl[track]"')],
)
def test_missing_package_says_what_to_install(
    tmp_path: Path, name: str, install: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in [m for m in sys.modules if m.partition(".")[0] == name]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UserError) as caught:
        open_sinks([name], tmp_path, {})
    expected = f'tracking "{name}" needs the package {name}: pip install {install}'
    assert str(caught.value) == expected


@pytest.mark.parametrize("fake_tracker", ["wandb"], indirect=True)
def test_a_missing_package_is_noticed_before_a_run_begins(
    tmp_path: Path, fake_tracker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "trackio", None)
    with pytest.raises(UserError, match="trackio"):
        open_sinks(["wandb", "trackio"], tmp_path, {})
    assert fake_tracker.settings == {}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tensorbord", 'tracking "tensorbord" is unknown: did you mean "tensorboard"?'),
        ("mlflow", 'tracking "mlflow" is unknown: there are: tensorboard, wandb, trackio'),
    ],
)
def test_unknown_name(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        open_sinks([name], tmp_path, {})
    assert str(caught.value) == message
    assert not list(tmp_path.iterdir())
