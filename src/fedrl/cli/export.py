"""`fedrl export`: a run's policy or language model as a folder of its own."""

import sys
from pathlib import Path

from fedrl.cli.parser import Parser

EXPORT = """\
Write what a run's newest checkpoint has learned as a folder of its own. A policy's has its weights
(safetensors, and ONNX where that package is installed), how they are used, and a model card;
`fedrl.load_policy` reads it. A language model's is an ordinary one, LoRA's adapters merged into it:
it loads with transformers anywhere, and as `algorithm.model` of the next run. Its chat template and
generation settings make it answer as in evaluation; its model card has no text of the data. Where
clients keep adapters for themselves it is the shared model, or with --client N --own client N's.
Where there is a key, signature.json has who made the folder: `fedrl verify` checks it."""


def export(argv: list[str]) -> int:
    """A run's policy or model as a folder of its own."""
    parser = Parser("fedrl export", description=EXPORT)
    parser.add_argument("run", type=Path, metavar="RUN", help="the run's folder")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="to be made")
    parser.add_argument("--client", type=int, metavar="N", help="whose, where each has its own")
    parser.add_argument(
        "--own", action="store_true", help="what the client itself held after its last round"
    )
    parser.add_argument(
        "--adapters",
        action="store_true",
        help="of a language model: LoRA's alone, for peft",
    )
    parser.add_argument(
        "--license",
        default="",
        metavar="NAME",
        help="of a language model, for its card",
    )
    parser.add_argument(
        "--sign",
        type=Path,
        metavar="KEY",
        help="by this key of `fedrl flower keys signer`, or HUB/signing.key of a coordinator's "
        "folder; without it a run on Flower is signed by its coordinator's, where its connection "
        "leads there",
    )
    asked = parser.parse_args(argv)
    from fedrl import api

    done = api.Run(asked.run).export(
        asked.out, client=asked.client, own=asked.own, adapters=asked.adapters,
        license=asked.license, sign=asked.sign,
    )  # fmt: skip
    if done.lacking:
        print(f"without policy.onnx: {done.lacking}", file=sys.stderr)
    if done.unsigned:
        print(f"not signed, because {done.unsigned}", file=sys.stderr)
    print(f"{done.what} of round {done.round}: {asked.out}")
    if done.signer:
        key = done.signer if asked.sign else "ca.pem"
        whose = "" if asked.sign else ", with the ca.pem of its coordinator"
        print(f"signed by {done.signer}: `fedrl verify {asked.out} --key {key}` checks it{whose}")
    return 0
