"""Seconds of compiling: counted once, told by the libraries, and none where nothing compiles."""

from __future__ import annotations

import time

import pytest

from fedrl.core.compile_time import CompileTime, compile_seconds


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
