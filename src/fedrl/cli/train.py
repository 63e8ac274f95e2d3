"""The commands that train and show results: run, list, report, eval, reproduce."""

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from fedrl.cli.parser import Parser
from fedrl.core.types import UserError

if TYPE_CHECKING:
    from fedrl.config.schema import Config

RUN_HELP = """\
usage: fedrl run RECIPE [--key VALUE …] [--dry-run]
       fedrl run --resume RUN [--rounds R]

  RECIPE         a TOML file, or the name of one that comes with fedrl (`fedrl list`)
  --key VALUE    any setting:  --rounds 50 --seed 3 --out DIR --algorithm.beta 0.5
                 --federation.kind centralized --world.length_spread 0.3 --engine workers
  --dry-run      print the resolved settings and the size of a round, and stop
  --resume RUN   go on with a run that was stopped; it ends with the numbers it would have had
                 (--without-lost-lines: also if lines of its metrics.jsonl are lost)

`fedrl run RECIPE --help` lists every setting with its meaning and value.
"""

WITHOUT_LOST = "--without-lost-lines"

REPORT = "One page with curves and tables; runs that differ only in their seed form a band."
EVAL = "Evaluate a run's last checkpoint on fresh episodes (tabular worlds: exactly), by client."
REPRODUCE = (
    "Regenerate a paper's tables and figures; stopped, it goes on where it was. robustness is no "
    "paper: it measures what fedrl's own rules of aggregation are worth against clients that lie."
)


def run(argv: list[str]) -> int:
    """Train, or go on with a run that was stopped."""
    from fedrl.config.build import build_algorithm
    from fedrl.config.loading import find_recipe, read_recipe, require_names, resolve
    from fedrl.runs import train as runs

    words = [w for w in argv if w not in ("--dry-run", "--help", "-h")]
    dry, wants_help = "--dry-run" in argv, "--help" in argv or "-h" in argv
    if words and (words[0] == "--resume" or words[0].startswith("--resume=")):
        if dry or wants_help:
            raise UserError("--dry-run and --help go with a recipe, not with --resume")
        without = WITHOUT_LOST in words
        head, flags = _value([word for word in words if word != WITHOUT_LOST])
        config, directory = runs.resume(Path(head), flags, without)
        try:
            algorithm = build_algorithm(config)
            runs.check_model(config, algorithm)
        except UserError:
            directory.close()
            raise
    elif words and not words[0].startswith("-"):
        if any(w.split("=")[0] == "--resume" for w in words):
            raise UserError("--resume takes no recipe: fedrl run --resume RUN")
        if WITHOUT_LOST in words:
            raise UserError(f"{WITHOUT_LOST} is for a run: fedrl run --resume RUN {WITHOUT_LOST}")
        recipe = read_recipe(find_recipe(words[0]))
        require_names(recipe)
        config = resolve(recipe, words[1:])
        if wants_help:
            from fedrl.config.help import show

            show(config, f"fedrl run {words[0]}")
            return 0
        if dry:
            return _dry_run(config)
        algorithm = build_algorithm(config)  # what cannot be built leaves no folder behind
        directory = runs.start(config, algorithm)
    elif wants_help or not words:
        print(RUN_HELP, end="")
        return 0 if wants_help else 2
    else:
        raise UserError(f"the recipe comes first: fedrl run RECIPE {words[0]} …")
    again = shlex.join(["fedrl", "run", "--resume", str(directory.path)])
    look = shlex.join(["fedrl", "report", str(directory.path)])
    print(f"run directory: {directory.path}", flush=True)
    try:
        last = runs.train(config, directory, algorithm)
    except KeyboardInterrupt:
        print(f"stopped; go on with: {again}", file=sys.stderr)
        return 130
    except UserError as error:
        if directory.checkpoints():
            raise UserError(f"{error}\ngo on with: {again}") from error
        raise
    print(f"finished round {last.round}; look at it: {look}")
    return 0


def _value(words: list[str]) -> tuple[str, list[str]]:
    """`--resume RUN …` or `--resume=RUN …`."""
    _, equals, value = words[0].partition("=")
    if equals:
        return value, words[1:]
    if len(words) < 2:
        raise UserError("--resume needs the run's folder: fedrl run --resume RUN")
    return words[1], words[2:]


def _dry_run(config: "Config") -> int:
    from fedrl.config.loading import to_toml
    from fedrl.runs.train import plan

    lines = plan(config)  # what cannot be is said alone
    print(to_toml(config), end="")
    for line in lines:
        print(f"# {line}")
    return 0


