"""Seconds of compiling: counted once, told by the libraries, and none where nothing compiles."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from fedrl.core.compile_time import CompileTime, compile_seconds

HEARD = """
from functools import partial
import torch
from fedrl.core.compile_time import compile_seconds
before = compile_seconds()
from fedrl.llm import model_setup
torch.compile = partial(torch.compile, backend="eager")  # a kernel compiler may not be installed
from transformers import LlamaConfig, LlamaForCausalLM
sizes = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2)
model = LlamaForCausalLM(LlamaConfig(vocab_size=32, **sizes))
model_setup.compile_layers(model)
vars(model.model)[model_setup.COMPILED](torch.zeros((1, 4), dtype=torch.long))
print("heard" if compile_seconds() > before else "nothing was heard")
"""


def test_compiling_inside_of_compiling_counts_once():
    total = CompileTime()
    total.add(1.0, 2.0)
    total.add(3.0, 4.0)
    assert total.seconds == pytest.approx(2.0)
    total.add(2.5, 6.0)  # ends after the second, and contains it
    assert total.seconds == pytest.approx(4.5)
    total.add(5.5, 7.0)  # another thread's, begun before the end of the last
    assert total.seconds == pytest.approx(5.5)
    total.add(0.0, 8.0)
    assert total.seconds == pytest.approx(8.0)


def compiled_by(call) -> tuple[float, float]:
    """Seconds of compiling, and of all."""
    before, begun = compile_seconds(), time.perf_counter()
    call()
    return compile_seconds() - before, time.perf_counter() - begun


@pytest.mark.slow
def test_jax_tells_and_a_second_call_compiles_nothing():
    jax = pytest.importorskip("jax", reason="needs the extra classic")
    compile_seconds()
    function = jax.jit(lambda x: jax.numpy.sin(x) @ x.T + 0.123)
    values = jax.numpy.ones((7, 7))
    seconds, whole = compiled_by(lambda: function(values).block_until_ready())
    assert 0 < seconds <= whole
    again, _ = compiled_by(lambda: function(values).block_until_ready())
    assert again == 0


@pytest.mark.slow
def test_numba_tells_and_a_second_call_compiles_nothing():
    numba = pytest.importorskip("numba", reason="needs the extra classic")
    compile_seconds()

    @numba.njit
    def inner(x):
        return x + 1

    @numba.njit
    def outer(x):
        return inner(x) * 2

    seconds, whole = compiled_by(lambda: outer(3))
    assert 0 < seconds <= whole
    assert compiled_by(lambda: outer(3))[0] == 0


@pytest.mark.slow
def test_torch_tells_of_both_passes_and_a_second_call_compiles_nothing():
    torch = pytest.importorskip("torch", reason="needs the extra llm")
    function = torch.compile(lambda x: (x.sin() @ x.T + 0.321).sum(), backend="aot_eager")
    compile_seconds()
    values = torch.ones((5, 5), requires_grad=True)
    seconds, whole = compiled_by(lambda: function(values).backward())
    assert 0 < seconds <= whole
    assert compiled_by(lambda: function(values).backward())[0] == 0


@pytest.mark.slow
def test_the_learner_of_a_language_model_is_heard_in_its_first_round():
    """Nobody else has asked for seconds since torch's compiler was imported: in a new process."""
    pytest.importorskip("torch", reason="needs the extra llm")
    done = subprocess.run(
        [sys.executable, "-c", HEARD], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "heard"
