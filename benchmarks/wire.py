"""Rounds of language models over the wire: bytes, seconds, and the peak memory of every process.

python benchmarks/wire.py [SIZE …] [--precision FORM …] [--clients N] [--rounds N] [--quick]

A driver, a SuperLink, and nodes with their SuperNodes and workers are processes of one machine,
with TLS and keys. Clients send back as much as they get and compute nothing. The tensors have the
names and shapes of the models; they are float32, or what SIZE@DTYPE says: `1.5b@float16`.

Memory is the most that a process had resident (VmHWM, cleared before) above what it has in rounds
of 1 MB, as a multiple of the model's bytes in the process; the driver's model, a worker's broadcast
and its update are in there. Seconds of the processor are all processes' together.

Run as a program with the words of `fedrl flower node` it is such a node.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent))  # nodes are started with `python -P`

import harness
import numpy as np

from fedrl.core import seeding
from fedrl.core.types import Job, Result, Spec, Tensors

if TYPE_CHECKING:
    from fedrl.engines.flower.engine import FlowerEngine
    from fedrl.engines.flower.node_plan import Plan

Shapes = dict[str, tuple[int, ...]]
PARTS = ("driver", "SuperLink", "SuperNode", "node", "worker")


def llama(layers: int, hidden: int, inner: int, keys: int, vocabulary: int, bias: bool) -> Shapes:
    """All parameters of a decoder whose embedding is its output layer, too."""
    shapes: Shapes = {"embed_tokens.weight": (vocabulary, hidden), "norm.weight": (hidden,)}
    for layer in range(layers):
        for name, shape in linear(hidden, inner, keys).items():
            shapes[f"layers.{layer}.{name}.weight"] = shape
            if bias and name[0] in "qkv":
                shapes[f"layers.{layer}.{name}.bias"] = shape[:1]
        for name in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"layers.{layer}.{name}.weight"] = (hidden,)
    return shapes


def linear(hidden: int, inner: int, keys: int) -> Shapes:
    """[out, in] of a layer's matrices."""
    return {
        "q_proj": (hidden, hidden), "k_proj": (keys, hidden), "v_proj": (keys, hidden),
        "o_proj": (hidden, hidden), "gate_proj": (inner, hidden), "up_proj": (inner, hidden),
        "down_proj": (hidden, inner),
    }  # fmt: skip


def adapter(layers: int, hidden: int, inner: int, keys: int, rank: int) -> Shapes:
    return {
        f"layers.{layer}.{name}.lora_{half}": (rank, into) if half == "A" else (out, rank)
        for layer in range(layers)
        for name, (out, into) in linear(hidden, inner, keys).items()
        for half in "AB"
    }


MODELS: dict[str, Shapes] = {
    "1mb": {"x": (250_000,)},
    "quick": llama(4, 576, 1536, 192, 4096, False),
    "1.5b-lora": adapter(28, 1536, 8960, 256, 16),
    "135m": llama(30, 576, 1536, 192, 49152, False),
    "1.5b": llama(28, 1536, 8960, 256, 151936, True),
}
"""SmolLM2-135M, Qwen2.5-1.5B and its LoRA adapter of rank 16."""


def tensors(size: str, dtype: str = "float32") -> Tensors:
    """Random numbers, of which large tensors are repetitions: drawing a billion takes a minute."""
    rng = np.random.default_rng(0)
    some = (rng.standard_normal(1_000_003, np.float32) * np.float32(0.02)).astype(dtype)
    sent: Tensors = {name: np.empty(shape, dtype) for name, shape in MODELS[size].items()}
    for x in sent.values():
        flat = x.reshape(-1)
        for start in range(0, flat.size, some.size):
            flat[start : start + some.size] = some[: flat.size - start]
    return sent


class Echo:
    """Sends the broadcast back, one larger, and keeps nothing of it."""

    initial_exchange = False
    reports: frozenset[str] = frozenset()

    def declare(self, broadcast: Tensors) -> dict[str, Spec]:
        return {name: Spec(x.shape, str(x.dtype)) for name, x in broadcast.items()}

    def local(self, job: Job) -> Result:
        for x in job.broadcast.values():
            x += 1
        return Result(job.client, job.broadcast)


# Processes


def members(federation: Any) -> dict[str, list[int]]:
    """Numbers of all processes, by what they are."""
    found: dict[str, list[int]] = {"driver": [os.getpid()], "SuperLink": [federation.link.pid]}
    found["node"] = [process.pid for process in federation.nodes.values()]
    for child in (c for node in found["node"] for c in children(node)):
        words = Path(f"/proc/{child}/cmdline").read_bytes()
        if b"resource_tracker" not in words:
            kind = "SuperNode" if b"--superlink" in words else "worker"
            found.setdefault(kind, []).append(child)
    return found


def children(parent: int) -> list[int]:
    threads = Path(f"/proc/{parent}/task").iterdir()
    return [int(n) for thread in threads for n in (thread / "children").read_text().split()]


