"""Recipes by a coordinator that lies, to a node's own check and, if it lets them, to its worker.

The search puts recipes together from all settings of all methods and worlds, with values that lead
out of the node's folder, name models elsewhere, make clients lie or fail, or ask for too much. What
must not happen is watched from outside: files that the node's worker opens (Python tells, whoever
opens them), connections that it makes, and the wrappers that are put around its clients.
"""

from __future__ import annotations

import dataclasses
import json
import os
import random
import subprocess
import sys
import tempfile
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli_w

pytest.importorskip("flwr", reason="needs the extra flower")

from fedrl.algorithms import METHODS
from fedrl.clients import attacks, faults
from fedrl.config.flag_parsing import fields
from fedrl.config.schema import SECTIONS, Config
from fedrl.core.registry import load
from fedrl.core.types import Algorithm, Job
from fedrl.engines.flower import node_recipes
from fedrl.envs import WORLDS
from fedrl.runs import train as run

SEARCHES, EACH = 8, 40
ELSEWHERE = "elsewhere"
"""A folder beside the node's: files there are as good as any on its machine."""


def section_classes() -> Iterator[tuple[str, str, type]]:
    """Table, the name that chooses its class, the class: of every setting that there is."""
    for table, entries in (("algorithm", METHODS), ("world", WORLDS)):
        for name, entry in entries.items():
            yield table, name, load(entry, table, name).Settings
    for field in dataclasses.fields(Config):
        kind = typing.get_type_hints(Config)[field.name]
        if kind in SECTIONS:
            yield field.name, "", kind
    yield "", "", Config


# The node's machine -----------------------------------------------------------------------------


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A node's folder with data, links and its own secrets, and things beside it."""
    node, beside = tmp_path / "node", tmp_path / ELSEWHERE
    for folder in (node / "labels", node / "states" / "run", beside / "model"):
        folder.mkdir(parents=True)
    (node / "labels" / "good.json").write_text("{}")
    (node / "secret").write_text("x" * 32)
    (node / "key").write_text("x" * 32)
    for name in ("labels.json", "states.npy", "states.csv", "answers.jsonl", "ratings.csv"):
        (beside / name).write_text("{}")
    (beside / "model" / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    (node / "out").symlink_to(beside)
    (node / "labels" / "out.json").symlink_to(beside / "labels.json")
    (node / "to_model").symlink_to(beside / "model")
    return node


def hostile_texts(node: Path) -> list[str]:
    beside = node.parent / ELSEWHERE
    names = ["labels.json", "states.npy", "states.csv", "answers.jsonl", "model", "{client}.jsonl"]
    out = [
        f"{place}{name}" for name in names for place in (f"{beside}/", f"../{ELSEWHERE}/", "out/")
    ]
    out += ["/etc/passwd", "/dev/zero", "/proc/self/environ", "..", "../..", "labels/../../x", "."]
    out += [str(node / "secret"), "secret", "key", "states/run/x", "labels/out.json", "to_model"]
    out += ["~", "~root/.ssh/id_rsa", "~/.ssh", "$HOME/x", "%2e%2e/x", "．．/x", "..\\x", "C:\\x"]
    out += ["\\\\host\\share", "file:///etc/passwd", "http://example.org/x", "s3://bucket/x"]
    out += ["gpt2", "openai-community/gpt2", "distilbert/distilbert-base-uncased", "builtin"]
    out += ["\x00", "a\x00b", "a\nb", "\x1b[2J", "\u202e", "x" * 5000, " ", "", "labels/good.json"]
    return [*out, "generated", "movielens", "imdb", "alfworld", "webshop", "cpu", "auto", "disk"]


def hostile_value(kind: Any, node: Path, draw: random.Random) -> Any:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return draw.choice(args)
    if origin is tuple:
        return [hostile_value(args[0], node, draw) for _ in range(draw.choice([0, 1, 2, 3]))]
    if kind is str:
        return draw.choice(hostile_texts(node))
    if kind is bool:
        return draw.random() < 0.5
    if kind is int:
        return draw.choice([0, 1, 2, 3, 5, 10**9, 10**15, 2**62, -1])
    return draw.choice([0.0, 0.5, 1.0, 2.0, 1e308, -1.0])


def recipe(node: Path, draw: random.Random) -> str:
    """Two out of three recipes are small and good but for the few settings that are drawn."""
    method, world = draw.choice(GOOD)
    data: dict[str, Any] = {"rounds": 1, "engine": "workers"}
    data |= {"federation": {"clients": 3}, "algorithm": dict(method), "world": dict(world)}
    classes = {
        table: cls
        for table, name, cls in section_classes()
        if name in ("", data.get(table, {}).get("name", ""))
    }
    favourites = [("attack", "share"), ("attack", "clients"), ("faults", "clients")]
    favourites += [
        (table, key)
        for table, cls in classes.items()
        for key, kind in fields(cls).items()
        if kind is str and key != "name"
    ]
    everything = [(table, key) for table, cls in classes.items() for key in fields(cls)]
    for _ in range(draw.choice([1, 1, 2, 3, 8])):
        table, key = draw.choice(favourites if draw.random() < 0.7 else everything)
        kind = fields(classes[table])[key]
        if key in ("name", "engine", "connection") or dataclasses.is_dataclass(kind) or kind is Any:
            continue  # those choose among the others, or are not read by a node
        place = data.setdefault(table, {}) if table else data
        place[key] = hostile_value(kind, node, draw)
        if key in ("clients", "share"):  # what makes sense is more to be feared
            place[key] = {"share": 0.6, "clients": [1, 2]}[key] if table != "federation" else 3
    return written(data)


def written(data: dict[str, Any]) -> str:
    return tomli_w.dumps(data)


QUICK = {"local_steps": 1, "trajectories": 1, "eval_episodes": 1}
TD = {"episodes": 1, "eval_episodes": 1, "anchors": 5}
RATINGS = {"name": "movielens", "users": 30, "movies": 60, "ratings": 40}
TEXTS = {"model": "labels", "answer_tokens": 2}
GOOD: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"name": "pavg"} | QUICK, {"name": "random_mdp", "horizon": 5}),
    ({"name": "fedqhd", "features": 20, "encoders": "own", "sizes": [20]} | TD,
     {"name": "cartpole-v1"}),
    ({"name": "fedqhd", "features": 20, "encoders": "own", "sizes": [20],
      "anchor_source": "file", "anchor_file": "labels/good.npy"} | TD, {"name": "cartpole-v1"}),
    ({"name": "distill-dqn", "hidden": [4, 4]} | TD, {"name": "cartpole-v1"}),
    ({"name": "fedrlhf", "feedback": "logged", "feedback_file": "labels/{client}.jsonl"}, RATINGS),
    ({"name": "fedrlhf", "feedback": "live", "feedback_folder": "people"}, RATINGS),
    ({"name": "fedrlhf", "local_epochs": 1}, RATINGS),
    ({"name": "fedrlhf-text", "eval_prompts": 1} | TEXTS, {"name": "imdb", "reviews": 60}),
    ({"name": "fedagent", "tasks": 1, "group": 2} | TEXTS,
     {"name": "household", "size": "tiny", "train": 400, "seen": 5, "unseen": 5, "public": 0}),
    ({"name": "fedagent", "tasks": 1, "group": 2} | TEXTS,
     {"name": "webshop", "products": 100, "validation": 5}),
]  # fmt: skip
"""Small, and right but for models that are none and files that are not there."""


