"""A node's own ε: charged before each answer leaves, and never forgotten."""

from __future__ import annotations

import json
import math
import random
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from multiprocessing.pool import ThreadPool
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("flwr", reason="needs the extra flower")
pytest.importorskip("dp_accounting", reason="ε needs the extra privacy")

import dp_accounting as dp
from support.gaussian import gaussian_delta
from support.secure_nodes import CLIENTS, SecretNet, jobs, no_answer, over
from support.toy import Toy

from fedrl.config.loading import resolve, to_toml
from fedrl.core import chained_lines
from fedrl.core.private_files import StateError, write_private
from fedrl.core.types import Failure, Result
from fedrl.engines.flower import node_recipes
from fedrl.engines.flower.policy import Policy
from fedrl.privacy import accounting
from fedrl.privacy.client_ledger import Budget, Ledger
from fedrl.privacy.secure_aggregation.identity import Identity
from fedrl.privacy.secure_aggregation.protocol import ProtocolError

DELTA = 1e-5
FOUR = accounting.full_view(4.0, 4, DELTA)
"""ε of four answers with noise 4."""


# ε of different noises together ------------------------------------------------------------------


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0.5, 50), min_size=1, max_size=20), st.sampled_from([1e-3, 1e-5, 1e-7]))
def test_gaussians_of_different_noise_are_one(noises: list[float], delta: float):
    """1/σ² adds up; δ(ε) by Balle and Wang's closed form."""
    epsilon = accounting.composed_view(noises, delta)
    multiplier = 1 / math.sqrt(sum((2 / z) ** 2 for z in noises))
    if 0 < epsilon < 100:
        assert gaussian_delta(multiplier, epsilon) == pytest.approx(delta, rel=1e-3)
    assert accounting.composed_view(noises[1:], delta) <= epsilon


