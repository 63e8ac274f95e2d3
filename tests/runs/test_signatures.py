"""Signed models and checkpoints: whatever is done to any of their files is found, and named."""

from __future__ import annotations

import base64
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("cryptography")

import fedrl
from fedrl.cli import call
from fedrl.config.loading import read_recipe, resolve
from fedrl.core import signatures
from fedrl.core.signatures import About, Signer, Unsigned
from fedrl.engines.flower import connection, keys
from fedrl.runs import train
from fedrl.runs.run_dir import RunDir
from fedrl.runs.signing import sign_checkpoint

RECIPE = {
    "rounds": 2,
    "algorithm": {"name": "qavg"},
    "world": {"name": "random_mdp"},
    "federation": {"clients": 2},
}


@pytest.fixture(scope="module")
def hub(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("federation") / "hub"
    keys.make_server(folder, ["localhost"])
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return fedrl.run(RECIPE, out=str(tmp_path_factory.mktemp("runs")))


@pytest.fixture
def model(run, hub: Path, tmp_path: Path) -> Path:
    done = run.export(tmp_path / "model", sign=hub / "signing.key")
    assert done.signer == signatures.trusted(str(hub / "signing.key.pub"))
    return done.path


@pytest.mark.slow
def test_a_signed_model_is_verified_by_key_by_digest_and_by_the_federations_ca(model, hub, run):
    said = fedrl.verify(model)
    assert (said.wrong, said.what, said.round, said.run) == ("", "policy", 2, run.path.name)
    assert said.coordinator == keys.coordinator_digest(hub / "ca.pem")
    for word in (str(hub / "signing.key.pub"), said.key, str(hub / "ca.pem"), said.coordinator):
        assert fedrl.verify(model, [word]) == said


@pytest.mark.slow
def test_every_file_of_a_model_that_is_changed_removed_or_added_is_named(model: Path):
    names = sorted(path.name for path in model.iterdir())
    assert len(names) >= 4
    assert signatures.FILE in names
    for name in names:
        before = (model / name).read_bytes()
        for at in (0, len(before) // 2, len(before) - 2):
            changed = bytearray(before)
            changed[at] ^= 1
            (model / name).write_bytes(changed)
            assert fedrl.verify(model).wrong, f"{name}, byte {at}"
        (model / name).write_bytes(before)
        (model / name).unlink()
        missing = fedrl.verify(model).wrong
        if name == signatures.FILE:
            assert missing == "there is no signature.json: it was not signed"
        else:
            assert missing == f"{name} is missing"
        (model / name).write_bytes(before)
    (model / "sub").mkdir()
    (model / "sub" / "more.bin").write_bytes(b"")
    assert fedrl.verify(model).wrong == "sub/more.bin was not signed: it is extra"
    shutil.rmtree(model / "sub")
    assert not fedrl.verify(model).wrong


def test_a_link_in_the_place_of_a_file_is_no_file(model: Path, tmp_path: Path):
    """What it leads to could be another thing tomorrow."""
    target = tmp_path / "elsewhere"
    (model / "policy.safetensors").rename(target)
    (model / "policy.safetensors").symlink_to(target)
    assert "is no ordinary file" in fedrl.verify(model).wrong


def _append(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b"\0")


def _said(model: Path) -> dict:
    return json.loads((model / signatures.FILE).read_text())


@pytest.mark.parametrize("key", ["what", "run", "round", "settings", "recipe", "files", "format"])
def test_no_word_of_the_statement_can_be_changed(model: Path, key: str):
    said = _said(model)
    changed = {"files": {}, "round": 7}.get(key, "other")
    (model / signatures.FILE).write_text(json.dumps(said | {key: changed}))
    assert fedrl.verify(model).wrong


def test_words_of_another_spelling_are_the_same_statement(model: Path):
    said = _said(model)
    (model / signatures.FILE).write_text(json.dumps(dict(reversed(said.items()))))
    assert not fedrl.verify(model).wrong


def test_somebody_elses_signature_is_an_unknown_key(model: Path, hub: Path, tmp_path: Path):
    """Whoever changes a model can sign it anew: only the key tells."""
    honest = fedrl.verify(model)
    (model / "README.md").write_text("trust me")
    signatures.make_key(tmp_path / "own.key")
    own = Signer.load(tmp_path / "own.key")
    own.sign_folder(model, About("policy", honest.run, 2, "", ""))
    forged = fedrl.verify(model)
    assert (forged.wrong, forged.key, forged.coordinator) == ("", own.fingerprint, "")
    for word in (str(hub / "signing.key.pub"), str(hub / "ca.pem")):
        wrong = fedrl.verify(model, [word]).wrong
        assert wrong == f"it is signed by an unknown key, {own.fingerprint}"


def test_a_coordinators_certificate_vouches_for_its_own_key_alone(model, hub, tmp_path):
    signatures.make_key(tmp_path / "own.key")
    stolen = Signer(Signer.load(tmp_path / "own.key").key, (hub / "signing.pem").read_text())
    stolen.sign_folder(model, About("policy", "r", 2, ""))
    assert fedrl.verify(model, [str(hub / "ca.pem")]).wrong == "its certificate is another key's"


def test_a_certificate_of_another_ca_under_the_same_name_is_refused(model, hub, tmp_path):
    keys.make_server(tmp_path / "other", ["localhost"])
    theirs = (tmp_path / "other" / "signing.pem").read_text()
    own = theirs[: theirs.index("-----END CERTIFICATE-----\n") + 26]
    mixed = own + (hub / "ca.pem").read_text()
    key = Signer.load(tmp_path / "other" / "signing.key").key
    Signer(key, mixed).sign_folder(model, About("policy", "r", 2, ""))
    wrong = fedrl.verify(model, [str(hub / "ca.pem")]).wrong
    assert wrong == "its certificate is not of the CA that it names"


def test_a_servers_certificate_signs_no_models(hub: Path, tmp_path: Path):
    """One CA vouches for both, and each for its own purpose."""
    with pytest.raises(fedrl.UserError, match=r"no key of|another kind"):
        Signer.load(hub / "server.key")


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "nonsense", '{"signature": 3}', '{"signature": "é"}', "[" * 100_000]
)
def test_what_is_no_signature_is_told(model: Path, text: str):
    (model / signatures.FILE).write_text(text)
    assert fedrl.verify(model).wrong == "signature.json is no signature, or was changed"


