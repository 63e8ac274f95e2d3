"""`fedrl gap`: the terms of a run are those of its encoders, anchors and clients."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("numba", reason="FedQHD needs the extra classic")

from fedrl.algorithms.qhd import encoders as rff
from fedrl.algorithms.qhd.federation_gap import federation_gap
from fedrl.analysis import federation_gap as gaps
from fedrl.cli import call
from fedrl.config.build import build_algorithm
from fedrl.config.loading import resolve
from fedrl.core import seeding
from fedrl.core.types import UserError
from fedrl.envs.discrete.worlds import random_states
from fedrl.runs import train as runs

SMALL = {"features": 24, "sizes": [4, 8, 120], "episodes": 2, "anchors": 40, "eval_episodes": 1}


def train(
    out: Path,
    kind: str = "federated",
    rounds: int = 2,
    world: str = "cartpole-v1",
    rule: str = "mean",
    **more,
):
    algorithm = {"name": "fedqhd", "encoders": "own"} | SMALL | more
    if algorithm["name"] == "feddqn":
        algorithm = {"name": "feddqn", "episodes": 2, "hidden": [4, 4]}
    data = {"rounds": rounds, "federation": {"clients": 3, "kind": kind}, "algorithm": algorithm,
            "world": {"name": world}, "aggregate": {"name": rule}, "out": str(out)}  # fmt: skip
    config = resolve(data)
    directory = runs.start(config)
    runs.train(config, directory, build_algorithm(config))
    return directory.path


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return train(tmp_path_factory.mktemp("own"))


@pytest.fixture(scope="module")
def oracle(tmp_path_factory) -> Path:
    return train(tmp_path_factory.mktemp("oracle"), "centralized", encoders="shared")


def parts(path: Path):
    found = gaps.open_run(path, ["fedqhd"])
    state = found.last.states[0]
    encoders = [found.method.client(c, state).encoder for c in sorted(found.last.clients)]
    return found, state, encoders


def test_the_terms_are_those_of_what_the_checkpoint_holds(run):
    told = gaps.measure(run, 60, seed=3)
    found, state, encoders = parts(run)
    scale = found.method.world.scaling
    held_out = random_states(found.method.world, 60, seeding.derive(3, "gap"))
    states = scale(np.concatenate([state["anchors"], held_out]))
    readouts = [rff.unpack(e, found.last.clients[c]["online"]) for c, e in enumerate(encoders)]
    each = [rff.values(e, w, states) for e, w in zip(encoders, readouts)]
    expected = federation_gap(
        encoders, states[:40], states[40:], np.mean(each, 0), 1e-3, readouts=readouts
    )
    for one, two in zip(told.gaps, expected, strict=True):
        assert one.measured == pytest.approx(two.measured)
        assert one.repaired == pytest.approx(two.repaired)
    assert list(told.sizes) == [4, 8, 120]
    assert told.largest == pytest.approx(np.abs(np.mean(each, 0)).max())


def test_the_teacher_is_what_the_clients_hold_on_the_anchors(run):
    """Without a cohort, the server's teacher is the mean that the gap is measured with."""
    found, state, _ = parts(run)
    np.testing.assert_allclose(
        gaps.held_values(found, state["anchors"]), state["teacher"], atol=1e-5
    )


def test_the_measured_gap_never_exceeds_the_repaired_bound(run, oracle):
    for reference in (None, oracle):
        told = gaps.measure(run, 100, reference=reference)
        assert all(gap.measured <= gap.repaired * (1 + 1e-9) for gap in told.gaps)


def test_bandwidths_are_those_of_the_encoders(run):
    """ω ~ N(0, σ^{-2}): the widest client's own spread tells its σ."""
    told = gaps.measure(run, 5)
    _, _, encoders = parts(run)
    assert 1 / encoders[2].omega.std() == pytest.approx(told.bandwidths[2], rel=0.1)
    assert len(set(told.bandwidths)) == 3


def test_a_reference_run_gives_its_own_values(run, oracle):
    told = gaps.measure(run, 60, reference=oracle)
    found, _, (encoder,) = parts(oracle)
    mine, anchors, _ = parts(run)
    held_out = random_states(mine.method.world, 60, seeding.derive(0, "gap"))
    states = mine.method.world.scaling(np.concatenate([anchors["anchors"], held_out]))
    values = rff.values(encoder, rff.unpack(encoder, found.last.clients[0]["online"]), states)
    assert told.largest == pytest.approx(np.abs(values).max())
    assert told.reference == str(oracle)


