"""`fedrl verify`: whether a model or a checkpoint is whole, and whose it is."""

from pathlib import Path

from fedrl.cli.parser import Parser

VERIFY = """\
Check what `fedrl export` or the end of a run on Flower has signed: every file against its digest in
the signature, the signature against its key. Says in one line what is wrong, and ends with 1.
Without --key anybody can have signed it: compare the key that is printed, or name it."""


def verify(argv: list[str]) -> int:
    """A model or a checkpoint: whole, and whose?"""
    parser = Parser("fedrl verify", description=VERIFY)
    parser.add_argument(
        "path", type=Path, metavar="PATH", help="an exported folder, a checkpoint, or a run"
    )
    parser.add_argument(
        "--key", action="append", default=[], metavar="KEY", help="who must have signed it: the "
        "signer's .pub, the coordinator's ca.pem, or the digest of either; may be given several "
        "times"
    )  # fmt: skip
    asked = parser.parse_args(argv)
    from fedrl import api

    found = api.verify(asked.path, asked.key)
    if found.wrong:
        print(f"{asked.path}: {found.wrong}")
        return 1
    whose = f"{found.key} of coordinator {found.coordinator}" if found.coordinator else found.key
    believed = (
        "" if asked.key else " (anybody may have signed: compare this key, or name it with --key)"
    )
    sent = f" (recipe {found.recipe[:16]})" if found.recipe else ""
    print(
        f"{asked.path}: whole; {found.what} of round {found.round}, run {found.run}{sent}, signed "
        f"by {whose}{believed}"
    )
    return 0
