"""The command `fedrl flower`: federations across machines. docs/deploy.md takes you through it."""

import sys
import time
from pathlib import Path

from fedrl.cli.help_text import fitted
from fedrl.cli.parser import Parser
from fedrl.core.types import UserError

HELP = """\
usage: fedrl flower up --clients N        a whole federation on this machine, for trying it out
       fedrl flower keys server FOLDER    make a CA, a server certificate and the driver's secret
       fedrl flower keys node FILE        make a node's key pair, and a policy for it
       fedrl flower keys signer PATH      make a key that signs models and checkpoints
       fedrl flower keys renew FILE       make a node's next key; `keys use FILE` changes to it
       fedrl flower keys server FOLDER --renew   a new server certificate of the same CA
       fedrl flower register FOLDER FILE  make a node a member, while the SuperLink runs
       fedrl flower revoke FOLDER CLIENT  take one out, or its old key
       fedrl flower link --folder FOLDER  run the SuperLink, at the organisation that coordinates
       fedrl flower node --client N …     run a client's node, where its data is
       fedrl flower check …               would that node get in? with what to do if not
       fedrl flower status FOLDER         how a node or a coordinator is: members, rounds, refusals
       fedrl flower approve FOLDER        recipes that wait for a person, in words: say yes or no
       fedrl flower audit FOLDER          what a node or a coordinator did and refused, verified

Then train on it:  fedrl run RECIPE --engine flower --connection NAME
Each has --help; docs/deploy.md takes three organisations from nothing to a trained agent.
"""
PARTS = (
    "up", "keys", "link", "node", "register", "revoke", "check", "status", "approve", "audit",
)  # fmt: skip
PORT = 9092


def flower(argv: list[str]) -> int:
    """Parts of a federation across machines."""
    from fedrl.cli.flower_check import check, status
    from fedrl.cli.flower_members import register, revoke
    from fedrl.cli.flower_review import approve, audit

    parts = {
        "up": up, "keys": keys, "link": link, "node": node, "register": register, "revoke": revoke,
        "check": check, "status": status,
        "approve": approve, "audit": audit,
    }  # fmt: skip
    if not argv or argv[0] in ("-h", "--help"):
        print(fitted(HELP))
        return 0 if argv else 2
    if argv[0] not in parts:
        raise UserError(f"fedrl flower has no part {argv[0]!r}; choose from {', '.join(parts)}")
    return parts[argv[0]](argv[1:])


def keys(argv: list[str]) -> int:
    parser = Parser("fedrl flower keys", description="Certificates and keys; nothing is replaced.")
    parser.add_argument("kind", choices=("server", "node", "signer", "renew", "use"))
    parser.add_argument(
        "path", type=Path, help="the server's folder, or the node's key file; of a signer the "
        "server's folder, whose CA then vouches for the key, or a file"
    )  # fmt: skip
    parser.add_argument(
        "--renew", action="store_true", help="of the server: a new key and certificate of the same "
        "CA, for the names of the old one or those of --host; a SuperLink that runs takes it up"
    )  # fmt: skip
    parser.add_argument(
        "--host", action="append", default=[], help="a name or address by which nodes reach the "
        "server; may be given several times (localhost and 127.0.0.1 are always in)"
    )  # fmt: skip
    parser.add_argument(
        "--folder", type=Path, help="of the node: where policy.toml is written, with all its keys "
        "(beside the key)"
    )  # fmt: skip
    parser.add_argument(
        "--ca", type=Path, help="of the node: ca.pem of its coordinator, whom the policy then names"
    )
    asked = parser.parse_args(argv)

    from fedrl.api import flower as parts

    if asked.renew and asked.kind != "server":
        raise UserError("--renew is for `keys server`; a node's key is renewed by `keys renew`")
    if asked.kind == "renew":
        print(f"{parts.renew_node_key(asked.path)} goes to the coordinator, and to peers: `fedrl "
              "flower register`; then `fedrl flower keys use` here")  # fmt: skip
    elif asked.kind == "use":
        parts.use_node_key(asked.path)
        print(f"{asked.path} is the new key: its node takes it up by itself")
    elif asked.renew:
        parts.renew_server_certificate(asked.path, asked.host)
        print(f"{asked.path}: server.key and server.pem are new; ca.pem stays as it is")
    elif asked.kind == "server":
        parts.make_server_keys(asked.path, asked.host)
        print(f"{asked.path}: give ca.pem to every node; ca.key, server.key, signing.key "
              "and secret to nobody")  # fmt: skip
        print(
            f"nodes call it {parts.coordinator(asked.path / 'ca.pem')}: compare that by telephone"
        )
        print(f"{asked.path}/signing.key signs models and checkpoints of its runs: fedrl verify")
    elif asked.kind == "signer":
        print(f"{parts.make_signing_key(asked.path)}: signs with `fedrl export --sign`, or in the "
              "server's folder by itself")  # fmt: skip
    else:
        kept = ((asked.folder or asked.path.parent) / "policy.toml").exists()
        policy = parts.make_node_keys(asked.path, asked.folder, asked.ca)
        stays = " (it was there, and stays as it is)" if kept else ""
        print(
            f"send {asked.path}.pub to the coordinator, who registers it; {asked.path} stays here\n"
            f"its digest is {parts.node_key(asked.path)}: compare that by telephone\n"
            f"{policy}{stays} says what may run here: read it, and keep it in the node's --folder"
        )
        if asked.ca:
            see = f": see that {policy} names it" if kept else ": compare that, too"
            print(f"the coordinator is {parts.coordinator(asked.ca)}{see}")
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
        named=lambda file, replaced: print(
            f"connection {asked.name}: {file}{', in place of another one' * replaced}", flush=True
        ),
    )
    return 0


