"""A real SuperLink and people who should get nothing from it: no key, no secret, too much.

Requests that Flower would parse for anybody are refused from their heads, whatever they claim, and
cost no memory. Counts and sizes are bounded, and all of it is on loopback.
"""

from __future__ import annotations

import base64
import contextlib
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.proto.control_pb2 import RegisterNodeRequest, StartRunRequest
from flwr.proto.fleet_pb2 import ActivateNodeRequest, PushMessagesRequest
from flwr.supercore.date import now
from flwr.supercore.primitives.asymmetric import public_key_to_bytes, sign_message
from flwr.supercore.protobuf.constants import PROTOBUF_MEDIA_TYPE

from fedrl.engines.flower.connection import FOLDER
from fedrl.engines.flower.local_federation import LocalFederation

pytestmark = pytest.mark.machines

MANY = PushMessagesRequest(messages_list=[{}]).SerializeToString() * 16_000_000
"""32 MB that are 1 GB once parsed."""
MOST_MB = 150
"""That the SuperLink's memory may grow by, whatever outsiders send."""
REGISTER_SECONDS = 60


@pytest.fixture(scope="module")
def link(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFederation]:
    """A SuperLink that knows the key of one node, which is not there."""
    from fedrl.engines.flower import keys

    folder = tmp_path_factory.mktemp("federation")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FOLDER, str(folder / "connections"))
        with LocalFederation(folder, 0, name="attacked") as federation:
            keys.make_node(folder / "member")
            public = (folder / "member.pub").read_bytes()
            (folder / "server" / "nodes" / "client-0.pub").write_bytes(public)
            until = time.monotonic() + REGISTER_SECONDS
            while "registered the node of client-0.pub" not in (folder / "link.log").read_text():
                assert time.monotonic() < until, (folder / "link.log").read_text()
                time.sleep(0.2)
            yield federation


def peak_mb(link: LocalFederation) -> int:
    assert link.link is not None
    status = Path(f"/proc/{link.link.pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) // 1024


def connected(link: LocalFederation) -> ssl.SSLSocket:
    context = ssl.create_default_context(cafile=str(link.folder / "server" / "ca.pem"))
    plain = socket.create_connection(("127.0.0.1", link.port), timeout=60)
    return context.wrap_socket(plain, server_hostname="127.0.0.1")


def ask(
    link: LocalFederation, path: str, body: bytes, headers: Mapping[str, str] | None = None
) -> int:
    """The status, read as soon as there is one: who refuses need not take all of the body."""
    told = {"host": "x", "content-type": PROTOBUF_MEDIA_TYPE}
    told |= {"content-length": str(len(body))} | dict(headers or {})
    head = "".join(f"{name}: {value}\r\n" for name, value in told.items())
    answer = b""
    with connected(link) as wire:
        wire.sendall(f"POST {path} HTTP/1.1\r\n{head}\r\n".encode())
        with contextlib.suppress(OSError):
            for start in range(0, len(body), 2**16):
                wire.sendall(body[start : start + 2**16])
                if answer := _here(wire):
                    break
        answer = answer or wire.recv(4096)
    return int(answer.split()[1])


def _here(wire: ssl.SSLSocket) -> bytes:
    """What has come already; part of TLS may have come as well."""
    wire.settimeout(0.0)
    try:
        return wire.recv(4096)
    except ssl.SSLWantReadError:
        return b""
    finally:
        wire.settimeout(60)


def signed(key: ec.EllipticCurvePrivateKey) -> dict[str, str]:
    """As a node signs: its key, the time and a signature of that."""
    told = now().isoformat()
    return {
        "flwr-public-key": base64.b64encode(public_key_to_bytes(key.public_key())).decode(),
        "flwr-timestamp": told,
        "flwr-signature": base64.b64encode(sign_message(key, told.encode())).decode(),
    }


@pytest.mark.parametrize("who", ["nobody", "a key of its own", "the member's key, unsigned"])
def test_an_outsiders_body_is_not_read(link: LocalFederation, who: str):
    before = peak_mb(link)
    claimed = {
        "nobody": {},
        "a key of its own": signed(ec.generate_private_key(ec.SECP384R1())),
        "the member's key, unsigned": signed(member(link)) | {"flwr-signature": "AAAA"},
    }[who]
    assert ask(link, "/v1/fleet/push-messages", MANY, claimed) in (401, 413)
    # And where large bodies belong.
    assert ask(link, "/v1/fleet/push-object", MANY, claimed) == 401
    assert peak_mb(link) - before < MOST_MB


def test_many_outsiders_at_once_cost_no_memory(link: LocalFederation):
    before = peak_mb(link)
    with ThreadPoolExecutor(8) as people:
        asked = [people.submit(ask, link, "/v1/fleet/push-object", MANY) for _ in range(16)]
    assert {one.result() for one in asked} == {401}
    assert peak_mb(link) - before < MOST_MB


def member(link: LocalFederation) -> ec.EllipticCurvePrivateKey:
    key = load_ssh_private_key((link.folder / "member").read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key


def test_a_member_is_heard_and_sends_large_bodies_only_as_pieces(link: LocalFederation):
    key = member(link)
    public = public_key_to_bytes(key.public_key())
    request = ActivateNodeRequest(public_key=public, heartbeat_interval=30).SerializeToString()
    assert ask(link, "/v1/fleet/activate-node", request, signed(key)) == 200
    stranger = ec.generate_private_key(ec.SECP384R1())
    assert ask(link, "/v1/fleet/activate-node", request, signed(stranger)) == 412
    before = peak_mb(link)
    assert ask(link, "/v1/fleet/push-messages", MANY, signed(key)) == 413
    assert ask(link, "/v1/fleet/push-object", MANY[: 2 * 10**6], signed(key)) in (400, 401, 404)
    assert peak_mb(link) - before < MOST_MB


@pytest.mark.parametrize("driver", ["", "0 0 0", "9999999999 " + "a" * 64 + " " + "b" * 64])
def test_another_user_of_the_machine_registers_and_starts_nothing(
    link: LocalFederation, driver: str
):
    key = ec.generate_private_key(ec.SECP384R1()).public_key()
    headers = {"fedrl-driver": driver} if driver else {}
    request = RegisterNodeRequest(public_key=public_key_to_bytes(key)).SerializeToString()
    assert ask(link, "/v1/control/register-node", request, headers) == 401
    assert ask(link, "/v1/control/start-run", StartRunRequest().SerializeToString(), headers) == 401
    assert ask(link, "/v1/runtime/acquire-task", b"", headers) == 401
    assert ask(link, "/docs", b"", headers) == 401


def test_a_signature_is_for_one_path_and_one_body(link: LocalFederation):
    from fedrl.engines.flower import driver_auth

    secret = (link.folder / "server" / "secret").read_bytes()
    path, request = "/v1/control/list-nodes", b""
    good = {"fedrl-driver": driver_auth.sign(secret, path, request)}
    assert ask(link, path, request, good) == 200
    assert ask(link, "/v1/control/list-runs", request, good) == 401
    assert ask(link, path, b"\x08\x01", good) == 401


@pytest.mark.parametrize("length", ["0" * 30 + "36000000", "+5", "1" * 30])
def test_a_length_that_is_read_in_two_ways_is_refused(link: LocalFederation, length: str):
    answer = ask(
        link, "/v1/fleet/push-object", b"", signed(member(link)) | {"content-length": length}
    )
    assert answer in (400, 413)
