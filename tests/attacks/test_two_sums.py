"""A driver that opens a sum twice, once without a client, to have that client's update.

The driver chooses the run's name, the recipe, the round, the seed and the broadcast. Whichever of
them it changes, a little or not at all, it must not get the second sum.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra flower")
pytest.importorskip("dp_accounting", reason="needs the extra privacy")

from flower_nodes import in_small_pieces
from secure_nodes import CLIENTS, SecretNet, close, jobs, mean_of, no_answer, vectors
from toy import Toy

from fedrl import tree
from fedrl.engines.flower.connection import Connection
from fedrl.engines.flower.engine import Flower, Recipe
from fedrl.types import Failure, Job, Result

TRICKS = {
    "the same again": {},
    "a unit in the last place of the broadcast": {"ulps": 1},
    "another seed": {"seed": 50},
    "another run": {"run": "another"},
    "another recipe": {"text": "# a comment"},
    "the next round": {"round": 2},
    "a round of long ago": {"round": 0},
    "a model that is far away": {"ulps": 2**40},
    "everything": {"ulps": 3, "seed": 90, "run": "x", "text": "y", "round": 7},
}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedrl.engines.flower.engine.POLL_SECONDS", 0.005)


def ask(
    net: SecretNet,
    ulps: int = 0,
    seed: int = 7,
    run: str = "run",
    text: str = "",
    round: int = 1,
) -> list[Result | Failure]:
    engine = Flower(
        net.honest, Recipe(run, text, keep=3), Connection("x:1"), in_small_pieces(), lambda _: None,
        net.open, net.terms,
    )  # fmt: skip

    def moved(leaf: np.ndarray) -> np.ndarray:
        bits = np.ascontiguousarray(leaf, np.float64).view(np.int64) + ulps
        return bits.view(np.float64).astype(leaf.dtype)

    def changed(job: Job) -> Job:
        theta = tree.map(moved, job.broadcast["theta"])
        return replace(job, broadcast=job.broadcast | {"theta": theta, "round": round})

    return list(engine.run([changed(job) for job in jobs(net, seed)], 0.3))


@pytest.mark.parametrize("step", ["job", "mask"])
@pytest.mark.parametrize("trick", TRICKS)
def test_a_second_sum_lacks_nobody(trick: str, step: str, tmp_path: Path):
    """5·mean₁ − 4·mean₂ would be client 1's update, to a few units in the last place."""
    first = SecretNet(Toy(CLIENTS), tmp_path)
    close(mean_of(ask(first)), vectors(first).mean(0))
    net = SecretNet(Toy(CLIENTS), tmp_path)  # restarted
    net.changes[step, 1] = no_answer
    found = ask(net, **TRICKS[trick])  # type: ignore[arg-type]
    assert all(isinstance(outcome, Failure) for outcome in found)
    assert not any(seen.tensors for seen in net.answers_seen if seen.step == "unmask")


@pytest.mark.parametrize("trick", TRICKS)
def test_and_has_nobody_more(trick: str, tmp_path: Path):
    first = SecretNet(Toy(CLIENTS), tmp_path)
    first.changes["job", 1] = no_answer
    assert [type(o) for o in ask(first)].count(Result) == CLIENTS - 1
    found = ask(SecretNet(Toy(CLIENTS), tmp_path), **TRICKS[trick])  # type: ignore[arg-type]
    assert all(isinstance(outcome, Failure) for outcome in found)


@pytest.mark.parametrize("trick", TRICKS)
def test_honest_drivers_do_all_of_that_with_the_same_clients(trick: str, tmp_path: Path):
    """A resumed run, a round tried again, a second run with another seed or recipe."""
    ask(SecretNet(Toy(CLIENTS), tmp_path))
    found = ask(SecretNet(Toy(CLIENTS), tmp_path), **TRICKS[trick])  # type: ignore[arg-type]
    assert all(isinstance(outcome, Result) for outcome in found)


@pytest.mark.parametrize("seeded", [False, True])
@pytest.mark.parametrize("noise", [1e-9, 4.0])
def test_noise_that_only_the_recipe_asks_for_changes_nothing(
    noise: float, seeded: bool, tmp_path: Path
):
    """It may be next to none, come from a seed, or be averaged out: the node does not count it."""
    ask(SecretNet(Toy(CLIENTS), tmp_path, noise=noise, seeded=seeded))
    net = SecretNet(Toy(CLIENTS), tmp_path, noise=noise, seeded=seeded)
    net.changes["job", 1] = no_answer
    assert all(isinstance(outcome, Failure) for outcome in ask(net, seed=50))


@pytest.mark.machines
@pytest.mark.xdist_group("flower machines")
def test_on_real_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A second run with a client less opens nothing; with all of them it goes on."""
    from flower_runs import MOMENTUM, on_flower

    from fedrl.engines.flower.connection import FOLDER
    from fedrl.engines.flower.up import Federation
    from fedrl.federation import QuorumLost

    monkeypatch.setenv(FOLDER, str(tmp_path / "connections"))
    words = ("--privacy.clip", "0.5", "--privacy.secure", "true", "--federation.retries", "0")
    with Federation(tmp_path / "federation", 4, name="test"):
        for seed, clients in ((0, 4), (1, 3), (2, 4)):
            flags = (*words, "--federation.clients", str(clients), "--seed", str(seed))
            if clients == 4:
                on_flower(MOMENTUM, tmp_path / "runs", *flags, rounds=1)
                continue
            with pytest.raises(QuorumLost, match="its sums are of clients 0, 1, 2, 3 and no other"):
                on_flower(MOMENTUM, tmp_path / "runs", *flags, rounds=1)
