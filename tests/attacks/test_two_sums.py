"""A driver that opens a sum twice, once without a client, to have that client's update.

The driver chooses the run's name, the recipe, the round, the seed and the broadcast. Whichever of
them it changes, a little or not at all, it must not get the second sum. Nor one of the same clients
that differs in what was asked of a single one: a round's attempt is opened once, with the seeds
that follow from it, and everybody starts from the same rounds' state.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra flower")
pytest.importorskip("dp_accounting", reason="needs the extra privacy")

from support.flower_nodes import in_small_pieces
from support.secure_nodes import CLIENTS, SecretNet, close, jobs, mean_of, no_answer, vectors
from support.toy import Toy

from fedrl.core import tree
from fedrl.core.types import Failure, Job, Result, Tensors
from fedrl.engines.flower import keys
from fedrl.engines.flower.connection import Connection
from fedrl.engines.flower.engine import FlowerEngine, Recipe
from fedrl.engines.flower.superlink_client import Arrived
from fedrl.privacy.secure_aggregation import identity

TRICKS = {
    "the same again": {},
    "a unit in the last place of the broadcast": {"ulps": 1},
    "another run": {"run": "another"},
    "a model that is far away": {"ulps": 2**40},
    "another recipe": {"text": "# a comment"},
    "the next attempt": {"attempt": 1},
    "the next round": {"round": 8},
    "a round of long ago": {"round": 0},
    "everything": {"ulps": 3, "run": "x", "text": "y", "round": 9, "attempt": 3},
}
SAME = list(TRICKS)[:4]
"""Those that are the same recipe, round and attempt."""


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedrl.engines.flower.node_calls.POLL_SECONDS", 0.005)


def ask(
    net: SecretNet,
    ulps: int = 0,
    run: str = "run",
    text: str = "",
    round: int = 7,
    attempt: int = 0,
    seeds: dict[int, int] | None = None,
) -> list[Result | Failure]:
    engine = FlowerEngine(
        net.honest, Recipe(run, text, keep=3), Connection("x:1"), in_small_pieces(), lambda _: None,
        net.open, net.terms,
    )  # fmt: skip

    def moved(leaf: np.ndarray) -> np.ndarray:
        bits = np.ascontiguousarray(leaf, np.float64).view(np.int64) + ulps
        return bits.view(np.float64).astype(leaf.dtype)

    sent = jobs(net)[0].broadcast
    sent = sent | {"theta": tree.map(moved, sent["theta"]), "round": round}
    some = [replace(job, broadcast=sent) for job in jobs(net, round, attempt)]
    for client, seed in (seeds or {}).items():
        some[client] = replace(some[client], seed=seed)
    return list(engine.run(some, 0.3))


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("trick", TRICKS)
def test_and_has_nobody_more(trick: str, tmp_path: Path):
    first = SecretNet(Toy(CLIENTS), tmp_path)
    first.changes["job", 1] = no_answer
    assert [type(o) for o in ask(first)].count(Result) == CLIENTS - 1
    found = ask(SecretNet(Toy(CLIENTS), tmp_path), **TRICKS[trick])  # type: ignore[arg-type]
    assert all(isinstance(outcome, Failure) for outcome in found)


@pytest.mark.parametrize("trick", SAME)
def test_a_round_is_opened_once_whatever_the_broadcast(trick: str, tmp_path: Path):
    ask(SecretNet(Toy(CLIENTS), tmp_path))
    net = SecretNet(Toy(CLIENTS), tmp_path)
    found = ask(net, **TRICKS[trick])  # type: ignore[arg-type]
    assert all(isinstance(o, Failure) and "has opened round 7" in o.reason for o in found)
    assert {seen.step for seen, _ in net.questions} == {"job"}


def test_two_sums_begun_before_one_is_opened_are_not_both_opened(tmp_path: Path):
    """The second of two processes of each node: both have trained when the first one opens."""
    net, late = (SecretNet(Toy(CLIENTS), tmp_path) for _ in range(2))

    def meanwhile(arrived: Arrived) -> Arrived:
        assert all(isinstance(outcome, Result) for outcome in ask(net))
        return arrived

    late.changes["agree", CLIENTS - 1] = meanwhile
    assert all(isinstance(outcome, Failure) for outcome in ask(late, ulps=1))
    assert not any(seen.tensors for seen in late.answers_seen if seen.step == "unmask")


@pytest.mark.parametrize("other", [{}, {"text": "# a comment"}, {"run": "another"}])
def test_no_client_gets_a_seed_of_its_own(other: dict, tmp_path: Path):
    """5·(mean₁ − mean₂) would be what another seed changes in client 1's update, exactly."""
    ask(SecretNet(Toy(CLIENTS), tmp_path))
    net = SecretNet(Toy(CLIENTS), tmp_path)
    found = ask(net, round=8, seeds={1: 99}, **other)
    assert isinstance(found[1], Failure)
    assert found[1].reason == "its seed does not follow from the recipe's, round and attempt"
    assert not any(seen.tensors for seen in net.answers_seen if seen.step == "unmask")