def list_(argv: list[str]) -> int:
    """Methods, worlds and recipes."""
    from fedrl.algorithms import METHODS
    from fedrl.config.loading import recipes_folder
    from fedrl.envs import WORLDS
    from fedrl.runs.sweep import sweeps

    if argv:
        print("usage: fedrl list\n\nShows the methods, worlds and recipes that come with fedrl.")
        return 0 if argv[0] in ("-h", "--help") else 2
    for title, table in (("methods", METHODS), ("worlds", WORLDS)):
        print(f"{title}:")
        for name, entry in table.items():
            print(f"  {name:<16}{entry.summary}  [{entry.extra}]")
    print("recipes:")
    folder = recipes_folder()
    for path in sorted(folder.glob("*/*.toml")):
        first = path.read_text(encoding="utf-8").splitlines()[0].lstrip("# ")
        print(f"  {path.relative_to(folder).with_suffix('')!s:<24}{first}")
    print("sweeps:")
    for name, path in sweeps().items():
        first = path.read_text(encoding="utf-8").splitlines()[0].lstrip("# ")
        print(f"  {name:<24}{first}")
    return 0


def report(argv: list[str]) -> int:
    """Draw one page with curves and tables; several runs are compared."""
    parser = Parser("fedrl report", description=REPORT)
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN", help="run folders")
    parser.add_argument("--out", type=Path, metavar="PAGE", help="RUN/report.html by default")
    parser.add_argument(
        "--episodes", action=argparse.BooleanOptionalAction, help="language agents: play some "
        "evaluation tasks to show (by default where that is quick: on a GPU, or with a small model)"
    )  # fmt: skip
    asked = parser.parse_args(argv)
    if not asked.runs:
        raise UserError("name at least one run: fedrl report runs/NAME/METHOD-s0-…")
    from fedrl.report.compare import build

    print(f"report: {build(asked.runs, asked.out, episodes=asked.episodes)}")
    return 0


def eval_(argv: list[str]) -> int:
    """Evaluate a run's last checkpoint, client by client."""
    parser = Parser("fedrl eval", description=EVAL)
    parser.add_argument("run", type=Path, metavar="RUN", help="the run's folder")
    parser.add_argument("--episodes", type=int, default=100, help="per client (100)")
    parser.add_argument("--seed", type=int, default=0, help="of these episodes (0)")
    parser.add_argument("--split", help="language agents: which tasks, by type (seen, unseen, …)")
    asked = parser.parse_args(argv)
    if asked.seed < 0:
        raise UserError(f"--seed is {asked.seed}; it must not be negative")
    if asked.split is not None:
        from fedrl.runs.agents import evaluate_split

        return evaluate_split(asked.run, asked.split, asked.seed)
    from fedrl.runs.evaluate import evaluate

    return evaluate(asked.run, asked.episodes, asked.seed)


def reproduce(argv: list[str]) -> int:
    """Regenerate a paper's tables and figures."""
    from fedrl.cli.reproduce import PAPERS, SCALES
    from fedrl.cli.reproduce import reproduce as go

    parser = Parser("fedrl reproduce", description=REPRODUCE)
    parser.add_argument("paper", choices=PAPERS, metavar="PAPER", help=", ".join(PAPERS))
    parser.add_argument(
        "--scale", choices=SCALES, default="small", help="smoke: a minute or two. small: up to two "
        "hours on two cores. full: up to two hours, for fedagent on a GPU."
    )  # fmt: skip
    parser.add_argument("--only", nargs="+", default=[], metavar="PART", help="parts to compute")
    parser.add_argument(
        "--out", type=Path, default=Path("runs/reproduce"), help="where runs are kept"
    )
    parser.add_argument(
        "--page", type=Path, help="docs/results/PAPER.md for published scales in a checkout, else "
        "beside the measurements"
    )  # fmt: skip
    parser.add_argument(
        "--records", type=Path, help="where records are kept: PAPER/records beside the page"
    )
    parser.add_argument(
        "--processes", type=int, metavar="N", help="runs at a time (one per core, 3 on a "
        "GPU); 0 computes nothing and writes the page of what is there"
    )  # fmt: skip
    parser.add_argument(
        "--minutes", type=float, metavar="LIMIT", help="stop then, keep what there is "
        "and write the page; the same command goes on"
    )  # fmt: skip
    parser.add_argument(
        "--model", metavar="MODEL", help="fedagent, fedrlhf, full scale: folder or Hugging Face id "
        "that warm starts begin with (or set FEDRL_MODEL)"
    )  # fmt: skip
    asked = parser.parse_args(argv)
    options = {name: getattr(asked, name) for name in ("processes", "minutes", "model")}
    only = tuple(asked.only)
    return go(asked.paper, asked.scale, only, asked.out, asked.page, asked.records, options)