def test_advice_names_the_clients_and_the_fix(run):
    lines = list(gaps.advice(gaps.measure(run, 60)))
    few = next(line for line in lines if "fewer than the weights" in line)
    assert "client 2 " in few
    assert "--algorithm.anchors 120" in few
    assert "sizes of at most 40" in few
    assert any("client 2" in line and "m + n = 100" in line for line in lines)
    enough = list(gaps.advice(gaps.measure(run, 200)))
    assert not any("m + n" in line for line in enough)


def test_the_advice_follows_the_largest_term(tmp_path):
    """Without a ridge to speak of, weak anchors amplify; with a huge one they cannot."""
    for ridge, words in (
        (1e-9, "II amplification for 3 of 3"),
        (1e6, "I heterogeneity for 2 of 3"),
    ):
        told = gaps.measure(train(tmp_path, ridge=ridge, sizes=[4, 8, 16]), 60)
        assert any(f"The largest term is {words}" in line for line in gaps.advice(told))


@pytest.mark.slow
def test_the_command_prints_a_table_json_and_a_figure(run, tmp_path, capsys):
    assert call(["gap", str(run), "--states", "60"]) == 0
    text = capsys.readouterr().out
    for word in ("II amplification", "repaired bound", "measured gap", "features D_i"):
        assert word in text
    picture = tmp_path / "gap.png"
    assert call(["gap", str(run), "--states", "60", "--json", "--plot", str(picture)]) == 0
    out, err = capsys.readouterr()
    data = json.loads(out)
    assert "figure" in err
    assert picture.stat().st_size > 10_000
    told = gaps.measure(run, 60)
    for i, client in enumerate(data["clients"]):
        assert client["client"] == i
        assert client["repaired"] == pytest.approx(
            sum(client[term] for term in gaps.TERMS), rel=1e-9
        )
        assert client["measured"] == pytest.approx(told.gaps[i].measured)
        assert client["angle"] == pytest.approx(
            max(data["angles"][i][j] for j in range(3) if j != i)
        )


def test_states_are_drawn_by_the_seed(run):
    one, two, three = (gaps.measure(run, 60, seed=s).gaps[0].measured for s in (0, 0, 1))
    assert one == two != three


def test_held_out_states_may_come_from_the_box(run):
    """CartPole's random play stays near the middle; gaps elsewhere are larger."""
    play, box = (gaps.measure(run, 200, source=s) for s in ("rollouts", "box"))
    assert max(g.measured for g in box.gaps) > 1.5 * max(g.measured for g in play.gaps)


def test_one_encoder_for_all_is_one_line(tmp_path, capsys):
    path = train(tmp_path, encoders="shared")
    assert call(["gap", str(path)]) == 0
    assert capsys.readouterr().out == gaps.SHARED + "\n"
    assert call(["gap", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"note": gaps.SHARED}


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"name": "truncate-qhd", "agree": "truncate"}, "federated", "run of truncate-qhd"),
        ({"agree": "truncate"}, "federated", "cut to the smallest"),
        ({"name": "feddqn"}, "federated", "run of feddqn"),
        ({}, "centralized", "agrees with nobody"),
    ],
)
def test_other_runs_are_refused_in_one_line(tmp_path, capsys, change, kind, words):
    path = train(tmp_path, kind, **change)
    capsys.readouterr()
    assert call(["gap", str(path)]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_a_reference_must_play_the_same_world(run, tmp_path):
    other = train(tmp_path, rounds=1, world="mountaincar-v0", encoders="shared")
    with pytest.raises(UserError, match="plays mountaincar-v0, the run cartpole-v1"):
        gaps.measure(run, 10, reference=other)


def test_what_the_run_does_otherwise_is_said(tmp_path):
    path = train(tmp_path, agree="corrections", anchors=10)
    said = " ".join((*gaps.measure(path, 30).notes, *gaps.advice(gaps.measure(path, 30))))
    assert "keep what no anchor sees" in said
    assert "they lose what no anchor sees" not in said
    path = train(tmp_path / "median", rule="median", agree="corrections", anchors=10)
    (note, _) = gaps.measure(path, 30).notes
    assert "aggregate.name = median" in note


def test_clients_that_learn_alone_are_measured_and_said_so(tmp_path):
    told = gaps.measure(train(tmp_path, "independent"), 60)
    assert any("learn alone" in note for note in told.notes)
    assert all(gap.measured <= gap.repaired * (1 + 1e-9) for gap in told.gaps)


@pytest.mark.parametrize(("states", "seed"), [(0, 0), (5, -1)])
def test_impossible_numbers_are_refused(run, states, seed):
    with pytest.raises(UserError, match=r"--states is 0|--seed is -1"):
        gaps.measure(run, states, seed)