@pytest.mark.slow
def test_the_accountants_own_composition_says_the_same():
    noises = [3.0, 4.5, 20.0, 4.5, 8.0]
    accountant = dp.pld.PLDAccountant(dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    for z in noises:
        accountant.compose(dp.GaussianDpEvent(z / 2))
    found = accounting.composed_view(noises, DELTA)
    assert found == pytest.approx(accountant.get_epsilon(DELTA), rel=1e-3)
    rdp = dp.rdp.RdpAccountant(accounting.ORDERS, dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    for z in noises:
        rdp.compose(dp.GaussianDpEvent(z / 2))
    assert found < rdp.get_epsilon(DELTA) < 1.3 * found  # an upper bound, and no tight one


def test_equal_noises_are_the_full_view_and_none_is_infinite():
    assert accounting.composed_view([3.0] * 7, DELTA) == pytest.approx(
        accounting.full_view(3.0, 7, DELTA), rel=1e-9
    )
    assert accounting.composed_view([], DELTA) == 0
    assert accounting.composed_view([4.0, 0.0], DELTA) == math.inf
    assert accounting.composed_view([4.0, 5e-324], DELTA) == math.inf
    assert accounting.composed_view([4.0, 1e-200], DELTA) == math.inf
    assert accounting.composed_view([4.0, 1e-5], DELTA) > 1e9
    assert accounting.composed_view([math.inf], DELTA) == 0


# The ledger --------------------------------------------------------------------------------------


def answered(ledger: Ledger, noises: list[float], name: str = "job") -> int:
    """How many of these it lets through before it refuses one."""
    for count, noise in enumerate(noises):
        try:
            ledger.charge(f"{name} {count}", noise)
        except ProtocolError:
            return count
    return len(noises)


def test_it_ends_at_its_epsilon_across_restarts_and_noises(tmp_path: Path):
    for job in range(4):
        Ledger(tmp_path, FOUR, DELTA).charge(f"a{job}", 4.0)
    with pytest.raises(ProtocolError, match=r"its own ε would be .*, above its privacy.epsilon"):
        Ledger(tmp_path, FOUR, DELTA).charge("b", 4.0)
    with pytest.raises(ProtocolError, match="its own ε would be"):
        Ledger(tmp_path, FOUR, DELTA).charge("b", 100.0)
    Ledger(tmp_path, 2 * FOUR, DELTA).charge("b", 4.0)  # its owner has raised it


def test_a_job_is_answered_once(tmp_path: Path):
    ledger = Ledger(tmp_path, FOUR, DELTA)
    ledger.charge("a", 4.0)
    for again in (ledger.charge, ledger.check, Ledger(tmp_path, FOUR, DELTA).charge):
        with pytest.raises(ProtocolError, match="it has answered this job before"):
            again("a", 4.0)
    assert answered(ledger, [4.0] * 10) == 3  # what is refused costs nothing


def test_what_is_refused_is_refused_before_anything_is_computed(tmp_path: Path):
    ledger = Ledger(tmp_path, FOUR, DELTA)
    ledger.check("a", 4.0)
    assert not (tmp_path / "ledger.jsonl").exists()
    with pytest.raises(ProtocolError):
        ledger.check("a", 0.0)
    with pytest.raises(ProtocolError):
        ledger.check("a", 0.01)


def files(folder: Path) -> tuple[Path, Path]:
    return folder / "ledger.jsonl", folder / "ledger.head"


@pytest.mark.slow
def test_any_damage_is_found_out_and_nothing_is_answered(tmp_path: Path):
    ledger = Ledger(tmp_path, 1e9, DELTA)
    for job in range(3):
        ledger.charge(f"job {job}", 4.0 + job)
    draw = random.Random(1)
    for path in files(tmp_path):
        whole = path.read_bytes()
        changed = [whole[:cut] for cut in range(len(whole))]
        for at in range(len(whole)):
            one = bytearray(whole)
            one[at] ^= 1 << draw.randrange(8)
            changed.append(bytes(one))
        lines = whole.splitlines(keepends=True)
        changed += [b"".join(lines[::-1]), whole * 2] if len(lines) > 1 else []
        for data in changed:
            if data.split() == whole.split():  # white space around the head
                continue
            path.write_bytes(data)
            with pytest.raises(StateError, match=r"its ledger .* is damaged or incomplete"):
                ledger.charge("new", 4.0)
            assert path.read_bytes() == data
        path.unlink()
        with pytest.raises(StateError, match="damaged or incomplete"):
            ledger.check("new", 4.0)
        path.write_bytes(whole)
    ledger.charge("new", 4.0)


def test_what_a_kill_leaves_is_no_damage(tmp_path: Path):
    """Killed while a line is written, or before the head is."""
    lines, head = files(tmp_path)
    ledger = Ledger(tmp_path, 1e9, DELTA)
    for before in range(3):
        old = lines.read_bytes() if before else b""
        known = head.read_bytes() if before else None
        ledger.charge(f"job {before}", 4.0)
        new = lines.read_bytes()
        after = head.read_bytes()
        for cut in (*range(len(old), len(new), 17), len(new) - 1, len(new)):
            lines.write_bytes(new[:cut])
            head.unlink(missing_ok=True)
            if known is not None:
                head.write_bytes(known)
            ledger.charge("after", 4.0)
            kept = [json.loads(line)["job"] for line in lines.read_text().splitlines()]
            whole = [f"job {n}" for n in range(before + (cut == len(new)))]
            assert kept == [*whole, "after"]
            with pytest.raises(ProtocolError, match="answered this job before"):
                ledger.charge("after", 4.0)
        lines.write_bytes(new)
        head.write_bytes(after)


CHARGES = """
import sys
import threading
from pathlib import Path
from fedrl.privacy.client_ledger import Ledger
ledger = Ledger(Path(sys.argv[1]), 1e9, 1e-5)
print("ready", flush=True)
for job in range(100_000):
    ledger.charge(f"{sys.argv[2]} {job}", 4.0)
    print(job, flush=True)  # the answer leaves
"""


@pytest.mark.slow
def test_a_killed_node_has_charged_all_that_it_told(tmp_path: Path):
    draw, told = random.Random(2), 0
    for life in range(2):
        node = subprocess.Popen(
            [sys.executable, "-c", CHARGES, str(tmp_path), str(life)], stdout=subprocess.PIPE
        )
        assert node.stdout is not None
        for _ in range(1 + draw.randint(1, 30)):
            node.stdout.readline()
        node.send_signal(signal.SIGKILL)
        said = node.stdout.read().splitlines(keepends=True)
        node.wait()
        kept = [
            json.loads(line)["job"].split()
            for line in files(tmp_path)[0].read_bytes().splitlines(keepends=True)
            if line.endswith(b"\n")
        ]
        of_this = [int(job) for number, job in kept if number == str(life)]
        assert of_this == list(range(len(of_this)))
        assert not said or max(of_this) >= int([s for s in said if s.endswith(b"\n")][-1])
        told += len(of_this)
        Ledger(tmp_path, 1e9, DELTA).check("new", 4.0)
    assert len(kept) == told


def test_two_of_one_folder_do_not_both_have_the_last_answer(tmp_path: Path):
    """The lock is the file's, so threads are kept apart by it as processes are."""
    gate = threading.Barrier(3)

    def spend(name: int) -> int:
        gate.wait()
        ledger = Ledger(tmp_path, FOUR, DELTA)
        return answered(ledger, [4.0] * 10, f"{name}")

    with ThreadPool(3) as tries:
        assert sum(tries.map(spend, range(3), 1)) == 4
    assert len(files(tmp_path)[0].read_text().splitlines()) == 4


# On a node ---------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedrl.engines.flower.node_calls.POLL_SECONDS", 0.005)


def counted(folder: Path, epsilon: float, peers: bool = True) -> SecretNet:
    """Nodes with an ε of their own in secure sums with noise 4."""
    net = SecretNet(Toy(CLIENTS), folder, noise=4.0)
    budget = Budget(epsilon, DELTA, 4.0, 4.0 / math.sqrt(net.terms.needed))
    plan = replace(net.members[100].plan(""), budget=budget)
    for node in net.members.values():
        node.plan = lambda recipe: plan
        if peers:
            node.identity = Everybody()
    return net


class Everybody(Identity):
    """Has peers, and believes them."""

    def __init__(self) -> None:
        super().__init__(None, {})

    def believes(self, number: int, statement: bytes, signature: bytes) -> bool:
        return True


def test_a_sum_is_charged_before_the_masked_words_leave(tmp_path: Path):
    """The others can open it without this client's help."""
    net = counted(tmp_path, FOUR)
    net.changes["mask", 1] = no_answer
    list(net.engine().run(jobs(net), 0.3))
    for client in range(CLIENTS):
        lines = (tmp_path / str(client) / "ledger.jsonl").read_text().splitlines()
        assert [json.loads(line)["noise"] for line in lines] == [4.0]
    # What was never masked costs nothing.
    net.changes = {("share", 1): no_answer}
    list(net.engine().run(jobs(net, 50), 0.3))
    assert len((tmp_path / "1" / "ledger.jsonl").read_text().splitlines()) == 1
    assert len((tmp_path / "2" / "ledger.jsonl").read_text().splitlines()) == 2


@pytest.mark.slow
def test_sums_end_at_a_nodes_own_epsilon_and_may_be_of_other_clients(tmp_path: Path):
    net = counted(tmp_path, FOUR)
    for number in range(4):
        net.changes = {("job", number): no_answer}
        found = list(net.engine().run(jobs(net, 50 * number), 0.3))
        assert [isinstance(o, Result) for o in found] == [n != number for n in range(CLIENTS)]
    net.changes = {}
    found = list(net.engine().run(jobs(net, 300)))  # client 4 was in all of them
    assert [isinstance(o, Result) for o in found] == [True] * 4 + [False]
    assert "its own ε would be" in found[4].reason
    assert not list(tmp_path.rglob("opened.json"))


def test_without_peers_a_sum_has_only_the_nodes_own_noise_for_sure(tmp_path: Path):
    """The other clients may be the driver's invention, and their noise with them."""
    net = counted(tmp_path, FOUR, peers=False)
    list(net.engine().run(jobs(net)))
    (line,) = (tmp_path / "1" / "ledger.jsonl").read_text().splitlines()
    assert json.loads(line)["noise"] == 4.0 / math.sqrt(net.terms.needed)
    assert isinstance(list(net.engine().run(jobs(net, 50)))[1], Failure)


def test_a_sum_that_was_interrupted_goes_on_with_the_next_attempt(tmp_path: Path):
    """Nobody knows whether its masked words were opened, so they are not masked again."""
    net = counted(tmp_path, FOUR)
    net.gone = [("agree", 0)]
    said: list[str] = []
    store = over(net, said, rounds=1)
    assert [r["status"] for r in store.rounds[1].clients] == ["failed"] * 5 + ["ok"] * 5
    assert "it has answered this job before" in store.rounds[1].clients[0]["reason"]


def test_nothing_leaves_if_it_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(path: Path, data: bytes) -> None:
        if path.name == "ledger.head":
            raise OSError(28, "No space left on device")
        write_private(path, data)

    monkeypatch.setattr(chained_lines, "write_private", full)
    net = counted(tmp_path, FOUR)
    assert all(isinstance(o, Failure) for o in net.engine().run(jobs(net)))
    assert all(seen.tensors == {} for seen in net.answers_seen if seen.step == "mask")


RECIPE = {
    "federation": {"clients": 4},
    "algorithm": {"name": "fedsvrpg-m", "local_steps": 2},
    "world": {"name": "random_mdp"},
}


def budget(own: tuple[str, ...], policy: Policy | None = None, **fields: object) -> Budget | None:
    recipe = to_toml(resolve(RECIPE | {"privacy": fields}))
    return node_recipes.plan(recipe, Path(), "", own, policy).budget


def test_a_recipe_does_not_say_what_a_nodes_own_epsilon_means(tmp_path: Path):
    own = ("--privacy.epsilon", "8")
    local: dict[str, object] = {"clip": 1.0, "noise": 3.0, "where": "local"}
    assert budget(own, **local) == Budget(8.0, 1e-5, 3.0, 3.0)
    assert budget(own, **local, delta=0.9, epsilon=1000.0) == Budget(8.0, 1e-5, 3.0, 3.0)
    both = (*own, "--privacy.delta", "1e-7")
    assert budget(both, **local) == Budget(8.0, 1e-7, 3.0, 3.0)
    found = budget(own, clip=1.0, noise=3.0, secure=True)
    assert found == Budget(8.0, 1e-5, 3.0, 3.0 / math.sqrt(3))
    assert budget((), **local, epsilon=8.0) is None


def test_of_a_policys_epsilon_and_the_command_lines_the_smaller_holds():
    local: dict[str, object] = {"clip": 1.0, "noise": 3.0, "where": "local"}
    own = ("--privacy.epsilon", "8")
    assert budget((), Policy(epsilon=5.0), **local) == Budget(5.0, 1e-5, 3.0, 3.0)
    assert budget(own, Policy(epsilon=5.0), **local) == Budget(5.0, 1e-5, 3.0, 3.0)
    assert budget(own, Policy(epsilon=50.0), **local) == Budget(8.0, 1e-5, 3.0, 3.0)
    assert budget(own, Policy(epsilon=50.0, delta=1e-7), **local) == Budget(8.0, 1e-7, 3.0, 3.0)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"where": "local", "seeded": True}, "do not allow privacy.seeded"),
        ({"where": "local", "reports": True}, "do not allow privacy.reports"),
        ({"where": "central"}, "which this recipe leaves to the server"),
    ],
)
def test_a_nodes_own_epsilon_insists_on_noise_of_its_own(fields: dict[str, object], why: str):
    with pytest.raises(ProtocolError, match=why):
        budget(("--privacy.epsilon", "8"), clip=1.0, noise=3.0, **fields)
