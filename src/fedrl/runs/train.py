"""From a configuration to a finished run: build the parts, hand them to the round loop."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from fedrl.aggregation import rules
from fedrl.config.build import (
    build_algorithm,
    build_clients,
    first_broadcast,
    notes,
    packages,
)
from fedrl.config.flag_parsing import split_flags
from fedrl.config.loading import as_dict, dotted, read_recipe, resolve, to_toml
from fedrl.config.schema import Config
from fedrl.core import tree
from fedrl.core.abilities import ShowsEpisodes
from fedrl.core.number_format import data_size
from fedrl.core.registry import label
from fedrl.core.types import Algorithm, Tables, UserError
from fedrl.engines.flower import connection as connections
from fedrl.engines.in_process import one_line
from fedrl.federation import round_loop
from fedrl.federation.client_sampling import first_cohort
from fedrl.runs import client_names, coordinator
from fedrl.runs.absent_clients import absent_clients
from fedrl.runs.client_names import folder_names
from fedrl.runs.compiled_programs import release_if_crowded
from fedrl.runs.error_log import ErrorLog
from fedrl.runs.evaluated_tasks import KEY, evaluated_tasks, few_tasks
from fedrl.runs.failed_clients import FailureReasons
from fedrl.runs.interrupt import Interrupt
from fedrl.runs.open_engine import asynchronous, open_engine
from fedrl.runs.preflight import (
    check_connection,
    check_model,
    check_own_data,
    check_world,
    clients_at_a_time,
    own_data,
    take_gpu,
)
from fedrl.runs.private_run import check_books, check_packages, mechanism, outlook, secret_cohorts
from fedrl.runs.progress import NoSignal, StartUp, open_progress
from fedrl.runs.read import flatten
from fedrl.runs.resume_rules import (
    MAY_CHANGE,
    kept_settings,
    may_change,
    placed,
    require_one_run,
    require_same,
)
from fedrl.runs.run_dir import RunDir
from fedrl.runs.tracking import check_sinks, open_sinks

LOG = logging.getLogger("fedrl")

SHOWN = 8
"""Names of tensors that a plan lists; more are counted."""


def plan(config: Config) -> list[str]:
    """What a run will move and do, before it does: the size of a model and of a round."""
    algorithm = build_algorithm(config)
    check_world(config, algorithm)
    sent, needs = first_broadcast(config, algorithm)
    specs = algorithm.declare(sent)
    numbers = sum(math.prod(spec.shape) for spec in specs.values())
    up = sum(math.prod(s.shape) * np.dtype(s.dtype).itemsize for s in specs.values())
    clients = config.async_buffer.size or clients_at_a_time(config)
    names = ", ".join(specs) if len(specs) <= SHOWN else f"{len(specs)} tensors"
    return [
        f"a client sends {numbers:,} numbers: {names}",
        f"a round: {clients} clients, {data_size(up * clients)} up, "
        f"{data_size(tree.nbytes(sent) * clients)} down",
        *outlook(config, algorithm),
        *needs,
        *own_data(config, algorithm),
        *notes(config),
    ]


def start(config: Config, algorithm: Algorithm | None = None) -> RunDir:
    """A new run directory for this configuration; what is missing is said before there is one."""
    check_sinks(config.track)
    check_packages(config)
    check_connection(config)
    if algorithm is not None:
        build_clients(config, algorithm)  # an attack that it cannot show
        check_world(config, algorithm)
        check_model(config, algorithm)
        check_own_data(config, algorithm)
        for line in own_data(config, algorithm):
            LOG.info("%s", line)
    for line in notes(config):
        LOG.info("note: %s", line)
    root = Path(config.out) / config.name
    return RunDir.create(
        root,
        label(config.algorithm.name),
        config.seed,
        to_toml(placed(config)),
        private=secret_cohorts(config),
    )


def resume(
    path: Path,
    flags: Sequence[str] = (),
    without_lost_lines: bool = False,
    settings: Tables | None = None,
) -> tuple[Config, RunDir]:
    """An earlier run's directory and configuration, with what may change changed.

    No file is changed before `train`: what is refused here or in building stays as it was.
    """
    asked = [f"--{key}" for key, _ in split_flags(flags)] + [
        key for key, _ in dotted(settings or {})
    ]
    for said in asked:
        if not may_change(said.removeprefix("--")):
            raise UserError(
                f"{said}: a resumed run keeps what its numbers depend on; start a new run to "
                f"change it (--rounds may grow, and {', '.join(sorted(MAY_CHANGE - {'rounds'}))})"
            )
    path = path.parent if path.name == "config.toml" else path
    require_one_run(path)
    before = resolve(read_recipe(path / "config.toml"))
    config = resolve(as_dict(before), flags, settings)
    if config.engine != before.engine and "flower" in (config.engine, before.engine):
        raise UserError(
            f"--engine: clients keep their states themselves on flower and in the checkpoint "
            f"elsewhere; this run goes on with {before.engine}"
        )
    if config.engine != before.engine and config.async_buffer.size:
        raise UserError(
            "--engine: the clients' clock is another one on another engine; this run goes on with "
            f"{before.engine}"
        )
    if config.rounds < before.rounds:
        raise UserError(f"--rounds {config.rounds}: it has {before.rounds}, and may only grow")
    check_sinks(config.track)
    check_packages(config)
    check_connection(config)
    if "connection" not in {said.removeprefix("--") for said in asked}:
        coordinator.require_same(config, path)
    run = RunDir.open(path)
    try:
        found = run.recall(without_lost_lines)
        require_same(before, found.settings, path)
        check_books(config, path, {} if found.snapshot is None else found.snapshot.totals)
    except (UserError, OSError):
        run.close()
        raise
    run.begun_for = before.rounds if config.rounds > before.rounds else None
    run.pending = to_toml(replace(config, packages=packages(config)))
    return config, run


def train(
    config: Config,
    run: RunDir,
    algorithm: Algorithm,
    callbacks: Iterable[Callable[[round_loop.Round], object]] = (),
    progress: bool | None = True,
) -> round_loop.Snapshot:
    """Run the rounds that are left, with progress, trackers, and the books closed at the end.

    A callback that returns False stops the run after its round.
    """
    started = time.monotonic()
    status, call_back, start_up = "stopped", Callbacks(callbacks), StartUp(started)
    with contextlib.ExitStack() as stack:
        stack.callback(release_if_crowded)  # a script may do a hundred runs
        stack.callback(run.close)
        shown = stack.enter_context(open_progress(progress, flatten(as_dict(config))))

        def warn(line: str) -> None:
            shown.note(line)
            with contextlib.suppress(UserError):  # of a full disk
                run.say(line)

        run.warn = warn
        run.settings = kept_settings(config)
        run.begin()
        whose = coordinator.connected(config)
        if whose and not run.checkpoints():  # later it is whose nodes have answered
            run.note_meta(coordinator.KEY, whose)
        if config.packages and config.packages != (now := packages(config)):
            warn(
                f"its code has changed: it began with {', '.join(config.packages)} and goes on "
                f"with {', '.join(now) or 'fedrl alone'}; the numbers may differ"
            )
        if secret_cohorts(config):
            run.make_private()
        if count := evaluated_tasks(algorithm):
            run.note_meta(KEY, count)
        if names := folder_names(config):
            run.note_meta(client_names.KEY, names)
        if line := few_tasks(count):
            warn(line)
        if isinstance(algorithm, ShowsEpisodes):
            algorithm.keep_episodes = run.keep_episodes
        whole = take_gpu(config, algorithm)
        algorithm = build_clients(config, algorithm)
        errors = ErrorLog(run.say, shown.note, names)
        engine = stack.enter_context(open_engine(config, run, algorithm, warn, errors, whole))
        interrupt = stack.enter_context(Interrupt())
        if isinstance(engine, Prepares):
            engine.prepare(first_cohort(config.federation, config.seed, 1))
        sinks = open_sinks(config.track, run.path, as_dict(config))
        for sink in sinks:
            stack.callback(sink.close)
        observers: list[Callable[[round_loop.Round], None]] = [
            start_up,
            shown.round_done,
            lambda done: run.say(shown.line(done)),
            # who was asked is a secret where ε counts on it
            *([] if secret_cohorts(config) else [FailureReasons(warn, engine, names)]),
            NoSignal(warn),
            *(partial(_track, sink, warn) for sink in sinks),
            interrupt.check,
            call_back,
        ]
        if whose:
            observers.insert(0, lambda done: run.note_meta(coordinator.KEY, whose))
        try:
            last = round_loop.run(
                config.federation,
                algorithm,
                engine,
                rules.build(config.rule, config.combined, algorithm),
                run,
                seed=config.seed,
                rounds=config.rounds,
                eval_every=config.eval_every,
                checkpoint_every=config.checkpoint_every,
                observers=observers,
                warn=warn,
                privacy=mechanism(config, algorithm, run.path),
                robust_metrics=config.rule.robust,
                exchange=asynchronous(config, engine) if config.async_buffer.size else None,
            )
            status = "stopped" if call_back.stopped else "finished"
            if not secret_cohorts(config):
                for line in absent_clients(run.path, last.round, engine, names):
                    warn(line)
            if isinstance(engine, SendsRecipes):
                sign(config, run, engine.recipe_digest, warn)
            return last
        except BaseException as error:
            with contextlib.suppress(UserError):
                run.say(f"stopped: {type(error).__name__} {error}")
                errors.stopped(error)
            raise
        finally:
            with contextlib.suppress(OSError):
                run.finish(status, time.monotonic() - started, start_up.seconds)


@runtime_checkable
class Prepares(Protocol):
    """An engine whose clients can be asked, before round 1, whether they will be able to work."""

    def prepare(self, clients: Sequence[int]) -> None: ...


@runtime_checkable
class SendsRecipes(Protocol):
    """An engine of clients elsewhere, who know a run by the digest of what they were sent."""

    @property
    def recipe_digest(self) -> str: ...


def sign(config: Config, run: RunDir, recipe: str, warn: Callable[[str], None]) -> None:
    """The last checkpoint, where its coordinator has a key; without one, the run is no worse."""
    from fedrl.core.signatures import Signer
    from fedrl.runs.signing import sign_checkpoint

    try:
        coordinator.require_same(config, run.path)  # its name may lead elsewhere by now
        path = connections.find(config.connection).signing_key
        if path is not None:
            sign_checkpoint(Signer.load(path), run, recipe)
    except (UserError, OSError) as error:
        warn(f"its checkpoint is not signed: {error}")


class Callbacks:
    """The callers' callbacks as one observer of rounds."""

    def __init__(self, callbacks: Iterable[Callable[[round_loop.Round], object]]) -> None:
        self.callbacks = list(callbacks)
        self.stopped = False

    def __call__(self, done: round_loop.Round) -> None:
        verdicts = [call(done) for call in self.callbacks]  # all are told of the last round, too
        self.stopped = any(verdict is False for verdict in verdicts)
        if self.stopped:
            raise round_loop.StopRun


def _track(sink: Any, warn: Callable[[str], None], done: round_loop.Round) -> None:
    """A tracker's trouble is not the run's."""
    try:
        sink.log(done.round, done.metrics)
    except Exception as error:  # noqa: BLE001 - third-party code, network included
        warn(f"tracking failed in round {done.round}: {one_line(error)}")
