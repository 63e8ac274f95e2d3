"""numba's cache never gives code that was compiled from older sources, and does give the rest.

numba looks for changes in a function's own file only. A cached function that reads another file
must therefore have those files' fingerprint in its closure, and nothing there that differs between
processes, or it is compiled anew in each of them.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import pytest

pytest.importorskip("numba", reason="the kernels are compiled by numba (fedrl[classic])")

from numba.core.dispatcher import Dispatcher

import fedrl
from fedrl.algorithms import splitmix64
from fedrl.algorithms.momentum.local_steps import tabular_kernels, tabular_sampling
from fedrl.algorithms.qhd import episodes as qhd_episodes
from fedrl.algorithms.qhd import q_learning_kernels, td_kernels
from fedrl.algorithms.qhd.dqn import episodes as dqn_episodes
from fedrl.algorithms.qhd.dqn import network as dqn
from fedrl.core.numba_cache import fingerprint
from fedrl.envs.discrete import classic_kernels

MODULES = (
    classic_kernels, dqn, dqn_episodes, td_kernels, tabular_kernels, tabular_sampling,
    qhd_episodes, q_learning_kernels, splitmix64,
)  # fmt: skip
SOURCE = Path(fedrl.__file__).parent


def taken(module: ModuleType) -> dict[str, ModuleType]:
    """Names that a module has from others of this package, and from which."""
    found = {}
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fedrl"):
            origin = importlib.import_module(node.module)
            for alias in node.names:
                value = getattr(origin, alias.name)
                name = alias.asname or alias.name
                found[name] = value if isinstance(value, ModuleType) else origin
    return found


def names(code: CodeType) -> set[str]:
    return set(code.co_names).union(*(names(c) for c in code.co_consts if isinstance(c, CodeType)))


def reads(dispatcher: Dispatcher, seen: set[Dispatcher]) -> set[ModuleType]:
    """All modules whose text is in the compiled function: its own, and those of what it calls."""
    function = dispatcher.py_func
    module = inspect.getmodule(function)
    used, origins = names(function.__code__), taken(module)
    found = {module} | {origins[name] for name in used if name in origins}
    places = [module, *(value for value in found if value is not module)]
    for name in used:
        for place in places:
            value = getattr(place, name, None)
            if isinstance(value, Dispatcher) and value not in seen:
                seen.add(value)
                found |= reads(value, seen)
    return found


def cached() -> Iterator[tuple[str, ModuleType, Dispatcher]]:
    for module in MODULES:
        for name, value in vars(module).items():
            own = isinstance(value, Dispatcher) and inspect.getmodule(value.py_func) is module
            if own and value.stats.cache_path is not None:
                yield f"{module.__name__}.{name}", module, value


CACHED = list(cached())


def test_the_entries_are_cached():
    """What a run compiles: without a cache it would wait some seconds in every process."""
    entries = {
        qhd_episodes.compiled_episodes, qhd_episodes.first_action, qhd_episodes.next_action,
        dqn_episodes.compiled_episodes, dqn_episodes.first_action, dqn_episodes.next_action,
        dqn.distill, td_kernels.td_update, tabular_kernels.run, tabular_kernels.run_chunk,
        tabular_sampling.path,
    }  # fmt: skip
    assert entries <= {dispatcher for _, _, dispatcher in CACHED}


@pytest.mark.parametrize(
    ("module", "dispatcher"), [case[1:] for case in CACHED], ids=[case[0] for case in CACHED]
)
def test_a_cached_function_knows_its_sources(module, dispatcher):
    others = reads(dispatcher, {dispatcher}) - {module}
    closure = inspect.getclosurevars(dispatcher.py_func).nonlocals
    if others:
        assert others <= set(module.SOURCES)
        assert closure == {"sources": fingerprint(*module.SOURCES)}
    else:
        assert closure == {}


SCRIPT = """
import json, sys, zlib
import numpy as np
from fedrl.algorithms.momentum.algorithm import Momentum
from fedrl.algorithms.momentum.settings import Settings
from fedrl.algorithms.momentum.local_steps import tabular_kernels
from fedrl.algorithms.qhd.dqn import network as dqn, episodes as dqn_episodes
from fedrl.algorithms.qhd import episodes as qhd_episodes, encoders
from fedrl.algorithms.qhd import td_kernels
from fedrl.algorithms.qhd.q_learning_kernels import Rules
from fedrl.core.types import Job
from fedrl.envs.control import random_mdp
from fedrl.envs.discrete import worlds as discrete

