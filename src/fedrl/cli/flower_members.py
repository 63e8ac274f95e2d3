"""`fedrl flower register` and `revoke`: who is a member, changed while a federation lives."""

from pathlib import Path

from fedrl.cli.parser import Parser

REGISTER = """\
Put a node's key into the register: FOLDER is the coordinator's, or a node's folder of peers. FILE
is the node's .pub, under the number of its client, or the .renewal of a key that is registered,
which the old one has signed. A SuperLink that runs takes it within seconds. Without FILE: who is in
it."""
REVOKE = """\
Take a client out of the register: FOLDER is the coordinator's, or a node's folder of peers. A
SuperLink that runs refuses its node within seconds, and runs go on without it. A key that was
revoked is not taken again: who comes back makes a new one."""


def register(argv: list[str]) -> int:
    parser = Parser("fedrl flower register", description=REGISTER)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("file", type=Path, metavar="FILE", nargs="?")
    parser.add_argument("--client", type=int, metavar="N", help="whose key it is")
    parser.add_argument("--name", default="", help="of the client (that in the .pub)")
    asked = parser.parse_args(argv)
    from fedrl.api import flower as parts

    if asked.file is None:
        members = parts.members(asked.folder)
        if not members:
            print(f"nobody yet: fedrl flower register {asked.folder} FILE.pub --client N")
        for member in members:
            print(f"client {member.client} {member.name or '(no name)'}: {', '.join(member.keys)}")
        return 0
    number, name = parts.register(asked.folder, asked.file, client=asked.client, name=asked.name)
    key = parts.members(asked.folder)
    digest = next(member.keys[-1] for member in key if member.client == number)
    print(f"client {number} {name or '(no name)'}: {digest}")
    return 0


def revoke(argv: list[str]) -> int:
    parser = Parser("fedrl flower revoke", description=REVOKE)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("client", type=int, metavar="CLIENT", help="its number")
    parser.add_argument(
        "--old", action="store_true", help="only keys that a newer one has followed (keys renew)"
    )
    asked = parser.parse_args(argv)
    from fedrl.api import flower as parts

    count = parts.revoke(asked.folder, asked.client, old=asked.old)
    print(f"client {asked.client}: {count} key{'' if count == 1 else 's'} revoked")
    return 0
