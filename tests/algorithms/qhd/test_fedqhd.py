"""FedQHD over the federated core: what is averaged, what is compiled, what leaves a client."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("numba", reason="FedQHD needs the extra classic")

from fedrl.aggregation import mean as aggregate
from fedrl.algorithms.qhd import encoders as rff
from fedrl.algorithms.qhd.dqn import feddqn
from fedrl.algorithms.qhd.fedqhd import FedQHD, Settings
from fedrl.cli import call
from fedrl.config.build import build_algorithm
from fedrl.config.loading import as_dict, find_recipe, read_recipe, recipes_folder, resolve
from fedrl.core import seeding
from fedrl.core.types import Job, UserError
from fedrl.envs.discrete.worlds import Settings as WorldSettings
from fedrl.envs.discrete.worlds import World
from fedrl.runs import train as runs

SMALL = {"features": 64, "sizes": (16, 32, 64), "episodes": 2, "anchors": 80, "eval_episodes": 2}
KINDS = {
    "shared": {},
    "own": {"encoders": "own"},
    "corrections": {"encoders": "own", "agree": "corrections"},
    "complex": {"encoders": "own", "complex": True},
    "truncate": {"encoders": "own", "agree": "truncate"},
    "complex truncate": {"encoders": "own", "agree": "truncate", "complex": True},
}


AGREE = ("values", "corrections")


def method(clients: int = 3, name: str = "cartpole-v1", **settings) -> FedQHD:
    world = World(WorldSettings(name), clients, 0)  # type: ignore[arg-type]
    return FedQHD(Settings(**(SMALL | settings)), world, [[c] for c in range(clients)])


def rounds(algorithm: FedQHD, count: int, clients: int = 3) -> tuple[dict, dict]:
    """`count` rounds of plain averaging: the server's state, and the clients' own."""
    state, kept = algorithm.init(5), dict.fromkeys(range(clients))
    for r in range(1, count + 1):
        sent = algorithm.broadcast(state, r)
        results = [algorithm.local(Job(c, sent, kept[c], 100 * r + c)) for c in kept]
        for result in results:
            kept[result.client] = result.state
            specs = algorithm.declare(sent)
            assert set(result.update) == set(specs)
            for name, array in result.update.items():
                assert array.shape == specs[name].shape
                assert str(array.dtype) == specs[name].dtype
        mean = {n: np.mean([x.update[n] for x in results], 0) for n in results[0].update}
        state = algorithm.step(state, mean, r)
    return state, kept


@pytest.mark.parametrize("kind", KINDS)
def test_every_way_to_agree_trains(kind):
    algorithm = method(**KINDS[kind])
    state, kept = rounds(algorithm, 3)
    name = "readout" if kind == "shared" or "truncate" in kind else "teacher"
    assert np.abs(state[name]).max() > 0
    assert all(client["counters"][4] > 0 for client in kept.values())  # steps
    assert np.isfinite(algorithm.evaluate([state], [[0, 1, 2]], 3, 0)["eval/return"])


def test_shared_encoders_average_value_functions():
    """Averaging W is averaging Q, at every state."""
    algorithm = method()
    state, kept = rounds(algorithm, 2)
    encoder = algorithm.client(0, state).encoder
    states = np.random.default_rng(0).normal(size=(50, 4))
    each = [rff.values(encoder, rff.unpack(encoder, c["online"]), states) for c in kept.values()]
    together = rff.values(encoder, rff.unpack(encoder, state["readout"]), states)
    np.testing.assert_allclose(together, np.mean(each, 0), atol=1e-6)


def test_weights_are_those_of_the_value_functions():
    """Algorithm 1 with π_i by the steps that clients play, through the core's own aggregator."""
    algorithm = method(episodes=4)
    sent = algorithm.broadcast(algorithm.init(5), 1)
    results = [algorithm.local(Job(c, sent, None, 100 + c)) for c in range(3)]
    weights = np.array([result.weight for result in results])
    assert weights.tolist() == [result.metrics["env/steps"] for result in results]
    assert len(set(weights)) == 3
    mean = aggregate.weighted((result.update, result.weight) for result in results)
    state = algorithm.step(sent, mean, 1)
    encoder = algorithm.client(0, state).encoder
    states = np.random.default_rng(0).normal(size=(50, 4))
    each = [rff.values(encoder, rff.unpack(encoder, r.state["online"]), states) for r in results]
    together = rff.values(encoder, rff.unpack(encoder, state["readout"]), states)
    expected = np.tensordot(weights / weights.sum(), each, 1)
    np.testing.assert_allclose(together, expected, atol=1e-6)
    assert np.abs(together - np.mean(each, 0)).max() > 1e-4


