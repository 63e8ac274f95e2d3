import argparse
from pathlib import Path

from examples import study
from examples.study import runs, tables
from examples.study.studies import EXAMPLES, STUDIES
from fedrl.runs.process_pool import cores


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m examples.study",
        description=study.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run")
    run.add_argument("names", nargs="*", metavar="NAME", help=", ".join(STUDIES))
    run.add_argument("--processes", type=int, default=cores(), help="runs at a time")
    run.add_argument("--minutes", type=float, help="stop after so many; the same command goes on")
    nodes = commands.add_parser("nodes")
    nodes.add_argument("name", choices=STUDIES)
    nodes.add_argument("--rounds", type=int, default=3)
    for command in (run, nodes):
        command.add_argument("--work", type=Path, default=Path("runs/examples"), help="for runs")
        command.add_argument("--short", action="store_true", help="a few episodes, as a try")
    write = commands.add_parser("write")
    for command in (run, nodes, write):
        command.add_argument("--records", type=Path, default=EXAMPLES / "records")
    asked = parser.parse_args()
    if asked.command == "write":
        tables.write(asked.records)
        return
    places = (asked.work.absolute(), asked.records.absolute())
    if asked.command == "nodes":
        from examples.study.nodes import across

        found = across(asked.name, *places, asked.rounds, short=asked.short)
        told = ("success", "failures", "same_metrics", "same_parameters")
        print({key: found[key] for key in told})
        return
    if unknown := set(asked.names) - set(STUDIES):
        parser.error(f"{', '.join(unknown)}: there are {', '.join(STUDIES)}")
    names = asked.names or list(STUDIES)
    whole = runs.run(names, *places, asked.processes, asked.minutes, asked.short)
    raise SystemExit(0 if whole else 1)


if __name__ == "__main__":
    main()