def peak(process: int) -> float:
    """Most bytes resident since `clear`."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) * 1024


def clear(processes: dict[str, list[int]]) -> None:
    for process in itertools.chain(*processes.values()):
        Path(f"/proc/{process}/clear_refs").write_text("5")


def processor(process: int) -> float:
    words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def peaks(processes: dict[str, list[int]]) -> dict[str, float]:
    """By what they are, of the largest."""
    return {kind: max(map(peak, some)) for kind, some in processes.items()}


# A round


def one_round(engine: FlowerEngine, sent: Tensors, clients: int, number: int) -> float:
    """Seconds; each answer is looked at as it comes, as a mean would, and dropped."""
    for x in sent.values():
        x += np.asarray(number % 3 - 1, x.dtype)  # equal objects would be carried once
        x.reshape(-1)[0] = number
    start = time.perf_counter()
    seeds = [seeding.local(0, number, 0, client) for client in range(clients)]
    jobs = [Job(client, sent, None, seed, number) for client, seed in enumerate(seeds)]
    for outcome in engine.run(jobs, 0.0):
        assert isinstance(outcome, Result), outcome
        first = next(iter(sent))
        assert outcome.update[first].reshape(-1)[0] > number
        del outcome
    return time.perf_counter() - start


def measure(
    size: str, precision: str, clients: int, rounds: int, piece_mb: float
) -> harness.Results:
    """In a process of its own, whose memory no other measurement has touched."""
    from fedrl.config.flower import Settings
    from fedrl.engines.flower.connection import FOLDER, find
    from fedrl.engines.flower.engine import FlowerEngine, Recipe
    from fedrl.engines.flower.local_federation import LocalFederation

    model, _, dtype = size.partition("@")
    results, form = harness.Results(), f"{precision} {piece_mb}"
    settings: Any = Settings(precision=precision, piece_mb=piece_mb)  # type: ignore[arg-type]
    with tempfile.TemporaryDirectory() as folder:
        os.environ[FOLDER] = folder
        program = [str(Path(__file__).resolve())]
        with LocalFederation(Path(folder), clients, name="wire", program=program) as federation:
            echo: Any = Echo()
            engine = FlowerEngine(echo, Recipe("wire", form, 2), find("wire"), settings, print)
            with engine:
                small = tensors("1mb")
                one_round(engine, small, clients, 1)
                everybody = members(federation)
                clear(everybody)
                one_round(engine, small, clients, 2)
                idle = peaks(everybody)
                sent = tensors(model, dtype or "float32")
                held = sum(x.nbytes for x in sent.values())
                clear(everybody)
                down, up = engine.calls.bytes_sent, engine.calls.bytes_received
                work = {k: sum(map(processor, some)) for k, some in everybody.items()}
                seconds = [one_round(engine, sent, clients, 3 + n) for n in range(rounds)]
                work = {k: sum(map(processor, some)) - work[k] for k, some in everybody.items()}
                most = peaks(everybody)
                down, up = engine.calls.bytes_sent - down, engine.calls.bytes_received - up
    name, best = f"wire/{size}/{precision}", min(seconds)
    moved, each = (down + up) / rounds, ", ".join(f"{s:.1f}" for s in seconds)
    ways = f"down {down / rounds / 1e6:,.0f} MB, up {up / rounds / 1e6:,.0f} MB"
    print(
        f"{size} ({held / 1e6:,.0f} MB), {precision}, {clients} client(s): {ways}; "
        f"{best:.1f} s ({each}), {moved / best / 1e6:.0f} MB/s; "
        f"processor {sum(work.values()) / rounds:.1f} s a round"
    )
    results.add(f"{name}/down", down / rounds, "bytes")
    results.add(f"{name}/up", up / rounds, "bytes")
    results.add(f"{name}/seconds", best, "s")
    results.add(f"{name}/rate", moved / best / 1e6, "MB/s")
    results.add(f"{name}/processor", sum(work.values()) / rounds, "s")
    for kind in PARTS:
        above = most[kind] - idle[kind]
        print(
            f"    {kind:10} {above / 1e6:8,.0f} MB above {idle[kind] / 1e6:4,.0f}: "
            f"{above / held:5.2f} of the model; processor {work[kind] / rounds:.1f} s",
            flush=True,
        )
        results.add(f"{name}/memory/{kind}", above / held, "of the model")
    return results


def main() -> None:
    parser = harness.options(__doc__ or "")
    parser.add_argument("sizes", nargs="*", metavar="SIZE", help=", ".join(MODELS))
    parser.add_argument("--precision", nargs="*", default=["float32"], metavar="FORM")
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--piece-mb", type=float, default=4.0)
    asked = parser.parse_args()
    sizes = asked.sizes or (["quick"] if asked.quick else ["1.5b-lora", "135m"])
    if unknown := {size.partition("@")[0] for size in sizes} - set(MODELS):
        parser.error(f"no size {', '.join(unknown)}; choose from {', '.join(MODELS)}")
    harness.header("Rounds of language models over the wire")
    results = harness.Results()
    for size in sizes:
        for precision in asked.precision:
            rounds = 1 if asked.quick else asked.rounds
            words = size, precision, asked.clients, rounds, asked.piece_mb
            with ProcessPoolExecutor(1, get_context("spawn")) as alone:
                results.values |= alone.submit(measure, *words).result().values
    results.finish(asked.json)


# A node


def plan(recipe: str) -> Plan:
    from fedrl.engines.flower.node_plan import Plan

    form: Any
    form, piece_mb = recipe.split()
    return Plan(partial(Echo), form, int(float(piece_mb) * 1e6), True)  # type: ignore[arg-type]


def node() -> None:
    from fedrl.engines.flower.node import NodeClient
    from fedrl.engines.flower.supernode import SuperNode, serve

    parser = argparse.ArgumentParser()
    for flag in ("--client", "--superlink", "--folder", "--ca", "--key"):
        parser.add_argument(flag)
    parser.add_argument("--poll", type=float)
    asked = parser.parse_args()
    client = NodeClient(int(asked.client), Path(asked.folder), plan)
    serve(SuperNode(asked.superlink, Path(asked.ca), Path(asked.key), asked.poll), client)


if __name__ == "__main__":
    node() if "--superlink" in sys.argv else main()