class Watch:
    """Notes what this process opens beside Python's own and the node's files, and whom it calls."""

    def __init__(self, node: Path) -> None:
        self.node = os.path.realpath(node)
        self.own = [os.path.realpath(node / name) for name in ("secret", "key", "states")]
        self.fine = [self.node, sys.prefix, sys.base_prefix, str(Path(run.__file__).parents[3])]
        self.fine += ["/proc", "/sys", "/dev/null", "/tmp"]
        self.fine += [os.path.realpath(place) for place in sys.path if place]
        self.fine += ["/usr/lib", "/usr/share", "/etc/ld.so", str(Path.home() / ".cache" / "fedrl")]
        self.seen: list[str] = []
        self.on = False
        sys.addaudithook(self._note)

    def _note(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.on:
            return
        if event in ("socket.connect", "socket.getaddrinfo", "subprocess.Popen", "os.system"):
            self.seen.append(f"{event} {args[:2]}")
        elif event in ("open", "os.listdir", "os.scandir") and isinstance(args[0], str | bytes):
            path = os.path.realpath(os.fsdecode(args[0]))
            beside = (
                ELSEWHERE in path
                or path.endswith("/environ")
                or any(path.startswith(own) for own in self.own)
            )
            if beside or not any(path.startswith(place) for place in self.fine):
                self.seen.append(f"{event} {path}")


def tried(text: str, node: Path) -> str:
    """What became of a recipe: refused, not understood, or done, for a round of client 0."""
    try:
        plan = node_recipes.client(0, node).plan(text)
    except Exception as error:  # noqa: BLE001 - costs an update; a node survives it
        return type(error).__name__
    try:
        algorithm = plan.build()
        layers(algorithm)
        sent = algorithm.broadcast(algorithm.init(0), 1)
        algorithm.local(Job(0, sent, None, 1))
    except AssertionError:
        raise
    except Exception as error:  # noqa: BLE001 - in the worker, which is another process
        return f"built with {type(error).__name__}"
    return "done"


def layers(algorithm: Algorithm) -> None:
    while algorithm is not None:
        assert not isinstance(algorithm, attacks.Attacked | faults.Faulty), type(algorithm)
        algorithm = getattr(algorithm, "algorithm", None)


PROGRAM = """
import json, os, random, resource, sys
from pathlib import Path
sys.path[:0] = json.loads(sys.argv[1])
resource.setrlimit(resource.RLIMIT_DATA, (6 * 2**30,) * 2)
import test_random_recipes as search
sys.exit(search.main(int(sys.argv[2]), Path(sys.argv[3])))
"""


def main(seed: int, node: Path) -> int:
    """In a process of its own: whatever a recipe does is done to that one."""
    draw, watch = random.Random(seed), Watch(node)
    assert list(section_classes())  # imports open files
    counts: dict[str, int] = {}
    for _ in range(EACH):
        text = recipe(node, draw)
        watch.on = True
        found = tried(text, node)
        watch.on = False
        counts[found] = counts.get(found, 0) + 1
        if watch.seen:
            print(f"{text}\n→ {found}: {watch.seen[:3]}")
            return 1
    print(json.dumps(counts))
    return 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEARCHES))
def test_no_recipe_leads_a_node_out_of_its_folder(seed: int, machine: Path):
    with tempfile.TemporaryDirectory() as home:
        words = [json.dumps(sys.path), str(seed), str(machine)]
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, *words],
            capture_output=True, text=True, timeout=600, check=False,
            env=os.environ | {"HOME": home, "FEDRL_DATA": str(machine.parent / "none")},
        )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
