"""Where a run's clients compute: the engine that its settings name, open as long as it trains."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from fedrl.config.build import build_worker, packages
from fedrl.config.schema import Config
from fedrl.core.own_data import Pins
from fedrl.core.registry import missing_extra
from fedrl.core.types import Algorithm
from fedrl.engines.in_process import InProcess, Watch
from fedrl.engines.worker_pool import WorkerPool
from fedrl.federation import round_loop
from fedrl.federation.async_buffer import AsyncBuffer
from fedrl.federation.simulated_clock import SimulatedClock, durations
from fedrl.runs.error_log import ErrorLog
from fedrl.runs.resume_rules import placed
from fedrl.runs.run_dir import KEPT, RunDir


def open_engine(
    config: Config,
    run: RunDir,
    algorithm: Algorithm,
    warn: Callable[[str], None],
    errors: ErrorLog,
    whole: bool = True,
) -> contextlib.AbstractContextManager[round_loop.Engine]:
    """Where the clients run, as long as the context lasts; `whole` is what `preflight.take_gpu`
    said."""
    watch = Watch(errors.failed, texts=bool(packages(config)))
    if config.engine == "workers":
        return WorkerPool(partial(build_worker, placed(config), whole), config.workers, watch)
    if config.engine == "flower":
        name = run.path.resolve().name
        if isinstance(config.world, Pins):  # nodes have data of their own
            config = replace(config, world=config.world.pinned(digest=""))
        engine: contextlib.AbstractContextManager[round_loop.Engine] = flower_driver().open_engine(
            config, name, algorithm, warn, KEPT
        )
        return engine
    return contextlib.nullcontext(InProcess(algorithm, watch))


def asynchronous(config: Config, engine: Any) -> AsyncBuffer:
    """Rounds that wait for a full buffer; where nothing is real, on a clock of their own."""
    if isinstance(engine, InProcess):
        s = config.async_buffer
        engine = SimulatedClock(engine, durations(config.seed, s.times, s.spread, s.jitter))
    return AsyncBuffer(config.async_buffer, engine)


def flower_driver() -> Any:
    """The engine on other machines; its package is imported when it is asked for."""
    try:
        from fedrl.engines.flower import driver
    except ModuleNotFoundError as error:
        raise missing_extra(error, 'engine = "flower"', "flower") from error
    return driver
