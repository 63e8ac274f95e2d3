"""A node that explains itself: what keeps it out is said in words, before it joins and while it
runs."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from fedrl.cli import call
from fedrl.core.types import UserError

pytest.importorskip("flwr", reason="needs the extra flower")

from support.check_server import listening

from fedrl.engines.flower import keys, node_check
from fedrl.engines.flower.address import Address, parse
from fedrl.engines.flower.node_check import check, reach
from fedrl.engines.flower.own_check import Joining, own


@pytest.mark.parametrize(
    "text, found",
    {
        "hub:9092": Address("hub", 9092),
        "hub.north.example:1": Address("hub.north.example", 1),
        "10.0.0.5:65535": Address("10.0.0.5", 65535),
        "[2001:db8::1]:9092": Address("2001:db8::1", 9092),
    }.items(),
)
def test_an_address_is_read_and_written(text: str, found: Address):
    assert parse(text) == found
    assert str(found) == text


@pytest.mark.parametrize(
    "text, said",
    {
        "hub": "it must be HOST:PORT",
        "": "it must be HOST:PORT",
        ":9092": "it must be HOST:PORT",
        "hub:": "is no port",
        "hub:http": "is no port",
        "hub:0": "is no port",
        "hub:70000": "is no port",
        "hub:９０９２": "is no port",
        "https://hub:9092": "write only HOST:PORT, hub:9092",
        "hub:9092/": "write only HOST:PORT, hub:9092",
        "2001:db8::1:9092": "write an IPv6 address as",
        "[hub]:9092": "no name and no address",
        "my hub:9092": "no name and no address",
        "-hub:9092": "no name and no address",
    }.items(),
)
def test_what_is_no_address_is_said(text: str, said: str):
    with pytest.raises(UserError, match="--superlink is") as error:
        parse(text)
    assert said in str(error.value)


def test_the_node_says_so_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    words = ["flower", "node", "--client", "0", "--superlink", "hub", "--insecure"]
    assert call([*words, "--folder", str(tmp_path)]) == 2
    assert "it must be HOST:PORT" in capsys.readouterr().err


# Joining ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hub")
    keys.make_server(folder, ["localhost"])
    return folder


@pytest.fixture
def north(hub: Path, tmp_path: Path) -> Joining:
    keys.make_node(tmp_path / "north.key")
    return Joining("", hub / "ca.pem", tmp_path / "north.key")


def failure(node: Joining) -> str:
    """What the last step says, which failed; all before it were good."""
    *before, last = reach(node)
    assert all(one.good for one in before)
    assert not last.good
    return last.what


def at(node: Joining, address: str, **changed: Any) -> Joining:
    known = {"ca": node.ca, "key": node.key, "folder": node.folder, **changed}
    return Joining(address, **known)


def test_a_node_that_can_join_is_told_so(hub: Path, north: Joining, tmp_path: Path, capsys: Any):
    with listening(hub) as address:
        words = ["--superlink", address, "--ca", str(north.ca), "--key", str(north.key)]
        assert call(["flower", "check", *words, "--folder", str(tmp_path / "node")]) == 0
    told = capsys.readouterr().out
    assert "FAIL" not in told
    assert north.key is not None
    assert f"your key north.key is registered: {keys.public_digest(north.key)}" in told
    assert told.endswith("this node can join\n")
    assert not (tmp_path / "node").exists()  # a check changes nothing


def test_a_key_that_is_not_registered_says_what_to_send(hub: Path, north: Joining):
    with listening(hub, registered=False) as address:
        told = failure(at(north, address))
    assert told.startswith("your key is not registered yet: send north.key.pub to the coordinator")


def test_a_key_that_is_filed_under_another_number(hub: Path, north: Joining):
    """The driver would leave it out, and its technician would wait for work for ever."""
    heard: list[str | None] = []
    with listening(hub, client="0", heard=heard) as address:
        told = failure(at(north, address, client=5))
        assert heard == ["5"]  # the coordinator's side knows, too
        assert all(one.good for one in reach(at(north, address, client=0)))
        assert all(one.good for one in reach(at(north, address)))  # nothing is said of a number
    says = "filed as that of client 0, and this node says --client 5: is --key another node's file?"
    assert f"{says} If not, use --client 0" in told
    with listening(hub, client="") as address:
        assert "under no client's number" in failure(at(north, address, client=5))


def test_a_certificate_of_another_authority_is_none(hub: Path, north: Joining, tmp_path: Path):
    keys.make_server(tmp_path / "other", ["localhost"])
    with listening(hub) as address:
        told = failure(at(north, address, ca=tmp_path / "other" / "ca.pem"))
    assert told.startswith("this certificate is of another authority")


def test_a_certificate_for_another_name_is_none(north: Joining, tmp_path: Path):
    keys.make_server(tmp_path / "elsewhere", ["hub.example"])
    with listening(tmp_path / "elsewhere") as address:
        told = failure(at(north, address, ca=tmp_path / "elsewhere" / "ca.pem"))
    assert "not for the name localhost" in told


@pytest.mark.parametrize("ahead, said", [(-40, "40 s ahead"), (400, "400 s behind")])
def test_a_clock_that_is_off_is_told(hub: Path, north: Joining, ahead: float, said: str):
    """A node's clock may be 5 s ahead and 305 s behind, or its signatures are void."""
    with listening(hub, registered=False, ahead=ahead) as address:
        told = failure(at(north, address))
    number, side = said.split(" s ")
    assert f"s {side} of the coordinator's" in told
    assert abs(int(told.split("clock is ")[1].split()[0]) - int(number)) <= 2


