"""`fedrl run`: train, or go on with a run that was stopped."""

import re
import shlex
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fedrl.cli.help_text import fitted
from fedrl.core.types import UserError

if TYPE_CHECKING:
    from fedrl.api import Run
    from fedrl.config.schema import Config

RUN_HELP = """\
usage: fedrl run RECIPE [--key VALUE …] [--seeds 0-9] [--dry-run]
       fedrl run --resume RUN [--rounds R]

  RECIPE         a TOML file, or the name of one that comes with fedrl (`fedrl list`)
  --key VALUE    any setting:  --rounds 50 --seed 3 --out DIR --algorithm.beta 0.5
                 --federation.kind centralized --world.length_spread 0.3 --engine workers
  --seeds 0-9    a run for each, one after another; also 0,3,7 and 0-4,8
  --dry-run      print the resolved settings and the size of a round, and stop
  --resume RUN   go on with a run that was stopped; it ends with the numbers it would have had
                 (--without-lost-lines: also if lines of its metrics.jsonl are lost)

`fedrl run RECIPE --help` lists every setting with its meaning and value.
"""

FLAG = re.compile(r"--((?:algorithm|world|federation|partition|privacy|aggregate)\.[a-z_]+) \S")
"""A setting that a line says how to change."""
WITHOUT_LOST = "--without-lost-lines"


def run(argv: list[str]) -> int:
    """Train, or go on with a run that was stopped."""
    words = [w for w in argv if w not in ("--dry-run", "--help", "-h")]
    dry, wants_help = "--dry-run" in argv, "--help" in argv or "-h" in argv
    if words and (words[0] == "--resume" or words[0].startswith("--resume=")):
        if dry or wants_help:
            raise UserError("--dry-run and --help go with a recipe, not with --resume")
        return _resume(words)
    if words and not words[0].startswith("-"):
        if any(w.split("=")[0] == "--resume" for w in words):
            raise UserError("--resume takes no recipe: fedrl run --resume RUN")
        if WITHOUT_LOST in words:
            raise UserError(f"{WITHOUT_LOST} is for a run: fedrl run --resume RUN {WITHOUT_LOST}")
        return _begin(words[0], words[1:], dry, wants_help)
    if wants_help or not words:
        print(fitted(RUN_HELP))
        return 0 if wants_help else 2
    raise UserError(f"the recipe comes first: fedrl run RECIPE {words[0]} …")


def _begin(recipe: str, flags: list[str], dry: bool, wants_help: bool) -> int:
    from fedrl import api
    from fedrl.config.seeds import split_seeds

    seeds, shared = split_seeds(flags)
    configs = [api.configure(recipe, [*shared, *seed]) for seed in seeds]
    config = configs[0]
    if wants_help:
        from fedrl.config.help import show

        show(config, f"fedrl run {recipe}")
        return 0
    if dry:
        dry_run = api.dry_run(config)  # what cannot be is said alone
        print("# the settings; what a run of them needs stands below them\n")
        print(dry_run.toml, end="")
        print(f"\n# {'-' * 30} what a run needs {'-' * 30}")
        for line in dry_run.lines:
            print(f"# {line}")
        if len(configs) > 1:
            print(f"# {len(configs)} runs like this, one after another, of other seeds each")
        return 0
    if _asks_about_invented_films(config):
        print(
            "people are asked, but these films are invented, and nobody can judge them; genuine "
            "ones: fedrl data movielens, and then --world.source movielens",
            file=sys.stderr,
        )
    return _one_by_one(configs, ["fedrl", "run", recipe, *shared])


def _one_by_one(configs: "list[Config]", command: list[str]) -> int:
    """A run per seed. Where one ends early, it is said how those after it are begun."""
    from fedrl import api

    folders: list[Path] = []
    for at, config in enumerate(configs):
        later = ",".join(str(other.seed) for other in configs[at + 1 :])
        rest = f"the seeds after it: {shlex.join([*command, '--seeds', later])}" if later else ""
        try:
            code = _trained(partial(api.run, config), folders)
        except UserError as error:
            raise UserError(f"{error}\n{rest}" if rest else str(error)) from error
        if code:
            if rest:
                print(rest, file=sys.stderr)
            return code
    if len(folders) > 1:
        print(f"all of them: {shlex.join(['fedrl', 'report', *map(str, folders)])}")
    return 0


def _asks_about_invented_films(config: "Config") -> bool:
    live = getattr(config.algorithm, "feedback", "") == "live"
    invented = getattr(config.world, "source", "") == "generated"
    return live and invented and config.world.name == "movielens"


def _resume(words: list[str]) -> int:
    from fedrl import api

    lost = WITHOUT_LOST in words
    path, flags = _value([word for word in words if word != WITHOUT_LOST])
    return _trained(partial(api.resume, Path(path), flags=flags, without_lost_lines=lost), [])


def _trained(train: "Callable[..., Run]", folders: list[Path]) -> int:
    """Train with the lines that tell where the run is, and how one goes on; `folders` gets its."""
    before = len(folders)

    def started(path: Path) -> None:
        folders.append(path)
        print(f"run directory: {path}", flush=True)

    try:
        run = train(progress=True, started=started)
    except KeyboardInterrupt:
        if len(folders) == before:
            raise
        print(f"stopped; go on with: {_again(folders[-1])}", file=sys.stderr)
        return 130
    except UserError as error:
        if len(folders) > before and any((folders[-1] / "checkpoints").glob("round-*")):
            raise UserError(f"{error}\n{_next(str(error), folders[-1])}") from error
        raise
    look = shlex.join(["fedrl", "report", str(run.path)])
    print(f"finished round {run.round}; look at it: {look}")
    _tell_what_waits(run.path)
    return 0


def _tell_what_waits(folder: Path) -> None:
    """Where people are asked, they are what comes next."""
    from fedrl.api.people import questions_waiting

    try:
        if line := questions_waiting(folder):
            print(line)
    except UserError as error:  # of the people's folders: the run is done
        print(error, file=sys.stderr)


def _next(said: str, folder: Path) -> str:
    """What to do after a mistake: a resumed run takes no flags that its numbers depend on."""
    from fedrl.runs.resume_rules import may_change

    cures = FLAG.findall(said)
    if not all(map(may_change, cures)):
        return "start a new run with these flags"
    return f"go on with: {_again(folder)}{', and these flags' if cures else ''}"


def _again(folder: Path) -> str:
    return shlex.join(["fedrl", "run", "--resume", str(folder)])


def _value(words: list[str]) -> tuple[str, list[str]]:
    """`--resume RUN …` or `--resume=RUN …`."""
    _, equals, value = words[0].partition("=")
    if equals:
        return value, words[1:]
    if len(words) < 2:
        raise UserError("--resume needs the run's folder: fedrl run --resume RUN")
    return words[1], words[2:]
