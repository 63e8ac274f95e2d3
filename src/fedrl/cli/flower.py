"""The command `fedrl flower`: federations across machines. docs/deploy.md takes you through it."""

import argparse
import sys
import time
from pathlib import Path

from fedrl.cli.parser import Parser
from fedrl.core.types import UserError

HELP = """\
usage: fedrl flower up --clients N        a whole federation on this machine, for trying it out
       fedrl flower keys server FOLDER    make a CA, a server certificate and the driver's secret
       fedrl flower keys node FILE        make a node's key pair
       fedrl flower link --folder FOLDER  run the SuperLink, at the organisation that coordinates
       fedrl flower node --client N …     run a client's node, where its data is

Then train on it:  fedrl run RECIPE --engine flower --connection NAME
Each has --help; docs/deploy.md takes three organisations from nothing to a trained agent.
"""
PORT = 9092


def flower(argv: list[str]) -> int:
    """Parts of a federation across machines."""
    parts = {"up": up, "keys": keys, "link": link, "node": node}
    if not argv or argv[0] in ("-h", "--help"):
        print(HELP, end="")
        return 0 if argv else 2
    if argv[0] not in parts:
        raise UserError(f"fedrl flower has no part {argv[0]!r}; choose from {', '.join(parts)}")
    return parts[argv[0]](argv[1:])


def keys(argv: list[str]) -> int:
    parser = Parser("fedrl flower keys", description="Certificates and keys; nothing is replaced.")
    parser.add_argument("kind", choices=("server", "node"))
    parser.add_argument("path", type=Path, help="the server's folder, or the node's key file")
    parser.add_argument(
        "--host", action="append", default=[], help="a name or address by which nodes reach the "
        "server; may be given several times (localhost and 127.0.0.1 are always in)"
    )  # fmt: skip
    asked = parser.parse_args(argv)

    from fedrl.api import flower as parts

    if asked.kind == "server":
        parts.make_server_keys(asked.path, asked.host)
        print(f"{asked.path}: give ca.pem to every node; ca.key, server.key and secret to nobody")
    else:
        parts.make_node_keys(asked.path)
        print(
            f"{asked.path}.pub goes to the server's folder nodes/, as client-N.pub for client N; "
            f"{asked.path} stays here"
        )
    return 0


def link(argv: list[str]) -> int:
    parser = Parser("fedrl flower link", description="Run the SuperLink until it is stopped.")
    parser.add_argument("--folder", type=Path, required=True, help="of `fedrl flower keys server`")
    parser.add_argument("--host", default="0.0.0.0", help="where it listens (0.0.0.0)")
    parser.add_argument("--port", type=int, default=PORT, help=f"({PORT})")
    parser.add_argument(
        "--insecure", action="store_true", help="plain text, any node: on loopback only"
    )
    parser.add_argument(
        "--driver", action="append", default=[], metavar="ADDRESS", help="an address beside this "
        "machine's from which runs may be driven; may be given several times"
    )  # fmt: skip
    parser.add_argument("--name", default="", help="write a connection of this name for the driver")
    asked = parser.parse_args(argv)
    from fedrl.api import flower as parts

    parts.link(
        asked.folder,
        host=asked.host,
        port=asked.port,
        insecure=asked.insecure,
        drivers=asked.driver,
        name=asked.name,
        named=lambda file: print(f"connection {asked.name}: {file}", flush=True),
    )
    return 0


def _own_settings(argv: list[str]) -> tuple[list[str], tuple[str, ...]]:
    """A command's own words, and the settings after `--`."""
    cut = argv.index("--") if "--" in argv else len(argv)
    return argv[:cut], tuple(argv[cut + 1 :])