@pytest.mark.parametrize("field", ["round", "attempt"])
def test_members_who_know_each_other_open_nothing_of_different_rounds(field: str, tmp_path: Path):
    """Of sums in which all but client 1 are told the same round as before, too."""
    net = SecretNet(Toy(CLIENTS), tmp_path)
    introduce(net, tmp_path)
    asked = jobs(net)
    asked[1] = jobs(net, **({"round": 7, "attempt": 0} | {field: 9}))[1]
    found = list(net.engine().run(asked, 0.3))
    assert [type(outcome) for outcome in found] == [Failure] * CLIENTS
    assert isinstance(found[0], Failure)
    assert found[0].reason == "client 1 has not signed its keys for this job"
    assert {seen.step for seen, _ in net.questions} == {"job", "share"}


class Recalls(Toy):
    """Its update is moved by what the client has seen before."""

    def local(self, job: Job) -> Result:
        result = super().local(job)
        seen = 0 if job.state is None else int(job.state["seen"])
        return replace(result, update=result.update | {"a": result.update["a"] + 0.01 * seen})


def rounds_of(net: SecretNet, text: str, *starts: dict[int, Tensors]) -> list[dict[int, Tensors]]:
    """States after a round from each of these, by client; empty where nothing was opened."""
    engine = FlowerEngine(
        net.honest, Recipe("run", text, keep=9), Connection("x:1"), in_small_pieces(),
        lambda _: None, net.open, net.terms,
    )  # fmt: skip
    found = []
    for number, start in enumerate(starts, 1):
        some = [replace(job, state=start.get(job.client)) for job in jobs(net, number)]
        outcomes = list(engine.run(some, 0.3))
        found.append({o.client: o.state for o in outcomes if isinstance(o, Result) and o.state})
    return found


@pytest.mark.slow
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("older", [True, False])
def test_no_client_starts_from_another_round_than_the_others(
    older: bool, known: bool, tmp_path: Path
):
    """The recipe's comment makes it another one, with the same seeds: all but client 1 would give
    what they gave before, and 5·(mean₁ − mean₂) would be what the state changes in its update."""
    net = SecretNet(Recalls(CLIENTS), tmp_path)
    if known:
        introduce(net, tmp_path)
    (first,) = rounds_of(net, "", {})
    _, second = rounds_of(net, "# honest", {}, first)
    assert len(first) == len(second) == CLIENTS
    lies = second | {1: first[1]} if older else {c: s for c, s in second.items() if c != 1}
    net.questions.clear()
    assert rounds_of(net, "# lies", lies) == [{}]
    assert {seen.step for seen, _ in net.questions} == {"job", "share"}
    assert len(*rounds_of(net, "# resumed", first)) == CLIENTS  # all of them from an older one


