"""A coordinator that lies in its recipe: a node says no in one line and tells nothing of itself."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")

from support.asked_nodes import (
    CLIENTS,
    QHD,
    RATINGS,
    SECRET,
    SMALL,
    TEXTS,
    merged,
    text,
)
from support.asked_nodes import (
    AskedNode as Node,
)
from support.flower_nodes import Net, in_small_pieces

from fedrl.config import build
from fedrl.config.build import build_clients
from fedrl.config.loading import resolve
from fedrl.core import seeding
from fedrl.core.types import Failure, Job, Result, UserError
from fedrl.engines.flower import keys, node_recipes
from fedrl.engines.flower.connection import Connection
from fedrl.engines.flower.engine import FlowerEngine, Recipe
from fedrl.privacy.secure_aggregation import identity
from fedrl.privacy.secure_aggregation import messages as secure_messages
from fedrl.privacy.secure_aggregation.identity import Identity

pytestmark = pytest.mark.slow  # of waits for messages: seconds of the clock, few of a core


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A node's folder, with links that lead out of it."""
    monkeypatch.chdir(tmp_path)  # nodes change it
    node = tmp_path / "node"
    for folder in (node / "models" / "mine", node / "states", tmp_path / "beside"):
        folder.mkdir(parents=True)
    (tmp_path / "beside" / "labels.json").write_text("{}")
    (node / "out").symlink_to(tmp_path / "beside")
    (node / "labels.json").symlink_to(tmp_path / "beside" / "labels.json")
    (node / "loop").symlink_to("loop")
    return node


REFUSED = {
    "attack.clients": {"attack": {"clients": [1, 2, 3, 4], "kind": "free-rider"}},
    "attack.share": {"attack": {"share": 0.2}},
    "faults.clients": {"faults": {"clients": [0]}},
    "partition.labels": {"partition": {"labels": "/etc/passwd"}},
    "algorithm.anchor_file": merged(
        QHD, {"algorithm": {"anchor_source": "file", "anchor_file": "../beside/states.npy"}}
    ),
    "algorithm.feedback_file": merged(
        RATINGS, {"algorithm": {"feedback": "logged", "feedback_file": "out/{client}.jsonl"}}
    ),
    "algorithm.feedback_folder": merged(
        RATINGS, {"algorithm": {"feedback": "live", "feedback_folder": "~/answers"}}
    ),
    "world.source": merged(RATINGS, {"world": {"source": "../../etc"}}),
    "algorithm.model": merged(TEXTS, {"algorithm": {"model": "openai-community/gpt2"}}),
    "algorithm.sentiment": merged(
        TEXTS, {"algorithm": {"model": "models/mine", "sentiment": "org/remote-code"}}
    ),
    # Of two sums, one with the first λ of 1 and one of 0, the difference is that client's answers.
    "algorithm.lam": merged(RATINGS, SECRET, {"algorithm": {"lam": [1.0, 0.0, 0.0, 0.0, 0.0]}}),
    "track": {"track": ["wandb", "../x"]},
    "out": {"out": "/srv/elsewhere"},
    "rounds": {"rounds": 10**12},
    "federation.clients": {"federation": {"clients": 10**8}},
    "world.horizon": {"world": {"horizon": 10**9}},
    "world.threads": {
        "algorithm": {"name": "pavg"},
        "world": {"name": "halfcheetah", "threads": 10**5},
    },
}


@pytest.mark.parametrize("key", REFUSED)
def test_a_node_refuses_and_names_the_key(key: str, home: Path):
    node = Node(home)
    found = node.reason(text(REFUSED[key]))
    assert found.startswith(f"{key}: this node "), found
    assert str(home) not in found
    assert any(key in line for line in node.said)


LEADING_OUT = [
    "/etc/passwd", "//etc/passwd", "..", "a/../../x", "out/labels.json", "labels.json", "loop",
    "~", "~root", "a/~/b", "C:\\x", "c:/x", "\\\\host\\share", "..\\x", "%2e%2e/x", "$HOME/x",
    "．．/x", "․․/x", ".. /x", ".../x", "a\nb", "\x1b[2Jx", "con", "file:///x",
    ".", "states/run/x", "secret", "key", "opened.json", "ledger.jsonl", ".hidden",
]  # fmt: skip


@pytest.mark.parametrize("path", LEADING_OUT)
def test_no_spelling_of_a_path_leads_out(path: str, home: Path):
    found = Node(home).reason(text({"partition": {"labels": path}}))
    assert found.startswith("partition.labels: this node opens only files of its own folder"), found


def test_what_can_be_no_path_is_not_even_a_recipe(home: Path):
    """Settings refuse a zero byte themselves, before a node looks where it leads."""
    node = Node(home)
    assert node.reason(text({"partition": {"labels": "a\x00b"}})).startswith("its worker could not")
    assert any("labels" in line for line in node.said), node.said