def own_settings(argv: list[str]) -> tuple[list[str], tuple[str, ...]]:
    """A command's own words, and the settings after `--`."""
    cut = argv.index("--") if "--" in argv else len(argv)
    return argv[:cut], tuple(argv[cut + 1 :])


def node(argv: list[str]) -> int:
    argv, own = own_settings(argv)
    parser = Parser(
        "fedrl flower node",
        description="Run one client's node until it is stopped; settings after -- go over those "
        "of every recipe that is sent: -- --algorithm.model /models/qwen --algorithm.device cuda",
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
        "--policy", type=Path, metavar="FILE", help="what may run here (policy.toml in --folder); "
        "the flags below go over it"
    )  # fmt: skip
    parser.add_argument(
        "--least-clients", type=int, metavar="N", help="refuse recipes in which fewer clients' "
        "updates may become one (1; secure sums have at least 3)"
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
    parser.add_argument(
        "--data", default="", metavar="FOLDER", help="this client's own data; FEDRL_DATA of its "
        "recipes"
    )  # fmt: skip
    parser.add_argument(
        "--keep-model", action="store_true", help="keep the recipe and the last model that it was "
        "sent in --folder, for `fedrl joining`"
    )  # fmt: skip
    parser.add_argument(
        "--poll", type=float, default=3.0, metavar="SECONDS", help="before its SuperNode asks "
        "again after a question that came back without a message, and, if it is less than 0.5, how "
        "soon it sees that its client has answered; 0.1 to 3 (3)"
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
        policy=asked.policy,
        least_clients=asked.least_clients,
        allow=asked.allow,
        packages=asked.allow_package,
        regroup=asked.regroup,
        insecure=asked.insecure,
        data=asked.data,
        keep_model=asked.keep_model,
        poll=asked.poll,
        own=own,
    )
    return 0


def up(argv: list[str]) -> int:
    argv, own = own_settings(argv)
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
    parser.add_argument(
        "--data", type=Path, metavar="FOLDER", help="a folder for each client's own data, clients "
        "in the order of their names, as in a simulation"
    )  # fmt: skip
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
        data=asked.data,
    ) as federation:
        print(
            f"SuperLink at {federation.address}, {asked.clients} nodes; logs in {federation.folder}"
        )
        print(f"train on it:  fedrl run RECIPE --engine flower --connection {asked.name} \\")
        print(f"                --federation.clients {asked.clients}")
        print("stop it:      Ctrl-C", flush=True)
        while federation.running():
            time.sleep(1.0)
        print(f"the SuperLink ended; {federation.folder / 'link.log'} says why", file=sys.stderr)
    return 1
