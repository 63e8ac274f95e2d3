"""`fedrl export`: a run's policy or language model as a folder of its own."""

import sys
from pathlib import Path

from fedrl.cli.parser import Parser

EXPORT = """\
Write what a run's newest checkpoint has learned as a folder of its own. A policy's has its weights
(safetensors, and ONNX where that package is installed), how they are used, and a model card;
`fedrl.load_policy` reads it. A language model's is an ordinary one, LoRA's adapters merged into it:
it loads with transformers anywhere, and as `algorithm.model` of the next run."""


def export(argv: list[str]) -> int:
    """A run's policy or model as a folder of its own."""
    parser = Parser("fedrl export", description=EXPORT)
    parser.add_argument("run", type=Path, metavar="RUN", help="the run's folder")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="to be made")
    parser.add_argument("--client", type=int, metavar="N", help="whose, where each has its own")
    parser.add_argument(
        "--own", action="store_true", help="what the client itself held after its last round"
    )
    asked = parser.parse_args(argv)
    from fedrl import api

    done = api.Run(asked.run).export(asked.out, client=asked.client, own=asked.own)
    if done.lacking:
        print(f"without policy.onnx: {done.lacking}", file=sys.stderr)
    print(f"{done.what} of round {done.round}: {asked.out}")
    return 0
