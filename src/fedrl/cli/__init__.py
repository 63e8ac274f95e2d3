"""The command `fedrl`: parse, call, print. Everything else lives in the layers below."""

import errno
import importlib
import io
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fedrl.cli import slow_imports
from fedrl.core import threads
from fedrl.core.types import UserError
from fedrl.runs.interrupt import Interrupt

HELP = """\
fedrl: federated reinforcement learning, from tabular MDPs to language agents

usage: fedrl COMMAND …

  run RECIPE          train; every key of a recipe is a flag: --rounds 9
  sweep SWEEP         variants of a recipe side by side, and a page about them
  list                methods, worlds, rules, attacks, rewards and recipes
  new KIND NAME       a package of your own: a method, a world or a rule
  report RUN…         one page with curves and tables that compares runs
  watch [RUN…]        a page that follows runs while they train
  eval RUN            evaluate a run's last checkpoint, client by client
  reproduce PAPER     regenerate a paper's tables and figures
  warmstart WORLD     teach a model to act by imitating the world's expert
  plan [RUN]          what clients, local steps and rounds buy, by a theorem
  gap RUN             what agreeing on anchors costs FedQHD's clients
  flower PART         federations across machines: up, link, node, check, …
  joining FOLDER      what joining a federation brings one client
  feedback RUN        answer what a client of a FedRLHF run asks its person
  label RUN|MODEL     which tasks an agent solves: for the hardness partition
  export RUN          a run's policy or model as a folder of its own
  verify PATH         whether a model or a checkpoint is whole, and who signed
  serve RUN           a run's model behind an OpenAI-compatible endpoint
  record RUN          an animation of a run's policy in a control world
  play WORLD          play the household here, or the shop in your browser
  partition WORLD     deal tasks out to clients, measure how they differ
  parity WORLD …      replay transcripts of the real engines against ours
  doctor              what is installed: devices, data, space, versions
  data NAME           get ALFWorld, WebShop, MovieLens or IMDb
  completion SHELL    complete commands, recipes and flags in your shell

`fedrl COMMAND --help` says more; `fedrl run RECIPE --help` lists every setting
of that recipe. A first run, and a look at it:

  fedrl run momentum/cartpole --seed 1 && fedrl report runs/momentum-cartpole/*
"""


def main() -> None:
    sys.exit(call(sys.argv[1:]))


def _tell_cause(error: Exception) -> None:
    """Where errors may say what they hold: what somebody's own code said, behind our line. Where
    they may not, how they may."""
    from fedrl.engines.in_process import DEBUG, debugging, one_line, raised_at, shareable

    cause, withheld = error, False
    while isinstance(cause.__cause__, Exception):
        withheld = shareable(cause)
        cause = cause.__cause__
    if cause is error:
        return
    if debugging():
        print(f"  {one_line(cause)}{raised_at(cause)}", file=sys.stderr)
    elif withheld:
        print(f"({DEBUG}=1 shows more)", file=sys.stderr)


def call(argv: list[str]) -> int:
    """The exit code: 0, 1 for a failed check, 2 for a mistake, 130 for Ctrl-C and SIGTERM."""
    threads.pin()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # β on a terminal that knows only ASCII
    if not argv or argv[0] in ("-h", "--help", "help"):
        from fedrl.cli.help_text import fitted

        print(fitted(HELP))
        return 0
    if argv[0] == "--version":
        import fedrl

        print(fedrl.__version__)
        return 0
    try:
        if argv[0] not in COMMANDS:
            from fedrl.core.registry import suggestion

            raise UserError(f"unknown command {argv[0]!r}; {suggestion(argv[0], list(COMMANDS))}")
        with Interrupt(), notes_printed(), slow_imports.told():
            code = find(argv[0])(argv[1:])
        if sys.stdout is not None:  # closed, as daemons have it
            sys.stdout.flush()
        return code
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        _tell_cause(error)
        return 2
    except MemoryError as error:
        said = f": {error}" if str(error) else ""
        print(f"error: this needs more memory than there is{said}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `fedrl list | head`: the reader has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if error.errno == errno.ENOSPC:
            print("error: no space left where the output goes", file=sys.stderr)
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 2
        if error.filename is None:
            raise
        # A file that cannot be read or written is the machine's trouble, not the program's.
        print(f"error: {os.fsdecode(error.filename)}: {error.strerror}", file=sys.stderr)
        return 2


class Lines(logging.Handler):
    """What the layers below have to say, as plain lines; a note that is the same for every seed is
    said once. (A warning is not: it may have come twice.)"""

    def __init__(self) -> None:
        super().__init__()
        self.noted: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()
        if line in self.noted:
            return
        if line.startswith("note: "):
            self.noted.add(line)
        print(line, file=sys.stderr, flush=True)


@contextmanager
def notes_printed() -> Iterator[None]:
    """Notes and warnings of the logger `fedrl` go to the terminal; programs hear of warnings."""
    logger, lines = logging.getLogger("fedrl"), Lines()
    before = logger.level
    logger.addHandler(lines)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(lines)
        logger.setLevel(before)


COMMANDS = {
    "run": "run:run",
    "sweep": "sweep:sweep",
    "list": "listing:list_",
    "new": "new:new",
    "report": "report:report",
    "watch": "watch:watch",
    "eval": "evaluate:eval_",
    "reproduce": "reproduce:command",
    "play": "play:play",
    "partition": "partition:partition",
    "parity": "parity:parity",
    "data": "data:data",
    "warmstart": "warmstart:warmstart",
    "label": "label:label",
    "export": "export:export",
    "verify": "verify:verify",
    "serve": "serve:serve",
    "record": "record:record",
    "plan": "plan:plan",
    "gap": "gap:gap",
    "joining": "joining:joining",
    "doctor": "doctor:doctor",
    "feedback": "feedback:feedback",
    "flower": "flower:flower",
    "completion": "completion:completion",
}
"""The file of every command, and its function: only the one that is called is imported."""


def find(name: str) -> Callable[[list[str]], int]:
    """The command of this name."""
    module, _, function = COMMANDS[name].partition(":")
    command: Callable[[list[str]], int] = getattr(
        importlib.import_module(f"fedrl.cli.{module}"), function
    )
    return command