def test_where_nothing_listens_and_names_that_nobody_knows(north: Joining):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        assert f"nothing listens at localhost:{port}" in failure(at(north, f"localhost:{port}"))
    assert "knows no nowhere.invalid" in failure(at(north, "nowhere.invalid:9092"))


def test_a_port_of_something_else(north: Joining):
    with socket.create_server(("127.0.0.1", 0)) as other:

        def hello() -> None:
            for _ in range(2):  # who looks whether somebody listens, and who shakes hands
                line, _ = other.accept()
                line.sendall(b"220 mail.example ESMTP\r\n")
                line.close()

        threading.Thread(target=hello, daemon=True).start()
        told = failure(at(north, f"localhost:{other.getsockname()[1]}"))
    assert "speaks no TLS" in told or "ended the connection" in told


def test_a_port_that_says_nothing(north: Joining, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(node_check, "PATIENCE", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        told = failure(at(north, f"localhost:{mute.getsockname()[1]}"))
    assert "listens, and says nothing within" in told
    assert "is this the SuperLink's port?" in told


def test_a_key_that_others_can_read_and_files_that_are_none(
    hub: Path, north: Joining, tmp_path: Path
):
    assert north.key is not None
    with listening(hub) as address:
        north.key.chmod(0o644)
        assert "chmod 600" in failure(at(north, address))
        north.key.chmod(0o600)
        (tmp_path / "no.key").write_text("nonsense")
        assert "is no key of" in failure(at(north, address, key=tmp_path / "no.key"))
        assert "is no certificate" in failure(at(north, address, ca=tmp_path / "no.key"))
        away = failure(at(north, address, ca=tmp_path / "no.pem"))
        assert away.endswith("no.pem cannot be read: No such file or directory")
        half = failure(at(north, address, key=north.key.with_name("north.key.pub")))
        assert "it is the public half, --key is the other" in half


def test_files_that_are_missing_are_told_even_if_nobody_listens(
    hub: Path, north: Joining, tmp_path: Path
):
    """A technician who has to wait for the coordinator mends them in the meantime."""
    away, none = tmp_path / "no.pem", tmp_path / "no.key"
    found = [one.what for one in check(at(north, "localhost:1", ca=away, key=none)) if not one.good]
    assert found[0].startswith("nothing listens at localhost:1")
    assert found[1].endswith("no.pem cannot be read: No such file or directory")
    assert found[2].endswith("no.key cannot be read: No such file or directory")
    with listening(hub) as address:
        found = [one.what for one in check(at(north, address, key=none)) if not one.good]
    assert len(found) == 1  # once
    (line,) = [one for one in check(at(north, "hub", ca=away)) if "HOST:PORT" in one.what]
    assert not line.good


def test_a_policy_for_another_coordinator_is_told_even_if_nobody_listens(
    hub: Path, north: Joining, tmp_path: Path
):
    (tmp_path / "node").mkdir()
    (tmp_path / "node" / "policy.toml").write_text(f'coordinators = ["{"0" * 64}"]\n')
    found = list(check(at(north, "localhost:1", folder=tmp_path / "node")))
    assert [one.good for one in found] == [False, True, False, True]
    assert "do not name that of" in found[2].what
    (tmp_path / "node" / "policy.toml").rename(tmp_path / "policy.toml")  # beside the key
    (found,) = [one for one in own(at(north, "", folder=tmp_path / "node")) if not one.good]
    assert "lies beside the key" in found.what


def test_a_model_that_was_not_copied_is_noted(hub: Path, north: Joining, tmp_path: Path, capsys):
    """It is no failure: most methods need none."""
    folder = tmp_path / "node"
    with listening(hub) as address:
        words = ["--superlink", address, "--ca", str(north.ca), "--key", str(north.key)]
        assert call(["flower", "check", *words, "--folder", str(folder)]) == 0
    (told,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("note ")]
    assert told.endswith(f"there is no {folder}/model: for a language model copy the "
                         f"coordinator's there (cp -r model {folder}/model)")  # fmt: skip
    folder.mkdir()
    (folder / "policy.toml").write_text('models = ["org/ours"]\n')  # its owner names them
    (noted,) = [one for one in own(at(north, "", folder=folder)) if one.doubtful]
    assert noted.what == 'policy.toml differs from the defaults: models = ["org/ours"]'
    (folder / "policy.toml").unlink()
    (folder / "model").mkdir()
    assert not any(one.doubtful for one in own(at(north, "", folder=folder)))


def test_what_the_datas_folder_holds_is_listed(north: Joining, tmp_path: Path):
    data = tmp_path / "data"
    (data / "tasks").mkdir(parents=True)
    (data / "tasks" / "train.jsonl").touch()
    (empty := tmp_path / "empty").mkdir()
    found = [list(own(at(north, "", data=place)))[-1] for place in (data, data / "tasks", empty)]
    assert found[0].what == (
        f"{data} holds tasks/: what a recipe names (world.source) must lie in it"
    )
    assert f"{data}/tasks holds train.jsonl: " in found[1].what
    assert found[2].doubtful
    assert found[2].what == f"--data {empty} is empty"


@pytest.mark.slow
def test_a_policy_that_nothing_can_keep_to_is_noted(north: Joining, tmp_path: Path):
    """It is no mistake: what is named may be installed or copied tomorrow."""
    assert north.ca is not None
    said = {
        f'coordinators = ["{keys.coordinator_digest(north.ca)}"]': [],
        'worlds = ["cartpole"]': ['differs from the defaults: worlds = ["cartpole"]'],
        'methods = ["fedavg"]\nleast_clients = 99': [
            'differs from the defaults: methods = ["fedavg"], least_clients = 99',
            "names nothing that is here: methods is 'fedavg'; did you mean",
        ],
        'worlds = ["cartpol"]': ["differs", "names nothing that is here: worlds is 'cartpol'"],
        'worlds = ["nowhere.world:World"]': ["differs", "names nothing that is here: worlds is"],
        'models = ["modle"]': ["differs", "models names modle, and there is no "],
    }  # fmt: skip
    (tmp_path / "model").mkdir()
    for text, notes in said.items():
        (tmp_path / "policy.toml").write_text(text)
        found = list(own(at(north, "", folder=tmp_path)))
        assert all(one.good for one in found)
        doubts = [one.what for one in found if one.doubtful]
        assert len(doubts) == len(notes), doubts
        for doubt, note in zip(doubts, notes, strict=True):
            assert doubt.startswith(f"policy.toml{':' * note.startswith('models')} {note}"), doubt
    (tmp_path / "policy.toml").write_text("methods = 1")  # told as a mistake, once
    assert len([one for one in own(at(north, "", folder=tmp_path)) if not one.good]) == 1