@pytest.mark.parametrize("name", ["gpt2", "org/model", "models/none", "builtin", "out", "loop"])
def test_no_model_is_fetched(name: str, home: Path):
    found = Node(home).reason(text(TEXTS, {"algorithm": {"model": name}}))
    assert found.startswith("algorithm.model: this node opens only models of its own folder"), found


def test_whether_a_file_is_there_is_not_told(home: Path):
    """A coordinator that tries names one after the other learns nothing of the node's folder."""
    node = Node(home)
    missing, linked = (
        node.reason(text({"partition": {"labels": path}})) for path in ("../no.json", "labels.json")
    )
    assert missing == linked


@pytest.mark.slow
def test_models_and_files_of_its_own_folder_are_opened(home: Path):
    """A broken model is the next thing that is found out."""
    found = Node(home).reason(text(TEXTS, {"algorithm": {"model": "models/mine"}}))
    assert "this node" not in found
    assert "UserError" in found


@pytest.mark.slow
def test_its_owner_may_say_otherwise(home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FEDRL_DEBUG", "1")
    raising = {"faults": {"clients": [0], "kind": "raise"}}
    for node in (
        Node(home, allow=["faults"]),
        Node(home, allow=["faults.clients"]),
        Node(home, "--faults.clients", "0"),
    ):
        assert "a fault on purpose" in node.reason(text(raising))
    beside = str(home.parent / "beside")
    own = Node(home, "--algorithm.model", beside)
    assert "this node" not in own.reason(text(TEXTS, {"algorithm": {"model": "/sent"}}))
    with pytest.raises(UserError, match=r"--allow algorihm\.model"):
        Node(home, allow=["algorihm.model"])


def test_a_node_has_its_own_least_number_of_clients(home: Path):
    node = Node(home, least_clients=4)
    for parts in (
        [{"federation": {"clients": 3}}],
        [{"federation": {"clients": 9, "cohort": 3}}],
        [{"federation": {"kind": "local"}}],
        [{"federation": {"kind": "independent"}}],
        [{"federation": {"clients": 9}, "async_buffer": {"size": 1}}],
        # rules that choose some of them: one, and three
        [{"federation": {"clients": 9}, "aggregate": {"name": "krum"}}],
        [{"federation": {"clients": 9}, "aggregate": {"name": "multi-krum", "keep": 3}}],
        [{"federation": {"clients": 7}, "aggregate": {"name": "bulyan", "byzantine": 1}}],
        # of five clients three may be left when a sum is opened
        [SECRET, {"privacy": {"threshold": 0.6}}],
    ):
        everybody = {"federation": {"quorum": 1.0}}
        assert node.reason(text(*parts, everybody)).startswith("federation.clients: "), parts
    everybody = {"federation": {"quorum": 0.8}}  # four of five
    assert "least" not in node.reason(text(everybody))
    for quorum in (0.0, 0.5, 0.6):
        found = node.reason(text({"federation": {"quorum": quorum}}))
        assert found.startswith(f"federation.quorum {quorum:g} of 5 clients lets "), found
        assert found.endswith("needs --federation.quorum 0.8 (least_clients)")
    assert "least" not in node.reason(text(SECRET, {"privacy": {"threshold": 0.8}}))
    several = {"federation": {"clients": 9}, "aggregate": {"name": "multi-krum", "keep": 4}}
    # what it needs at least, 2f + 3, is more than the quorum of five
    assert "least" not in node.reason(text(several))
    with pytest.raises(UserError, match="--least-clients is 0"):
        Node(home, least_clients=0)


def test_the_coordinator_writes_no_lines_into_a_nodes_log(home: Path, capsys):
    from fedrl.engines.flower.owner_log import say

    node = Node(home)
    node.client.log = say
    node.reason(text({"rounds": 10**12}), run="x\n12:00:00 all is well\x1b[2J")
    node.reason('"a\\nb" = 1\n')
    told = capsys.readouterr().err
    assert len(told.splitlines()) == 3
    assert all(line.isprintable() for line in told.splitlines())


@pytest.mark.slow
def test_the_worker_reaches_no_hub_unless_its_owner_names_a_model(home: Path, monkeypatch):
    """Also a model's own files may name another model, to be fetched."""
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.setenv(name, "0")
    recipe = text(TEXTS, {"algorithm": {"model": "models/mine"}})
    node_recipes.client(0, home, flags=("--algorithm.model", "x")).plan(recipe).build()
    assert os.environ["HF_HUB_OFFLINE"] == "0"
    node_recipes.client(0, home).plan(recipe).build()
    assert os.environ["HF_HUB_OFFLINE"] == os.environ["TRANSFORMERS_OFFLINE"] == "1"


# Secure sums ------------------------------------------------------------------------------------


def secret_engine(home: Path, recipe: str) -> tuple[FlowerEngine, list[Job]]:
    """A driver and real nodes for a secure sum of one job each."""
    config = resolve(json.loads(json.dumps(merged(SMALL, SECRET))))
    algorithm = build_clients(config)
    net = Net(algorithm, home, 0)
    for number in range(CLIENTS):
        folder = home / str(number)
        folder.mkdir()
        net.members[100 + number] = Node(folder, number=number).client
    terms = build.terms(config)
    sent = algorithm.broadcast(algorithm.init(0), 1)
    engine = FlowerEngine(
        algorithm, Recipe("run", recipe, 3), Connection("x:1"),
        in_small_pieces(piece_mb=1.0), print, net.open, terms,
    )  # fmt: skip
    seeds = [seeding.local(config.seed, 1, 0, number) for number in range(CLIENTS)]
    return engine, [Job(number, sent, None, seed, 1) for number, seed in enumerate(seeds)]


def test_free_riders_by_recipe_open_nobodys_update(home: Path):
    """All others send nothing new: the sum would be the one client's update."""
    others = [number for number in range(CLIENTS) if number != 2]
    lying = text(SECRET, {"attack": {"clients": others, "kind": "free-rider"}})
    engine, jobs = secret_engine(home, lying)
    found = list(engine.run(jobs))
    assert all(isinstance(one, Failure) and "attack.clients" in one.reason for one in found), found


def test_the_same_sum_without_the_lie(home: Path):
    engine, jobs = secret_engine(home, text(SECRET))
    assert all(isinstance(one, Result) for one in engine.run(jobs))


@pytest.fixture
def peers(tmp_path: Path) -> Identity:
    keys.make_node(tmp_path / "key")
    (tmp_path / "peers").mkdir()
    (tmp_path / "key.pub").rename(tmp_path / "peers" / "client-0.pub")
    return identity.load(tmp_path / "key", tmp_path / "peers")


def test_a_node_that_knows_its_peers_sends_no_plain_update(home: Path, peers: Identity):
    node = Node(home)
    assert "privacy" not in node.reason(text())
    node.client.identity = peers
    assert node.reason(text()).startswith("privacy.secure: this node knows its peers")
    assert not list(home.rglob("*.safetensors"))
    config = resolve(merged(SMALL, SECRET))
    terms = secure_messages.sendable(build.terms(config))
    assert "peers" not in node.reason(text(SECRET), exchange="x", terms=terms)
    plain = partial(node.reason, text(), exchange="y", terms=terms)
    assert plain().startswith("privacy.secure: this node knows its peers")


def test_nor_its_own_metrics_beside_a_sum(home: Path, peers: Identity):
    """`reports = true` in a recipe would send every client's metrics as they are."""
    secret = merged(SECRET, {"privacy": {"clip": 0.5, "secure": True, "reports": True}})
    terms = secure_messages.sendable(build.terms(resolve(merged(SMALL, secret))))
    for rules, refused in (({}, True), ({"allow": ["privacy.reports"]}, False)):
        node = Node(home, **rules)
        node.client.identity = peers
        found = node.reason(text(secret), exchange="x", terms=terms)
        assert found.startswith("privacy.reports: this node knows its peers") == refused


# Real processes ---------------------------------------------------------------------------------


@pytest.mark.machines
@pytest.mark.xdist_group("flower machines")
def test_on_real_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """TLS, keys, peers: plain recipes and free-riders are refused, and an honest sum is opened."""
    from support.flower_runs import MOMENTUM, QUICK, on_flower
    from support.flower_runs import records as client_records

    from fedrl.engines.flower.connection import FOLDER
    from fedrl.engines.flower.local_federation import LocalFederation

    monkeypatch.setenv(FOLDER, str(tmp_path / "connections"))
    secret = ("--privacy.clip", "0.5", "--privacy.secure", "true", "--federation.retries", "0")
    riders = ("--attack.clients", "0,2,3", "--attack.kind", "free-rider")
    with LocalFederation(tmp_path / "up", 4, name="test", program=QUICK, peers=True) as up:
        many = ("--federation.clients", "4")
        for name, flags, told in (
            ("plain", secret[-2:], "privacy.secure: this node knows its peers"),
            ("riders", (*secret, *riders), "attack.clients: this node rehearses no attacks"),
        ):
            with pytest.raises(UserError, match=told):
                on_flower(MOMENTUM, tmp_path / name, *many, *flags, rounds=1)
            for client in range(4):
                assert told in (up.folder / f"node-{client}" / "node.log").read_text()
        run = on_flower(MOMENTUM, tmp_path / "honest", *many, *secret, rounds=1)
    assert {r["status"] for r in client_records(run)} == {"ok"}
