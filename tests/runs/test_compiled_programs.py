"""A process that does many runs does not run into the kernel's limit of memory maps."""

from __future__ import annotations

import sys

import pytest

from fedrl.runs import process_pool
from fedrl.runs.compiled_programs import MAPS, release_if_crowded


def maps() -> int:
    return len(MAPS.read_bytes().splitlines())


def test_without_jax_there_is_nothing_to_release(monkeypatch):
    monkeypatch.delitem(sys.modules, "jax", raising=False)
    assert not release_if_crowded(0.0)


@pytest.mark.slow
@pytest.mark.skipif(not MAPS.exists(), reason="the kernel does not list memory maps")
def test_programs_of_earlier_runs_are_let_go_and_compile_again():
    jax = pytest.importorskip("jax", reason="needs the extra classic")
    functions = [jax.jit(lambda x, i=i: (x * i).sum()) for i in range(40)]
    before = maps()
    values = [float(f(jax.numpy.ones(3 + i))) for i, f in enumerate(functions)]
    crowded = maps()
    assert crowded > before + 40
    assert not release_if_crowded(1.0)
    assert maps() >= crowded - 5
    assert release_if_crowded(0.0)
    assert maps() < crowded - 40
    assert [float(f(jax.numpy.ones(3 + i))) for i, f in enumerate(functions)] == values


@pytest.mark.parametrize("work", [lambda: None, lambda: 1 / 0], ids=["done", "failed"])
def test_a_process_of_the_pool_looks_after_every_job(monkeypatch, work):
    looked = []
    monkeypatch.setattr(process_pool, "release_if_crowded", lambda: looked.append(1))
    process_pool.perform(work, None)
    assert looked == [1]