@pytest.mark.parametrize("complex", [False, True])
def test_a_client_takes_on_the_teacher_as_far_as_it_can(complex):
    """m ≥ D and a small ridge: what the client can represent comes back on every state."""
    algorithm = method(
        clients=1, encoders="own", complex=complex, sizes=(16,), anchors=400, ridge=1e-12,
        anchor_source="box",
    )  # fmt: skip
    state = algorithm.init(5)
    encoder = algorithm.client(0, state).encoder
    wanted = np.random.default_rng(1).normal(size=(16, 2)) * (1 + 1j if complex else 1)
    scaled = algorithm.world.scaling(state["anchors"])
    state["teacher"] = rff.values(encoder, wanted, scaled)
    rows = algorithm.readout(0, state)
    states = np.random.default_rng(2).uniform(scaled.min(0), scaled.max(0), (50, 4))
    found = rff.values(encoder, rff.unpack(encoder, rows), states)
    np.testing.assert_allclose(found, rff.values(encoder, wanted, states), atol=1e-4)


def received(algorithm: FedQHD, teacher: np.ndarray, sent: dict, state: dict) -> np.ndarray:
    """A client's readout [D, |A|] after it has taken the teacher over."""
    job = Job(0, sent | {"teacher": teacher}, state, 3)
    client = algorithm.client(0, sent)
    learner, kept = algorithm._restore(job, client)
    algorithm._receive(job, client, learner, kept)
    return rff.unpack(client.encoder, learner.online)


@pytest.mark.parametrize("complex", [False, True])
def test_corrections_keep_what_no_anchor_sees(complex):
    """W changes within the span of the anchors' features only, and there it meets the teacher."""
    few = {"sizes": (64,), "anchors": 10, "ridge": 1e-7, "complex": complex}
    algorithm = method(clients=1, encoders="own", agree="corrections", **few)
    sent, kept = rounds(algorithm, 2, clients=1)
    client = algorithm.client(0, sent)
    before = rff.unpack(client.encoder, kept[0]["online"])
    teacher = np.random.default_rng(1).normal(size=sent["teacher"].shape).astype(np.float32)
    after = received(algorithm, teacher, sent, kept[0])
    states = algorithm.world.scaling(sent["anchors"])
    seen = rff.values(client.encoder, after, states)
    np.testing.assert_allclose(seen, teacher, atol=0.02)
    rows = rff.real_design(rff.design(client.encoder, states))
    change = after - before
    change = np.concatenate([change.real, change.imag]) if complex else change
    outside = change - np.linalg.pinv(rows) @ (rows @ change)
    assert np.abs(outside).max() < 1e-3 * np.abs(change).max()
    replaced = received(method(clients=1, encoders="own", **few), teacher, sent, kept[0])
    assert np.abs(replaced - after).max() > 0.1 * np.abs(before).max()


def test_with_anchors_enough_a_correction_is_a_replacement():
    enough = {"sizes": (16,), "anchors": 200, "ridge": 0.0}
    ways = [method(clients=1, encoders="own", agree=agree, **enough) for agree in AGREE]
    sent, kept = rounds(ways[0], 2, clients=1)
    teacher = sent["teacher"] + np.random.default_rng(1).normal(size=sent["teacher"].shape)
    one, other = (received(way, teacher.astype(np.float32), sent, kept[0]) for way in ways)
    states = np.random.default_rng(2).uniform(-1, 1, size=(50, 4))
    encoder = ways[0].client(0, sent).encoder
    values = [rff.values(encoder, readout, states) for readout in (one, other)]
    np.testing.assert_allclose(values[0], values[1], atol=2e-2 * np.abs(values[0]).max())


def test_alone_nothing_is_compiled():
    """A client that gets back what it sent keeps its W, parts outside the anchors' span too."""
    algorithm = method(clients=1, encoders="own", sizes=(64,), anchors=8)
    state, kept = rounds(algorithm, 1, clients=1)
    before = kept[0]["online"].copy()
    sent = algorithm.broadcast(state, 2)
    learner, old = algorithm._restore(Job(0, sent, kept[0], 1), algorithm.client(0, sent))
    algorithm._receive(Job(0, sent, kept[0], 1), algorithm.client(0, sent), learner, old)
    assert np.array_equal(learner.online, before)
    other = sent | {"teacher": sent["teacher"] + np.float32(0.5)}
    algorithm._receive(Job(0, other, kept[0], 1), algorithm.client(0, other), learner, old)
    assert not np.array_equal(learner.online, before)


def test_truncation_cuts_and_pads():
    algorithm = method(encoders="own", agree="truncate")
    state = algorithm.init(5)
    state["readout"] = np.arange(32, dtype=np.float32).reshape(2, 16)
    rows = algorithm.readout(2, state)
    assert rows.shape == (2, 64)
    assert np.array_equal(rows[:, :16], state["readout"])
    assert not rows[:, 16:].any()


def test_complex_truncation_cuts_cosines_and_sines_alike():
    algorithm = method(encoders="own", agree="truncate", complex=True)
    sent = algorithm.broadcast(algorithm.init(5), 1)
    result = algorithm.local(Job(2, sent, None, 3))
    cosines, sines = np.split(result.state["online"], 2, axis=1)
    assert cosines.shape == (2, 64)
    assert np.array_equal(result.update["readout"], np.hstack([cosines[:, :16], sines[:, :16]]))
    back = algorithm.readout(2, sent | result.update)
    assert np.array_equal(back[:, :16], cosines[:, :16])
    assert np.array_equal(back[:, 64:80], sines[:, :16])
    assert not back[:, 16:64].any()
    assert not back[:, 80:].any()