def node(argv: list[str]) -> int:
    argv, own = _own_settings(argv)
    parser = Parser(
        "fedrl flower node",
        description="Run one client's node until it is stopped; settings after -- go over those "
        "of every recipe that is sent: -- --algorithm.model /models/qwen --algorithm.device cuda",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--client", type=int, required=True, help="its number, from 0")
    parser.add_argument("--superlink", required=True, metavar="HOST:PORT")
    parser.add_argument(
        "--folder", type=Path, required=True, help="its own: the client's state, logs, and where "
        "relative paths of recipes begin"
    )  # fmt: skip
    parser.add_argument("--ca", type=Path, help="ca.pem of the federation")
    parser.add_argument("--key", type=Path, help="its private key, of `fedrl flower keys node`")
    parser.add_argument(
        "--peers", type=Path, metavar="FOLDER", help="client-0.pub, client-1.pub, … as the members "
        "gave them to each other: then it only takes part in secure sums, and with nobody else"
    )  # fmt: skip
    parser.add_argument(
        "--least-clients", type=int, default=1, metavar="N", help="refuse recipes in which fewer "
        "clients' updates may become one (1; secure sums have at least 3)"
    )  # fmt: skip
    parser.add_argument(
        "--allow", action="append", default=[], metavar="KEY", help="take this setting, or table, "
        "from recipes as it comes (attack, faults, algorithm.model, …); may be given several times"
    )  # fmt: skip
    parser.add_argument(
        "--allow-package", action="append", default=[], metavar="NAME", help="run methods and "
        "worlds of this installed package if a recipe names them; may be given several times"
    )  # fmt: skip
    parser.add_argument(
        "--regroup", action="store_true", help="let secure sums be of other clients than before; "
        "who compares two that differ learns about the clients in which they do"
    )  # fmt: skip
    parser.add_argument("--insecure", action="store_true", help="no ca, no key: on loopback only")
    parser.add_argument("--data", default="", help="FEDRL_DATA of this client")
    parser.add_argument(
        "--poll", type=float, default=3.0, metavar="SECONDS", help="between two questions for "
        "messages, 0.1 to 3 (3): less makes short rounds faster, and the SuperLink busier"
    )  # fmt: skip
    asked = parser.parse_args(argv)
    from fedrl.api import flower as parts

    parts.node(
        asked.superlink,
        asked.folder,
        client=asked.client,
        ca=asked.ca,
        key=asked.key,
        peers=asked.peers,
        least_clients=asked.least_clients,
        allow=asked.allow,
        packages=asked.allow_package,
        regroup=asked.regroup,
        insecure=asked.insecure,
        data=asked.data,
        poll=asked.poll,
        own=own,
    )
    return 0


def up(argv: list[str]) -> int:
    argv, own = _own_settings(argv)
    parser = Parser(
        "fedrl flower up",
        description="A SuperLink and nodes on loopback, with TLS and keys made on the spot, until "
        "Ctrl-C; settings after -- are the nodes' own.",
    )
    parser.add_argument("--clients", type=int, default=3, help="nodes (3)")
    parser.add_argument("--folder", type=Path, default=Path("flower"), help="(flower)")
    parser.add_argument("--port", type=int, default=0, help="(any free one)")
    parser.add_argument("--name", default="local", help="of the connection (local)")
    parser.add_argument("--insecure", action="store_true", help="without TLS and keys")
    parser.add_argument(
        "--poll", type=float, default=0.5, metavar="SECONDS",
        help="between a node's questions for messages, 0.1 to 3 (0.5)",
    )  # fmt: skip
    parser.add_argument(
        "--peers", action="store_true", help="nodes know each other's keys: secure sums only"
    )
    parser.add_argument(
        "--allow", action="append", default=[], metavar="KEY", help="as of fedrl flower node"
    )
    parser.add_argument(
        "--allow-package", action="append", default=[], metavar="NAME", help="the same"
    )
    asked = parser.parse_args(argv)
    from fedrl.api import flower as parts

    with parts.up(
        asked.clients,
        asked.folder,
        port=asked.port,
        name=asked.name,
        insecure=asked.insecure,
        poll=asked.poll,
        peers=asked.peers,
        allow=asked.allow,
        packages=asked.allow_package,
        own=own,
    ) as federation:
        print(f"SuperLink at {federation.address}, {asked.clients} nodes; logs in {asked.folder}")
        print(f"train on it:  fedrl run RECIPE --engine flower --connection {asked.name} \\")
        print(f"                --federation.clients {asked.clients}")
        print("stop it:      Ctrl-C", flush=True)
        while federation.running():
            time.sleep(1.0)
        print("the SuperLink ended; see link.log", file=sys.stderr)
    return 1