def test_a_signature_that_fills_the_memory_is_not_read(model: Path):
    with (model / signatures.FILE).open("ab") as file:
        file.truncate(signatures.LARGEST + 1)
    assert "too large" in fedrl.verify(model).wrong


# Checkpoints --------------------------------------------------------------------------------------


def on_flower(path: Path, folder: Path, hub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the run had been trained by a connection of the name hub, which is this one's now."""
    monkeypatch.setenv("FEDRL_CONNECTIONS", str(folder / "connections"))
    here = connection.Connection("127.0.0.1:9", str(hub / "ca.pem"), str(hub / "secret"))
    connection.save("hub", here)
    config = (path / "config.toml").read_text()
    for key, value in (("engine", "flower"), ("connection", "hub")):
        config, count = re.subn(rf'^{key} = ".*"$', f'{key} = "{value}"', config, flags=re.M)
        assert count == 1
    (path / "config.toml").write_text(config)


def trained_at(path: Path, hub: Path) -> None:
    RunDir(path).note_meta("coordinator", keys.coordinator_digest(hub / "ca.pem"))


@pytest.fixture
def another_hub(tmp_path: Path) -> Path:
    keys.make_server(tmp_path / "hub2", ["localhost"])
    return tmp_path / "hub2"


@pytest.fixture
def signed_run(run, hub: Path, tmp_path: Path) -> Path:
    path = tmp_path / run.path.name
    shutil.copytree(run.path, path)
    sign_checkpoint(Signer.load(hub / "signing.key"), RunDir(path), "f" * 64)
    return path


def test_the_newest_checkpoint_is_verified_alone_and_in_its_run(signed_run: Path, hub: Path):
    newest = RunDir(signed_run).checkpoints()[0]
    for path in (signed_run, newest):
        said = fedrl.verify(path, [str(hub / "ca.pem")])
        assert (said.wrong, said.what, said.recipe) == ("", "checkpoint", "f" * 64)
    other = RunDir(signed_run).checkpoints()[1]
    assert fedrl.verify(other).wrong == f"there is no {other.name}.sig: it was not signed"


@pytest.mark.parametrize(
    ("do", "said"),
    [
        (_append, "was changed after it was signed"),
        (lambda file: file.unlink(), "is missing"),
        (lambda file: file.with_name(file.name + ".sig").unlink(), "it was not signed"),
    ],
)  # fmt: skip
def test_what_is_done_to_a_checkpoint_is_told(
    signed_run: Path, do: Callable[[Path], object], said: str
):
    newest = RunDir(signed_run).checkpoints()[0]
    do(newest)
    assert said in fedrl.verify(newest).wrong


def test_a_signature_is_of_one_checkpoint(signed_run: Path):
    newest, older = RunDir(signed_run).checkpoints()[:2]
    newest.with_name(newest.name + ".sig").rename(older.with_name(older.name + ".sig"))
    assert fedrl.verify(older).wrong.startswith(f"{newest.name} is missing")


def test_other_settings_beside_a_signed_checkpoint_are_told(signed_run: Path):
    with (signed_run / "config.toml").open("a") as file:
        file.write("# one more\n")
    assert fedrl.verify(signed_run).wrong == "config.toml was changed after it was signed"


def test_an_export_names_the_recipe_that_its_checkpoint_was_signed_with(
    signed_run: Path, hub: Path, tmp_path: Path
):
    done = fedrl.Run(signed_run).export(tmp_path / "model", sign=hub / "signing.key")
    assert fedrl.verify(done.path).recipe == "f" * 64


def test_a_run_that_goes_on_takes_the_signatures_of_checkpoints_with_them(signed_run: Path):
    fedrl.resume(signed_run, rounds=9)
    folder = signed_run / "checkpoints"
    assert not list(folder.glob("*.sig"))
    assert "it was not signed" in fedrl.verify(signed_run).wrong


# Commands and keys --------------------------------------------------------------------------------


def test_a_run_of_a_coordinator_is_signed_by_its_key_without_being_told(
    signed_run: Path, hub: Path, tmp_path: Path, monkeypatch, capsys
):
    """As a run on Flower is: its connection says where the secret lies, and the key beside it."""
    on_flower(signed_run, tmp_path, hub, monkeypatch)
    out = tmp_path / "model"
    assert call(["export", str(signed_run), "--out", str(out)]) == 0
    key = signatures.trusted(str(hub / "signing.key.pub"))
    assert f"signed by {key}" in capsys.readouterr().out
    assert call(["verify", str(out), "--key", str(hub / "ca.pem")]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{out}: whole; policy of round 2, run ")
    assert said.count("\n") == 1
    (out / "README.md").write_text("other")
    assert call(["verify", str(out)]) == 1
    assert capsys.readouterr().out == f"{out}: README.md was changed after it was signed\n"


def _forget(path: Path) -> None:
    for file in (path / "checkpoints").glob("*.sig"):
        file.unlink()


def test_a_connection_that_is_anothers_by_now_signs_nothing(
    signed_run: Path, hub: Path, another_hub: Path, tmp_path: Path, monkeypatch, capsys
):
    """Its key would say of a model that it never trained that it is its own."""
    on_flower(signed_run, tmp_path, another_hub, monkeypatch)
    theirs = keys.coordinator_digest(hub / "ca.pem")[:16]
    for name in ("by its signature", "by its coordinator"):
        out = tmp_path / name
        assert call(["export", str(signed_run), "--out", str(out)]) == 0
        told = capsys.readouterr()
        assert told.err.startswith(f"not signed, because the run is of coordinator {theirs}, and ")
        assert "; give its own, --sign HUB/signing.key of that coordinator's folder" in told.err
        assert len(told.err.splitlines()) == 1 + ("onnx" in told.err)
        assert "signed by" not in told.out
        assert not (out / signatures.FILE).exists()
        sign = ["--sign", str(another_hub / "signing.key")]
        assert call(["export", str(signed_run), "--out", str(tmp_path / "told"), *sign]) == 2
        assert f"the run is of coordinator {theirs}" in capsys.readouterr().err
        assert not (tmp_path / "told").exists()
        own = ["--sign", str(hub / "signing.key")]
        assert call(["export", str(signed_run), "--out", str(tmp_path / f"{name}, own"), *own]) == 0
        assert "signed by" in capsys.readouterr().out
        _forget(signed_run)  # as of a run that was stopped
        trained_at(signed_run, hub)


def test_a_stopped_run_is_signed_where_it_was_trained_and_nowhere_else(
    signed_run: Path, hub: Path, tmp_path: Path, monkeypatch, capsys
):
    on_flower(signed_run, tmp_path, hub, monkeypatch)
    _forget(signed_run)
    assert call(["export", str(signed_run), "--out", str(tmp_path / "unknown")]) == 0
    assert "not signed, because nothing says whose the run is" in capsys.readouterr().err
    trained_at(signed_run, hub)
    assert call(["export", str(signed_run), "--out", str(tmp_path / "known")]) == 0
    assert "not signed" not in capsys.readouterr().err
    assert not fedrl.verify(tmp_path / "known", [str(hub / "ca.pem")]).wrong


def test_why_a_run_of_a_coordinator_is_not_signed_is_told(
    signed_run: Path, hub: Path, tmp_path: Path, monkeypatch, capsys
):
    on_flower(signed_run, tmp_path, hub, monkeypatch)
    (tmp_path / "connections" / "hub.toml").unlink()
    assert call(["export", str(signed_run), "--out", str(tmp_path / "model")]) == 0
    told = capsys.readouterr()
    assert "not signed, because connection is 'hub', but there is no" in told.err
    assert "signed by" not in told.out


def test_a_run_does_not_go_on_with_another_coordinator_unless_told(
    signed_run: Path, hub: Path, another_hub: Path, tmp_path: Path, monkeypatch
):
    pytest.importorskip("flwr")
    on_flower(signed_run, tmp_path, another_hub, monkeypatch)
    trained_at(signed_run, hub)
    with pytest.raises(fedrl.UserError, match="connection hub is now of coordinator"):
        train.resume(signed_run)
    train.resume(signed_run, ["--connection", "hub"])[1].close()
    trained_at(signed_run, another_hub)
    train.resume(signed_run)[1].close()


def test_a_run_that_no_node_has_answered_knows_its_coordinator(
    hub: Path, another_hub: Path, tmp_path: Path, monkeypatch
):
    pytest.importorskip("flwr")

    def stopped(*_: object) -> None:
        raise fedrl.UserError("no node came")

    monkeypatch.setattr(train, "open_engine", stopped)
    monkeypatch.setenv("FEDRL_CONNECTIONS", str(tmp_path / "connections"))
    known = [(str(of / "ca.pem"), str(of / "secret")) for of in (hub, another_hub)]
    connection.save("hub", connection.Connection("127.0.0.1:9", *known[0]))
    with pytest.raises(fedrl.UserError, match="no node came"):
        fedrl.run(RECIPE, engine="flower", connection="hub", out=str(tmp_path / "runs"))
    (path,) = (found.parent for found in (tmp_path / "runs").rglob("meta.json"))
    connection.save("hub", connection.Connection("127.0.0.1:9", *known[1]))
    with pytest.raises(fedrl.UserError, match="connection hub is now of coordinator"):
        train.resume(path)


def test_a_last_checkpoint_is_not_signed_by_another_coordinator(
    signed_run: Path, hub: Path, another_hub: Path, tmp_path: Path, monkeypatch
):
    """The connection's file was replaced while the run trained."""
    on_flower(signed_run, tmp_path, another_hub, monkeypatch)
    _forget(signed_run)
    said: list[str] = []
    settings = resolve(read_recipe(signed_run / "config.toml"))
    trained_at(signed_run, hub)
    train.sign(settings, RunDir(signed_run), "f" * 64, said.append)
    assert "it was not signed" in fedrl.verify(signed_run).wrong
    assert said[0].startswith("its checkpoint is not signed: connection hub is now of coordinator")


def test_what_was_not_signed_is_told(run, tmp_path: Path, capsys):
    done = run.export(tmp_path / "model")
    assert done.signer == ""
    assert call(["verify", str(done.path)]) == 1
    assert "there is no signature.json" in capsys.readouterr().out
    assert call(["verify", str(tmp_path / "nothing")]) == 2


def test_words_that_name_no_signer_are_told(model: Path, hub: Path):
    for word in (str(hub / "nothing"), str(hub / "secret"), "abc", str(hub / "server.key")):
        with pytest.raises(fedrl.UserError, match="--key"):
            fedrl.verify(model, [word])


def test_a_signing_key_is_private_and_never_replaced(tmp_path: Path, hub: Path, capsys):
    assert (hub / "signing.key").stat().st_mode & 0o077 == 0
    assert call(["flower", "keys", "signer", str(tmp_path / "own.key")]) == 0
    printed = capsys.readouterr().out.split(":")[0]
    assert printed == signatures.trusted(str(tmp_path / "own.key.pub"))
    assert call(["flower", "keys", "signer", str(tmp_path / "own.key")]) == 2
    assert call(["flower", "keys", "signer", str(hub)]) == 2  # it has one
    assert "is there already" in capsys.readouterr().err


def test_a_public_key_is_32_bytes(model: Path):
    said = _said(model)
    for wrong in ("", base64.b64encode(b"\0" * 31).decode()):
        (model / signatures.FILE).write_text(json.dumps(said | {"key": wrong}))
        assert "is no signature" in fedrl.verify(model).wrong
    with pytest.raises(Unsigned):
        signatures.verify_folder(model)


def test_a_digest_that_was_cut_short_is_told_its_length():
    """Lines for people show the first sixteen digits of many."""
    with pytest.raises(fedrl.UserError, match="a digest has 64 digits, and this has 16"):
        signatures.trusted("1f1f24a2f8d94d3c")
