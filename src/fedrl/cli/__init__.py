"""The command `fedrl`: parse, call, print. Everything else lives in the layers below."""

import errno
import io
import os
import sys
from collections.abc import Callable

from fedrl.cli import agents, gym, listing
from fedrl.cli import evaluate as evaluating
from fedrl.cli import feedback as persons
from fedrl.cli import flower as machines
from fedrl.cli import gap as gaps
from fedrl.cli import plan as planning
from fedrl.cli import report as reporting
from fedrl.cli import run as running
from fedrl.cli import sweep as sweeping
from fedrl.cli import train as reproducing
from fedrl.core import threads
from fedrl.core.types import UserError
from fedrl.runs.interrupt import Interrupt

HELP = """\
fedrl: federated reinforcement learning of agents, from tabular MDPs to language models

usage: fedrl COMMAND …

  run RECIPE          train; every key of a recipe is a flag: fedrl run momentum/cartpole --rounds 9
  sweep SWEEP         several variants of a recipe side by side, and a page that compares them
  list                methods, worlds and recipes
  report RUN…         one page with curves and tables; several runs are compared
  eval RUN            evaluate a run's last checkpoint, client by client
  reproduce PAPER     regenerate a paper's tables and figures, or ours about clients that lie
  warmstart WORLD     teach a model to act by imitating the expert on public tasks
  plan [RUN]          what clients per round, local steps and rounds buy, by FedAgent's theorem
  gap RUN             what agreeing on anchors costs FedQHD's clients, by its theorem
  flower PART         federations across machines: up, keys, link, node
  feedback RUN        answer what a client of a FedRLHF run asks its person, on a page or here
  label RUN           which tasks a run's agent solves: labels for the hardness partition
  export RUN          a run's language model as an ordinary folder
  play WORLD          play the household in the terminal, or the shop in your browser
  partition WORLD     deal a world's tasks out to clients, measure and draw how they differ
  parity WORLD …      replay recorded transcripts of the real engines against ours
  data NAME           get real data (ALFWorld, WebShop, MovieLens, IMDb) from its publisher

`fedrl COMMAND --help` says more; `fedrl run RECIPE --help` lists every setting of that recipe.
A first run:  fedrl run momentum/cartpole --seed 1 && fedrl report runs/momentum-cartpole/*
"""


def main() -> None:
    sys.exit(call(sys.argv[1:]))


def call(argv: list[str]) -> int:
    """The exit code: 0, 1 for a failed check, 2 for a mistake, 130 for Ctrl-C and SIGTERM."""
    threads.pin()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # β on a terminal that knows only ASCII
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(HELP, end="")
        return 0
    if argv[0] == "--version":
        import fedrl

        print(fedrl.__version__)
        return 0
    try:
        if argv[0] not in COMMANDS:
            from fedrl.core.registry import suggestion

            raise UserError(f"unknown command {argv[0]!r}; {suggestion(argv[0], list(COMMANDS))}")
        with Interrupt():
            code = COMMANDS[argv[0]](argv[1:])
        if sys.stdout is not None:  # closed, as daemons have it
            sys.stdout.flush()
        return code
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
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


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "run": running.run,
    "sweep": sweeping.sweep,
    "list": listing.list_,
    "report": reporting.report,
    "eval": evaluating.eval_,
    "reproduce": reproducing.reproduce,
    "play": gym.play,
    "partition": gym.partition,
    "parity": gym.parity,
    "data": gym.data,
    "warmstart": agents.warmstart,
    "label": agents.label,
    "export": agents.export,
    "plan": planning.plan,
    "gap": gaps.gap,
    "feedback": persons.feedback,
    "flower": machines.flower,
}