def test_truncation_is_to_the_smallest_client_there_is():
    algorithm = method(clients=2, encoders="own", agree="truncate", sizes=(64, 32, 16))
    assert algorithm.init(5)["readout"].shape == (2, 32)
    assert algorithm.local(Job(0, algorithm.init(5), None, 3)).update["readout"].shape == (2, 32)


def train(tmp_path: Path, **more) -> Path:
    data = {
        "rounds": 3,
        "federation": {"clients": 3},
        "algorithm": {"name": "fedqhd", **dict(SMALL.items()), "sizes": [16, 32, 64]},
        "world": {"name": "cartpole-v1"},
        "out": str(tmp_path),
    }
    data["algorithm"] |= more
    config = resolve(data)
    directory = runs.start(config)
    runs.train(config, directory, build_algorithm(config))
    return directory.path


def test_every_command_of_the_page_and_the_recipes_is_possible():
    root = recipes_folder().parent
    texts = [path.read_text("utf-8") for path in (root / "recipes" / "fedqhd").glob("*.toml")]
    texts.append((root / "docs" / "fedqhd.md").read_text("utf-8"))
    commands = [
        line.split("fedrl run ")[1].split(" # ")[0].split()
        for text in texts
        for line in text.replace("\\\n", " ").splitlines()
        if "fedrl run fedqhd/" in line
    ]
    assert len(commands) > 12
    for recipe, *flags in commands:
        resolve(read_recipe(find_recipe(recipe)), flags)


@pytest.mark.parametrize("kind", ["own", "corrections", "complex"])
def test_own_encoders_send_values_on_anchors_and_nothing_else(kind, tmp_path):
    """m × |A| numbers of four bytes go up per client and round, whatever D_i."""
    path = train(tmp_path, **KINDS[kind])
    last = json.loads((path / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["comm/bytes_up"] == 3 * 3 * 80 * 2 * 4


@pytest.mark.parametrize("kind", KINDS)
def test_own_encoders_tell_what_the_client_holds(kind):
    """train/greedy is the return of the learned readout, not of the one that comes back."""
    algorithm = method(clients=1, **(KINDS[kind] | {"episodes": 30, "eval_episodes": 20}))
    sent = algorithm.broadcast(algorithm.init(5), 1)
    result = algorithm.local(Job(0, sent, None, 3))
    assert set(result.metrics) <= algorithm.reports
    if kind == "shared":
        assert "train/greedy" not in result.metrics
        return
    client = algorithm.client(0, sent)
    seed = seeding.derive(3, "greedy")
    held = algorithm._greedy(algorithm.world, client, result.state["online"], seed)
    assert result.metrics["train/greedy"] == held
    nothing = algorithm._greedy(
        algorithm.world, client, np.zeros_like(result.state["online"]), seed
    )
    assert held != nothing


def test_watching_a_client_does_not_teach_it():
    """The greedy episodes leave no trace in what the client learns next."""
    few, many = (method(clients=1, encoders="own", eval_episodes=n) for n in (1, 30))
    ends = []
    for algorithm in (few, many):
        sent = algorithm.broadcast(algorithm.init(5), 1)
        ends.append(algorithm.local(Job(0, sent, None, 3)))
    assert ends[0].metrics["train/greedy"] != ends[1].metrics["train/greedy"]
    for name, leaf in ends[0].state.items():
        assert np.array_equal(leaf, ends[1].state[name]), name


def test_a_resumed_run_equals_an_undisturbed_one(tmp_path):
    whole = train(tmp_path / "a", encoders="own")
    config = resolve(read_recipe(whole / "config.toml"))
    half = runs.start(resolve(as_dict(config) | {"rounds": 1, "out": str(tmp_path)}))
    shorter = resolve(read_recipe(half.path / "config.toml"))
    runs.train(shorter, half, build_algorithm(shorter))
    longer, directory = runs.resume(half.path, ["--rounds", "3"])
    runs.train(longer, directory, build_algorithm(longer))
    logs = [(path / "metrics.jsonl").read_bytes() for path in (whole, half.path)]
    assert logs[0] == logs[1]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"replay": 8, "batch": 16}, "replay is 8, fewer than algorithm.batch = 16"),
        ({"epsilon": 0.0, "epsilon_floor": 0.5}, "below algorithm.epsilon_floor"),
        ({"name": "truncate-qhd", "encoders": "own"}, 'algorithm.name = "fedqhd"'),
    ],
)
def test_settings_that_would_not_do_what_they_say(settings, words):
    with pytest.raises(UserError, match=words):
        Settings(**settings)
    if "replay" in settings:
        with pytest.raises(UserError, match=words):
            feddqn.Settings(**settings)


def test_too_large_an_encoder_is_one_line(capsys, tmp_path):
    flags = ["--algorithm.features", str(10**14), "--rounds", "1", "--out", str(tmp_path)]
    assert call(["run", "fedqhd/cartpole", *flags]) == 2
    said = capsys.readouterr().err
    assert "more memory than there is" in said
    assert "Traceback" not in said