world = discrete.World(discrete.Settings("cartpole-v1"), 1, 0)
blocks = td_kernels.blocks(encoders.lanes(encoders.draw(4, 30, 0.5, 1)))
one = td_kernels.fresh(2, 30, 4, 100, 5)
rules = Rules(0.97, 0.2, 8, 1, 0, 2, 0.9, 0.05, 60)
qhd_episodes.run_episodes(world, 9, blocks, one, rules, 0)
shape = (4, 6, 5, 2)
other = dqn.fresh(shape, dqn.draw_weights(shape, 1), 100, 5)
deep = Rules(0.97, 0.01, 8, 1, 0, 2, 0.9, 0.05, 60, huber=1.0)
dqn_episodes.run_episodes(world, 9, shape, other, deep, 0)
mdp = random_mdp.World(random_mdp.Settings(horizon=20), 1, 0)
momentum = Momentum(Settings(beta=0.5, local_steps=2), mdp, 1, [[0]])
table = momentum.local(Job(0, momentum.broadcast(momentum.init(0), 0), None, 3)).update["logits"]
entries = (
    qhd_episodes.compiled_episodes, dqn_episodes.compiled_episodes, tabular_kernels.run
)
said = {"hits": [sum(entry.stats.cache_hits.values()) for entry in entries]}
said["table"] = zlib.crc32(table.tobytes())
for name, learner in (("qhd", one), ("dqn", other)):
    said[name] = [zlib.crc32(learner.online.tobytes()), zlib.crc32(learner.states.tobytes())]
    said[name + " counters"] = learner.counters.tolist()
print(json.dumps(said))
"""


@pytest.mark.slow
def test_a_changed_source_is_compiled_anew(tmp_path):
    """The package's text is changed under a warm cache, one file after the other."""
    package = tmp_path / "fedrl"
    shutil.copytree(SOURCE, package, ignore=shutil.ignore_patterns("__pycache__"))
    environment = {
        **os.environ,
        "PYTHONPATH": str(tmp_path),
        "PYTHONDONTWRITEBYTECODE": "1",
        "NUMBA_CACHE_DIR": str(tmp_path / "cache"),
        "NUMBA_OPT": "1",  # each change compiles anew, and speed is not what is asked here
    }

    def run() -> dict[str, Any]:
        command = [sys.executable, "-c", SCRIPT]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=300, check=True
        )
        return json.loads(done.stdout)

    def change(path: str, old: str, new: str) -> dict[str, Any]:
        text = (package / path).read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{path} no longer says {old!r}"
        (package / path).write_text(text.replace(old, new), encoding="utf-8")
        return run()

    first, again = run(), run()
    assert first["hits"] == [0, 0, 0]
    assert again == first | {"hits": [1, 1, 1]}

    heavier = change("envs/discrete/classic_kernels.py", "0.02, 9.8", "0.02, 9.9")
    assert heavier["table"] == first["table"]
    assert heavier["hits"] == [0, 0, 1]
    assert heavier["qhd"] != first["qhd"]
    assert heavier["dqn"] != first["dqn"]

    old = "SIZE, HEAD, STEPS, UPDATES, EPISODES, COUNTERS = 0, 1, 2, 3, 4, 5, 6, 7"
    new = "SIZE, HEAD, STEPS, UPDATES, EPISODES, COUNTERS = 0, 1, 4, 5, 6, 2, 3, 7"
    moved = change("algorithms/qhd/q_learning_kernels.py", old, new)
    for name in ("qhd", "dqn"):
        assert moved[name] == heavier[name], "the same numbers, counted in other places"
        before, after = heavier[f"{name} counters"], moved[f"{name} counters"]
        assert after == [before[i] for i in (0, 1, 5, 6, 2, 3, 4)]

    drawn = change("algorithms/splitmix64.py", "np.uint64(27)", "np.uint64(28)")
    assert drawn["table"] != moved["table"]
    assert drawn["qhd"] != moved["qhd"]
    assert drawn["dqn"] != moved["dqn"]

    old = "FIRST_DECAY, SECOND_DECAY, TINY = 0.9"
    slower = change("algorithms/qhd/dqn/network.py", old, old.replace("0.9", "0.8"))
    assert slower["qhd"] == drawn["qhd"]
    assert slower["dqn"] != drawn["dqn"]

    path, old = "algorithms/momentum/local_steps/tabular_sampling.py", "FIRST, HEAD = 0, 1, 2, 3"
    walked = change(path, old, old.replace("1, 2", "2, 1"))
    assert walked["table"] != slower["table"]
    assert walked["hits"] == [1, 1, 0]
