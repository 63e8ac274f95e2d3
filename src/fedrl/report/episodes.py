"""Episodes of a run's agent for people to read: played once, kept in RUN/episodes.json.

The newest checkpoint plays evaluation tasks, which no client trains on, at the evaluation's
temperature, where that is quick or was asked for. Kept are success by type of task and a few whole
episodes: the best (won in the fewest steps) and the worst (lost, with the most answers that were
not well formed or came again and again). They are played anew when the run has a newer checkpoint.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

from fedrl.config.loading import read_recipe, resolve
from fedrl.core import seeding
from fedrl.core.abilities import GpuUse, SharesGpu
from fedrl.core.atomic_files import write_atomically
from fedrl.core.number_format import si
from fedrl.core.registry import missing_extra
from fedrl.core.types import UserError
from fedrl.llm.transcripts import Episode, from_record, readable_episodes
from fedrl.runs.agents import load_agent
from fedrl.runs.run_dir import RunDir

LOG = logging.getLogger("fedrl")
FILE = "episodes.json"
VERSION = 1
"""Of the file's form: another one is played again."""
TASKS = 64
AT_ONCE = 32
"""Episodes side by side: what the progress line counts in."""
SHOWN = 3
"""Best and worst episodes that are kept, each."""
SEED = 0
QUICK = 50_000_000
"""Parameters up to which a CPU plays without being asked."""
GPU_SECONDS = 10.0
"""That a report waits for room on a GPU where others train: it does without its episodes."""


@dataclass(frozen=True)
class Played:
    """What episodes.json holds; `kinds` maps a type of task to how many were won, of how many."""

    checkpoint: str
    round: int
    seed: int
    split: str
    temperature: float
    kinds: dict[str, tuple[int, int]]
    best: tuple[Episode, ...]
    worst: tuple[Episode, ...]
    of: int = 0  # tasks that there are to be evaluated on; 0 where an older file does not say
    version: int = VERSION


def episodes(path: Path, asked: bool = False) -> Played:
    """The kept episodes of the run in `path`, or fresh ones if there are none of its newest model.

    A UserError says in one line why they are not played here. A model that is slow here plays only
    if that is `asked`.
    """
    found = RunDir(path).checkpoints()
    if not found:
        raise UserError(f"{path} has no checkpoint")
    kept = read_episodes(path / FILE)
    if kept is not None and kept.checkpoint == found[0].name:
        return kept
    console = Console(stderr=True)
    try:
        if not asked and (size := size_on_cpu(path)) > QUICK:
            raise UserError(
                f"the model has {si(size)} parameters, and its episodes take long on a CPU; "
                "`fedrl report --episodes` plays them"
            )
        with console.status("playing episodes for the report …") as status:
            tell = status.update if console.is_terminal else LOG.info
            played = play(path, found[0].name, tell)
    except ModuleNotFoundError as error:
        raise missing_extra(error, "playing episodes", "llm") from error
    try:
        write_atomically(path / FILE, json.dumps(asdict(played), ensure_ascii=False).encode())
    except OSError as error:
        LOG.warning("cannot keep %s: %s", path / FILE, error.strerror)
    return played


def size_on_cpu(path: Path) -> int:
    """Parameters of the run's model, read off its shapes alone; 0 if a GPU would play."""
    settings = resolve(read_recipe(path / "config.toml")).algorithm
    from fedrl.llm.policy import choose_device, skeleton

    if choose_device(settings.device).type != "cpu":
        return 0
    return sum(p.numel() for p in skeleton(settings.model).parameters())


def read_episodes(file: Path) -> Played | None:
    """What the file holds; None if there is none, or one of another form."""
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(data, dict) or data.get("version") != VERSION:
        return None
    for key in ("best", "worst"):
        data[key] = tuple(from_record(kept) for kept in data[key])
    data["kinds"] = {kind: (won, count) for kind, (won, count) in data["kinds"].items()}
    return Played(**data)


def play(path: Path, checkpoint: str, tell: Callable[[str], None]) -> Played:
    """Evaluation tasks with the newest checkpoint; of several states (kind independent) the first.

    The draw of tasks and the answers depend on `SEED` alone.
    """
    algorithm, snapshot = load_agent(path)
    if isinstance(algorithm, SharesGpu):
        algorithm.take_gpu(GpuUse(patience=GPU_SECONDS))
    draw = seeding.generator(SEED, "episodes")
    count = min(TASKS, len(algorithm.eval_tasks))
    chosen = draw.choice(len(algorithm.eval_tasks), count, replace=False)
    tasks = [algorithm.eval_tasks[i] for i in sorted(int(i) for i in chosen)]
    theta, played = snapshot.states[0]["theta"], []
    for start in range(0, count, AT_ONCE):
        part = tasks[start : start + AT_ONCE]
        rollout = algorithm.play_tasks(theta, part, seeding.derive(SEED, "episodes", start))
        played += readable_episodes(part, rollout)
        won = sum(episode.won for episode in played)
        tell(f"{len(played)} of {count} evaluation tasks played for the report, {won} won")
    kinds = {
        kind: (sum(of_kind), len(of_kind))
        for kind in sorted({episode.kind for episode in played})
        if (of_kind := [episode.won for episode in played if episode.kind == kind])
    }
    settings = algorithm.settings
    return Played(
        checkpoint, snapshot.round, SEED, settings.eval_split, settings.eval_temperature, kinds,
        best(played), worst(played), len(algorithm.eval_tasks),
    )  # fmt: skip


def best(played: Sequence[Episode]) -> tuple[Episode, ...]:
    """Won in the fewest steps, of different types where possible."""
    return _varied(sorted((e for e in played if e.won), key=lambda e: len(e.steps)))


def worst(played: Sequence[Episode]) -> tuple[Episode, ...]:
    """Lost, most trouble first, of different types where possible."""
    return _varied(sorted((e for e in played if not e.won), key=lambda e: -e.trouble))


def _varied(ordered: Sequence[Episode]) -> tuple[Episode, ...]:
    """The first of every type, then the others, each in their order; then as many as are shown."""
    first = {episode.kind: episode for episode in reversed(ordered)}
    return tuple(sorted(ordered, key=lambda episode: episode is not first[episode.kind])[:SHOWN])
