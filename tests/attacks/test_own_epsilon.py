"""A driver that asks a node with an ε of its own until the noise averages out."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra flower")
pytest.importorskip("dp_accounting", reason="needs the extra privacy")

from support.flower_nodes import Inline
from support.toy import Toy

from fedrl.clients.local_noise import Private
from fedrl.config.loading import resolve, to_toml
from fedrl.core import serialization
from fedrl.core.types import Job, Result, Spec, Tensors
from fedrl.engines.flower import messages, node_recipes
from fedrl.engines.flower.adapter import records
from fedrl.privacy import Settings, accounting

OWN = ("--privacy.epsilon", "8", "--privacy.delta", "1e-5")
TOY = Toy(4)
SENT = TOY.broadcast(TOY.init(0), 1)


def recipe(**fields: object) -> str:
    chosen = {"clip": 1.0, "noise": 4.0, "where": "local"} | fields
    return to_toml(
        resolve(
            {
                "federation": {"clients": 4},
                "algorithm": {"name": "fedsvrpg-m", "local_steps": 2},
                "world": {"name": "random_mdp"},
                "privacy": chosen,
            }
        )
    )


def node(folder: Path, own: tuple[str, ...] = OWN, work: Toy = TOY) -> Inline:
    """As after a start; its work is the toy's, its plan what its flags make of a recipe."""

    def plan(text: str) -> node_recipes.Plan:
        config = node_recipes.configuration(text, own)
        return replace(
            node_recipes.plan(text, folder, "", own), build=lambda: Private(work, config.privacy)
        )

    return Inline(1, folder, plan, log=lambda line: None)


def ask(
    there: Inline, text: str, seed: int = 7, sent: Tensors = SENT, run: str = "run"
) -> np.ndarray | str:
    """Its update, or why there is none."""
    pieces = serialization.cut(serialization.pack(sent), 10**6)
    job = messages.Job(
        messages.nonce(), 1, seed, run, "", 3, 0.0, text, serialization.checksum(pieces)
    )  # fmt: skip
    answer = there.answer(records.content(messages.to_json(job), records.body(pieces)))
    heading, body = records.opened(answer)
    told: messages.Answer = messages.from_json(heading, messages.Answer)
    return told.reason or serialization.unpack(b"".join(body))["a"]


def test_one_job_is_answered_once(tmp_path: Path):
    """2,000 answers would have a 45th of the noise."""
    found = [ask(node(tmp_path), recipe(), run=f"run-{n}") for n in range(20)]
    assert isinstance(found[0], np.ndarray)
    assert {str(f) for f in found[1:]} == {
        "it has answered this job before, and gives no new noise on it"
    }


@pytest.mark.slow
@pytest.mark.parametrize("vary", ["seed", "broadcast", "recipe"])
def test_its_own_epsilon_is_the_end_whatever_else_is_asked(vary: str, tmp_path: Path):
    """Other jobs with alike updates, over restarts and runs."""
    allowed = max(n for n in range(100) if accounting.full_view(4.0, n, 1e-5) <= 8)
    found = []
    for number in range(allowed + 10):
        theta = SENT["theta"] | {"a": np.nextafter(SENT["theta"]["a"], number)}
        sent = SENT | {"theta": theta, "round": number} if vary == "broadcast" else SENT
        seed = 7 if vary == "broadcast" else number
        text = recipe(delta=0.5, epsilon=1e6) if vary == "recipe" else recipe()
        found.append(ask(node(tmp_path), text, seed, sent, f"run-{number}"))
    assert [isinstance(f, np.ndarray) for f in found] == [True] * allowed + [False] * 10
    assert all("above its privacy.epsilon = 8" in str(f) for f in found[allowed:])


def test_less_noise_costs_more_and_none_is_refused(tmp_path: Path):
    there = node(tmp_path)
    for noise in (1e-9, 1e-3, 0.5):
        assert "its own ε would be" in str(ask(there, recipe(noise=noise)))
    assert isinstance(ask(there, recipe(noise=0.0, clip=0.0)), str)
    assert "do not allow privacy.seeded" in str(ask(there, recipe(seeded=True)))
    assert isinstance(ask(there, recipe(noise=40.0)), np.ndarray)
    lines = (tmp_path / "ledger.jsonl").read_text().splitlines()
    assert [json.loads(line)["noise"] for line in lines] == [40.0]


def test_what_it_has_answered_is_not_forgotten(tmp_path: Path):
    assert isinstance(ask(node(tmp_path), recipe()), np.ndarray)
    (tmp_path / "ledger.jsonl").unlink()
    assert "damaged or incomplete" in str(ask(node(tmp_path), recipe(), seed=8))


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf, 1.7e308])
def test_a_model_with_an_odd_number_does_not_lift_the_bound(odd: float, tmp_path: Path):
    """What cannot be bounded does not leave: z·C = 4·10⁻⁶ of noise would hide nothing of it."""
    sent = SENT | {"theta": SENT["theta"] | {"a": np.array([odd, 1.0, -1.0])}}
    with np.errstate(all="ignore"):
        found = ask(node(tmp_path), recipe(clip=1e-6), sent=sent)
    assert isinstance(found, np.ndarray)
    assert np.isfinite(found).all()
    assert np.abs(found).max() < 1e-4


class Picky(Toy):
    """Fails on what this client holds, and not on what another would."""

    def local(self, job: Job) -> Result:
        if job.broadcast["round"] == job.client:
            raise KeyError("a movie that this client has rated")
        return super().local(job)


def test_a_failure_is_an_answer_too(tmp_path: Path):
    """Else one could ask for nothing, about one thing after the other, what a client holds."""
    there = node(tmp_path, work=Picky(4))
    told = ask(there, recipe(), sent=SENT | {"round": 1})
    assert "KeyError" not in str(told)
    assert len((tmp_path / "ledger.jsonl").read_text().splitlines()) == 1
    again = ask(node(tmp_path, work=Picky(4)), recipe(), sent=SENT | {"round": 1})
    assert "answered this job before" in str(again)


class Values(Toy):
    """Sends new values of a model: this client's are above or below those of the server."""

    sends_parameters = True

    def __init__(self, side: float) -> None:
        super().__init__(4, 1000)
        self.side = side

    def declare(self, broadcast: Tensors) -> dict[str, Spec]:
        return {"w": Spec((self.size,), "float32")}

    def local(self, job: Job) -> Result:
        return Result(job.client, {"w": (job.broadcast["w"] + self.side).astype(np.float32)})


def test_a_model_between_two_floats_does_not_tell_the_sign_of_a_change():
    """Halfway between two of single precision, the smallest change moves a number by 6·10⁻⁸: with
    C = 10⁻⁹ that is sixty times the bound."""
    between = {"w": np.full(1000, 1 + 2.0**-24)}
    settings = Settings(clip=1e-9, noise=10.0, where="local", seeded=True)
    up, down = (
        Private(Values(side), settings).local(Job(1, between, None, 5)).update["w"]
        for side in (1.0, -1.0)
    )
    assert (up != down).mean() < 0.1  # the same noise: it decides


def test_another_user_cannot_hold_what_a_node_remembers(tmp_path: Path):
    """Whoever may read a file may lock it, and the node would wait for ever."""
    tmp_path.chmod(0o755)
    ask(node(tmp_path), recipe())
    open_to_others = [path.name for path in tmp_path.iterdir() if path.stat().st_mode & 0o077]
    assert open_to_others == []