def test_nor_from_one_of_the_same_name_with_another_past(tmp_path: Path):
    """What a state comes from counts, not what it is called."""
    net = SecretNet(Recalls(CLIENTS), tmp_path)
    (first,) = rounds_of(net, "", {})
    (other,) = rounds_of(net, "# another", {})
    for client, state in first.items():
        folder = net.members[100 + client].folder / "states" / "run"
        if client == 1:
            source = folder / f"{other[client]['kept']}.safetensors"
            source.replace(folder / f"{state['kept']}.safetensors")
    assert rounds_of(net, "# next", first) == [{}]


def test_nodes_that_regroup_have_pasts_of_their_own(tmp_path: Path):
    net = SecretNet(Recalls(CLIENTS), tmp_path, regroup=True)
    (first,) = rounds_of(net, "", {})
    (second,) = rounds_of(net, "# missed", first)
    assert len(*rounds_of(net, "# next", second | {1: first[1]})) == CLIENTS


def introduce(net: SecretNet, folder: Path) -> None:
    """Keys for all members, and those of their peers."""
    (folder / "peers").mkdir()
    for number in range(CLIENTS):
        keys.make_node(folder / f"key-{number}")
        (folder / f"key-{number}.pub").rename(folder / "peers" / f"client-{number}.pub")
    for number in range(CLIENTS):
        key = folder / f"key-{number}"
        net.members[100 + number].identity = identity.load(key, folder / "peers", number)


@pytest.mark.slow
@pytest.mark.parametrize("trick", sorted({*TRICKS} - {*SAME}))
def test_honest_drivers_do_all_of_that_with_the_same_clients(trick: str, tmp_path: Path):
    """A resumed run, a round tried again, a second run with another recipe."""
    ask(SecretNet(Toy(CLIENTS), tmp_path))
    found = ask(SecretNet(Toy(CLIENTS), tmp_path), **TRICKS[trick])  # type: ignore[arg-type]
    assert all(isinstance(outcome, Result) for outcome in found)


@pytest.mark.slow
@pytest.mark.parametrize("seeded", [False, True])
@pytest.mark.parametrize("noise", [1e-9, 4.0])
def test_noise_that_only_the_recipe_asks_for_changes_nothing(
    noise: float, seeded: bool, tmp_path: Path
):
    """It may be next to none, come from a seed, or be averaged out: the node does not count it."""
    ask(SecretNet(Toy(CLIENTS), tmp_path, noise=noise, seeded=seeded))
    net = SecretNet(Toy(CLIENTS), tmp_path, noise=noise, seeded=seeded)
    net.changes["job", 1] = no_answer
    assert all(isinstance(outcome, Failure) for outcome in ask(net, round=50))


@pytest.mark.machines
@pytest.mark.xdist_group("flower machines")
def test_on_real_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A second run with a client less opens nothing; with all of them it goes on."""
    from support.flower_runs import MOMENTUM, on_flower

    from fedrl.engines.flower.connection import FOLDER
    from fedrl.engines.flower.local_federation import LocalFederation
    from fedrl.federation.round_loop import QuorumLost

    monkeypatch.setenv(FOLDER, str(tmp_path / "connections"))
    words = ("--privacy.clip", "0.5", "--privacy.secure", "true", "--federation.retries", "0")
    with LocalFederation(tmp_path / "federation", 4, name="test"):
        for seed, clients in ((0, 4), (1, 3), (2, 4)):
            flags = (*words, "--federation.clients", str(clients), "--seed", str(seed))
            if clients == 4:
                on_flower(MOMENTUM, tmp_path / "runs", *flags, rounds=1)
                continue
            with pytest.raises(QuorumLost, match="its sums are of clients 0, 1, 2, 3 and no other"):
                on_flower(MOMENTUM, tmp_path / "runs", *flags, rounds=1)
