"""From a configuration to a finished run: build the parts, hand them to the round loop."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedrl import aggregate, federation, seeding, tree
from fedrl.algorithms import METHODS
from fedrl.engines.faults import Faulty
from fedrl.engines.inprocess import InProcess
from fedrl.engines.workers import Workers
from fedrl.envs import WORLDS
from fedrl.experiment import config as configs
from fedrl.experiment.config import Config
from fedrl.experiment.progress import Progress
from fedrl.experiment.rundir import RunDir
from fedrl.experiment.sinks import check_sinks, open_sinks
from fedrl.registry import load, look_up, missing_extra
from fedrl.types import Algorithm, UserError


def build_world(config: Config) -> Any:
    name = config.world.name
    module = load(look_up(WORLDS, "world.name", name), "world.name", name)
    return module.World(config.world, config.federation.clients, config.seed)


def build_algorithm(config: Config) -> Algorithm:
    """The method over its world; some clients made to fail if the configuration asks for it."""
    name = config.algorithm.name
    entry = look_up(METHODS, "algorithm.name", name)
    try:
        algorithm = load(entry, "algorithm.name", name).build(
            config.algorithm,
            build_world(config),
            config.rounds,
            federation.pools(config.federation),
        )
    except ModuleNotFoundError as error:
        raise missing_extra(error, f"algorithm.name = {name!r}", entry.extra) from error
    return Faulty(algorithm, config.faults) if config.faults.clients else algorithm


def plan(config: Config) -> list[str]:
    """What a run will move and do, before it does: the size of a model and of a round."""
    algorithm = build_algorithm(config)
    state = algorithm.init(seeding.derive(config.seed, "init"))
    sent = algorithm.broadcast(state, 1)
    specs = algorithm.declare(sent)
    numbers = sum(math.prod(spec.shape) for spec in specs.values())
    up = sum(math.prod(s.shape) * np.dtype(s.dtype).itemsize for s in specs.values())
    clients = sum(
        min(len(group), config.federation.cohort or len(group))
        for group in federation.groups(config.federation)
    )
    return [
        f"a client sends {numbers:,} numbers: {', '.join(specs)}",
        f"a round: {clients} clients, {up * clients:,} bytes up, "
        f"{tree.nbytes(sent) * clients:,} bytes down",
    ]


def start(config: Config) -> RunDir:
    """A new run directory for this configuration."""
    check_sinks(config.track)
    root = Path(config.out) / config.name
    return RunDir.create(
        root,
        config.algorithm.name,
        config.seed,
        configs.to_toml(config),
        checkpoint_every=config.checkpoint_every,
    )


def resume(path: Path, flags: list[str]) -> tuple[Config, RunDir]:
    """An earlier run's directory and configuration; only `--rounds` may be raised."""
    for key, _ in configs.split_flags(flags):
        if key != "rounds":
            raise UserError(
                f"--{key}: a resumed run keeps its settings (only --rounds may grow); "
                "start a new run to change them"
            )
    run = RunDir.open(path)
    config = configs.resolve(configs.read_recipe(path / "config.toml"), flags)
    run.checkpoint_every = config.checkpoint_every
    return config, run


def train(config: Config, run: RunDir, algorithm: Algorithm) -> federation.Snapshot:
    """Run the rounds that are left, with progress, trackers, and the books closed at the end."""
    started = time.monotonic()
    status = "stopped"
    with contextlib.ExitStack() as stack:
        stack.callback(run.close)
        progress = stack.enter_context(Progress(config.rounds))

        def warn(line: str) -> None:
            progress.note(line)
            run.log(line)

        run.warn = warn
        try:
            engine: federation.Engine = InProcess(algorithm)
            if config.engine == "workers":
                build = partial(build_algorithm, config)
                engine = stack.enter_context(Workers(build, config.workers))
            sinks = open_sinks(config.track, run.path, configs.as_dict(config))
            for sink in sinks:
                stack.callback(sink.close)
            observers = [progress.round_done, lambda done: run.log(progress.line(done))]
            observers += [partial(_track, sink) for sink in sinks]
            last = federation.run(
                config.federation,
                algorithm,
                engine,
                aggregate.get(config.aggregate.name),
                run,
                seed=config.seed,
                rounds=config.rounds,
                eval_every=config.eval_every,
                observers=observers,
                warn=warn,
            )
            status = "finished"
            return last
        except OSError as error:
            raise UserError(
                f"cannot write to {run.path}: {error.strerror or error}; the last checkpoint is "
                f"whole: fedrl run --resume {run.path}"
            ) from error
        finally:
            failure = sys.exc_info()[1]
            if failure is not None:
                with contextlib.suppress(OSError):
                    run.log(f"stopped: {type(failure).__name__} {failure}")
            with contextlib.suppress(OSError):
                run.finish(status, time.monotonic() - started)


def _track(sink: Any, done: federation.Round) -> None:
    sink.log(done.round, done.metrics)
