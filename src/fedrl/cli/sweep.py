"""`fedrl sweep`: several variants of a recipe side by side."""

from pathlib import Path

from fedrl.cli.parser import Parser

SWEEP = """\
Train one recipe in several variants and seeds, as many at a time as there are cores, and draw the
page that compares them. Stopped, the same command goes on where it was."""
FILE = """\
Any other flag is a setting of all runs: --rounds 10 --algorithm.lr 3e-4.

A sweep is a TOML file, with the flags of each variant under [runs]:

  recipe = "momentum/cartpole"
  seeds = "0-4"
  [runs]
  svrpg = "--rounds 50"
  pavg = "--rounds 50 --algorithm.name pavg\""""


def sweep(argv: list[str]) -> int:
    """Variants of a recipe side by side."""
    parser = Parser(
        "fedrl sweep",
        description=SWEEP,
        epilog=FILE,
    )
    parser.add_argument("sweep", metavar="SWEEP", help="file, or a name of `fedrl list`")
    parser.add_argument("--seeds", metavar="0-9", help="instead of the file's: 0-9, or 0,3,7")
    parser.add_argument("--out", type=Path, metavar="DIR", help="runs/SWEEP by default")
    parser.add_argument("--processes", type=int, metavar="N", help="runs at a time (one per core)")
    parser.add_argument("--minutes", type=float, metavar="LIMIT", help="stop then, keep all")
    parser.add_argument(
        "--dry-run", action="store_true", help="print the commands that its runs are, and stop"
    )
    asked, flags = parser.parse_known_args(argv)
    if asked.dry_run:
        return _dry_run(asked.sweep, asked.seeds, flags)
    from fedrl import api

    runs = api.sweep(
        asked.sweep,
        flags=flags,
        seeds=asked.seeds,
        out=asked.out,
        processes=asked.processes,
        minutes=asked.minutes,
        progress=True,
    )
    if runs:
        print(runs.summary())
        print(f"report: {runs.report(runs.place / 'report.html')}")
    if not runs.whole:
        print("not all runs are finished; the same command goes on")
    return 0 if runs.whole or asked.minutes is not None else 1


def _dry_run(name: str, seeds: str | None, flags: list[str]) -> int:
    from fedrl.runs.sweep import read
    from fedrl.runs.sweep_plan import plan

    planned = read(name)
    planned = planned if seeds is None else planned.with_seeds(seeds)
    for line in plan(planned, flags):
        print(line)
    runs = len(planned.variants) * len(planned.seeds)
    print(f"# {runs} runs; all settings of one, and what a round moves: its command with --dry-run")
    return 0
