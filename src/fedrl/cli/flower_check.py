"""`fedrl flower check` and `fedrl flower status`: would a node get in, and how is everybody?"""

from pathlib import Path

from fedrl.cli.parser import Parser

CHECK = """\
Try what a node needs before it joins, step by step, and say what to do where a step fails: the
address, whether something listens there, its certificate, the clock, whether your key is
registered, your folder and policy. Nothing is changed."""
STATUS = """\
How a node or a coordinator is, from its own folder: what it is doing, members and when they were
last seen, rounds, refusals. Nothing is asked of anybody."""


def check(argv: list[str]) -> int:
    parser = Parser("fedrl flower check", description=CHECK)
    parser.add_argument("--superlink", required=True, metavar="HOST:PORT")
    parser.add_argument("--ca", type=Path, help="ca.pem of the federation")
    parser.add_argument("--key", type=Path, help="the node's private key")
    parser.add_argument("--insecure", action="store_true", help="no ca, no key: on loopback only")
    parser.add_argument("--client", type=int, help="its number, to compare with that of the key")
    parser.add_argument("--folder", type=Path, help="the node's, as of fedrl flower node")
    parser.add_argument("--policy", type=Path, metavar="FILE", help="the same")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="the same")
    asked = parser.parse_args(argv)
    from fedrl.api import flower as parts

    good = True
    for finding in parts.check(
        asked.superlink,
        ca=asked.ca,
        key=asked.key,
        insecure=asked.insecure,
        folder=asked.folder,
        policy=asked.policy,
        data=asked.data,
        client=asked.client,
    ):
        good &= finding.good
        mark = "note" if finding.doubtful else "ok" if finding.good else "FAIL"
        print(f"{mark:5} {finding.what}", flush=True)
    print("this node can join" if good else "this node cannot join yet")
    return 0 if good else 1


def status(argv: list[str]) -> int:
    parser = Parser("fedrl flower status", description=STATUS)
    parser.add_argument(
        "folder", type=Path, nargs="+", help="of a node or a coordinator; several may be named"
    )
    asked = parser.parse_args(argv)
    from fedrl.api import flower as parts

    for number, folder in enumerate(asked.folder):
        if len(asked.folder) > 1:
            print(f"{chr(10) if number else ''}{folder}")
        print("\n".join(parts.status(folder)))
    return 0
