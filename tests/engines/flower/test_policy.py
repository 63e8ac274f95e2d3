"""A node's policy: a file that is read strictly, the command line over it, how it is written."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")

from support.asked_nodes import AskedNode, broadcast, text
from support.repository import DOCS

import fedrl
from fedrl.cli import call
from fedrl.config.help import comments
from fedrl.core.types import UserError
from fedrl.engines.flower import audit_log, keys, node_story, policy, supernode
from fedrl.engines.flower.policy import FILE, Flags, Policy, read

pytestmark = pytest.mark.slow  # of waits for messages: seconds of the clock, few of a core

DIGEST = "0123456789abcdef" * 4


def test_no_file_is_the_strict_default(tmp_path: Path):
    assert read(tmp_path / FILE) == Policy()
    strict = Policy()
    assert (strict.allow, strict.packages, strict.folders) == ((), (), ())
    assert not strict.regroup


def test_the_template_is_the_defaults_with_the_comments_of_the_fields(tmp_path: Path):
    path = policy.write_template(tmp_path)
    assert path is not None
    assert path.stat().st_mode & 0o077 == 0
    assert read(path) == Policy()
    written = path.read_text()
    for key, meaning in comments(Policy).items():
        assert meaning, key
        assert f"\n#{key} = " in written
        assert meaning.split()[0] in written
    keys_of = [line[1:] if line[:1] == "#" and line[1:2] != " " else line for line in
               written.splitlines()]  # fmt: skip
    path.write_text("\n".join(keys_of))
    assert read(path) == Policy()
    assert policy.write_template(tmp_path) is None  # nothing is replaced
    assert all(len(line) <= 100 for line in written.splitlines())


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("least_client = 3", "unknown key least_client; did you mean 'least_clients'?"),
        ("[floor]\nclip = 1", "unknown key floor"),
        ("clip = '1'", "clip is '1'; it must be a number"),
        ("clip = -1", "clip is -1"),
        ("noise = nan", "noise is nan; it must be a finite number"),
        ("approval = 'maybe'", "approval is 'maybe'; choose from none, person, pinned"),
        ("approval = 'pinned'", "pinned names no recipe"),
        ("pinned = ['abc']", "pinned: 'abc' is no SHA-256"),
        ("coordinators = ['xyz']", "coordinators: 'xyz' is no SHA-256"),
        ("allow = ['algorihm.model']", "allow: 'algorihm.model' is no setting or table"),
        ("methods = 'pavg'", "methods is 'pavg'; it must be a list"),
        ("folders = ['data']", "folders: 'data' is no absolute path"),
        ("least_clients = 0", "least_clients is 0; it must be at least 1"),
        ("delta = 0", "delta is 0.0; it must lie in (0, 1)"),
        ("clip = ", "not valid TOML"),
        ("secure = yes", "secure is yes: say true or false, in small letters"),
        (
            "keep_model = true\nsecure = True  # or not",
            "secure is True: say true or false, in small",
        ),
    ],
)
def test_a_mistake_is_one_line_that_names_the_key(said: str, told: str, tmp_path: Path):
    (tmp_path / FILE).write_text(said)
    with pytest.raises(UserError) as error:
        read(tmp_path / FILE)
    assert told in str(error.value)
    assert str(tmp_path / FILE) in str(error.value)
    assert len(str(error.value).splitlines()) == 1


def test_the_command_line_goes_over_the_file_and_lists_are_added(tmp_path: Path):
    (tmp_path / FILE).write_text(
        "least_clients = 5\nallow = ['faults']\npackages = ['a']\nclip = 2.0\ndata = 'mine'\n"
    )
    file = read(tmp_path / FILE)
    assert Flags().over(file) == file
    said = Flags(3, ("attack",), ("b",), "/elsewhere", True, True).over(file)
    assert said == dataclasses.replace(
        file, least_clients=3, allow=("faults", "attack"), packages=("a", "b"), data="/elsewhere",
        keep_model=True, regroup=True,
    )  # fmt: skip
    assert said.clip == 2.0


def test_the_page_has_every_key():
    page = (DOCS / "policy.md").read_text(encoding="utf-8")
    table = page.split("| key | default |")[1].split("\n\n")[0]
    assert [f.name for f in dataclasses.fields(Policy) if f"`{f.name}`" not in table] == []


def test_a_change_holds_from_the_next_job_on(tmp_path: Path):
    node = AskedNode(tmp_path, least_clients=2)
    assert "least" not in node.reason(text())
    (tmp_path / FILE).write_text("clip = 1.0\nleast_clients = 9")
    assert node.reason(text()).startswith("privacy.clip is 0: ")  # the flag goes over the other
    (tmp_path / FILE).write_text("methods = ['fedqhd']")
    assert node.ready(text()).startswith("algorithm.name: this node runs only methods")
    (tmp_path / FILE).write_text("")
    assert "this node" not in node.reason(text())
    said = [entry["said"] for entry in node.entries() if entry["event"] == "policy"]
    assert [sorted(one) for one in said] == [
        ["least_clients"], ["clip", "least_clients"], ["least_clients", "methods"],
        ["least_clients"],
    ]  # fmt: skip


def test_a_file_that_is_gone_is_not_the_defaults(tmp_path: Path):
    """Nor is one that an editor has emptied and not yet written."""
    (tmp_path / FILE).write_text("secure = true")
    node = AskedNode(tmp_path)
    assert "(secure)" in node.reason(text())
    (tmp_path / FILE).unlink()
    for _ in range(2):
        assert "this node's policy cannot be read" in node.reason(text())
    assert any(line.endswith("is gone: nothing is answered until it is back") for line in node.said)
    (tmp_path / FILE).write_text("secure = true")
    assert "(secure)" in node.reason(text())


def test_half_of_a_file_is_no_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from fedrl.engines.flower import current_policy

    (tmp_path / FILE).write_text("secure = true")
    node = AskedNode(tmp_path)
    assert "(secure)" in node.reason(text())
    (tmp_path / FILE).write_text("")
    written = lambda _: (tmp_path / FILE).write_text("secure = true\nclip = 1")  # noqa: E731
    monkeypatch.setattr(current_policy.time, "sleep", written)
    assert "this node's policy cannot be read" in node.reason(text())
    assert node.said[-2].endswith("is being written: nothing is answered meanwhile")
    found = node.reason(text())
    assert "(secure)" in found
    assert "(clip)" in found


def test_a_recipe_has_the_rounds_that_it_says(tmp_path: Path):
    """Who has read and approved of one round has not approved of a thousand."""
    node = AskedNode(tmp_path)
    assert node.reason(text(), round=2) == "round 2 of a recipe with 1 (rounds)"
    assert "round" not in node.reason(text(), round=1)


@pytest.mark.parametrize("broken", ["clip = ", "clipp = 1", "\0", None])
def test_a_file_that_cannot_be_read_lets_nothing_through(broken: str | None, tmp_path: Path):
    node = AskedNode(tmp_path)
    if broken is None:
        (tmp_path / FILE).mkdir()
    else:
        (tmp_path / FILE).write_text(broken)
    for found in (node.reason(text()), node.ready(text())):
        assert found == "this node's policy cannot be read (its own log says why)"
    assert str(tmp_path) in node.said[0]
    assert node.said[1].endswith(": refused, round 0: " + found)
    assert [entry["event"] for entry in node.entries()][-1] == "refused"


def test_data_of_the_file_is_from_its_folder(tmp_path: Path):
    from fedrl.engines.flower import node_recipes

    (tmp_path / FILE).write_text("data = 'mine'")
    made = node_recipes.client(0, tmp_path)
    assert isinstance(made.rules, node_recipes.Rules)
    assert made.rules.data(made.rules()) == str(tmp_path / "mine")
    over = node_recipes.client(0, tmp_path, "/elsewhere")
    assert isinstance(over.rules, node_recipes.Rules)
    assert over.rules.data(over.rules()) == "/elsewhere"


# Where it comes from ------------------------------------------------------------------------------


def test_the_command_writes_one_beside_the_key_or_into_the_nodes_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    fedrl.flower.make_server_keys(tmp_path / "hub")
    ca = tmp_path / "hub" / "ca.pem"
    words = ["flower", "keys", "node", str(tmp_path / "a.key"), "--folder", str(tmp_path / "a")]
    assert call([*words, "--ca", str(ca)]) == 0
    assert str(tmp_path / "a" / FILE) in capsys.readouterr().out
    found = read(tmp_path / "a" / FILE)
    assert found == Policy(coordinators=(keys.coordinator_digest(ca),))
    assert call(["flower", "keys", "node", str(tmp_path / "b" / "b.key")]) == 0
    assert read(tmp_path / "b" / FILE) == Policy()


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """A node's arguments; it is stopped where it would start its SuperNode."""

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(supernode, "_serve_once", stopped)
    fedrl.flower.make_server_keys(tmp_path / "hub")
    fedrl.flower.make_node_keys(tmp_path / "key")
    return {"client": 0, "ca": tmp_path / "hub" / "ca.pem", "key": tmp_path / "key"}


def test_a_policy_that_the_node_would_not_read_is_a_mistake(tmp_path: Path, started: dict):
    (tmp_path / FILE).write_text("secure = true")
    with pytest.raises(UserError, match=r"policy\.toml lies beside the key, and this node reads"):
        fedrl.flower.node("hub:1", tmp_path / "node", **started)
    with pytest.raises(UserError, match=r"--policy nothing\.toml is no file"):
        fedrl.flower.node("hub:1", tmp_path / "node", policy="nothing.toml", **started)


def test_a_mistyped_folder_does_not_take_the_policy_away(tmp_path: Path, started: dict):
    """It would begin with the defaults and an ε of 0, under a key that the coordinator knows."""
    key, home, other = tmp_path / "north.key", tmp_path / "north", tmp_path / "north-b"
    fedrl.flower.make_node_keys(key, home)
    (home / FILE).write_text("secure = true")
    (tmp_path / FILE).unlink()  # beside the key
    mine = started | {"key": key}
    with pytest.raises(UserError, match=r"north-b has no policy\.toml, and this key was used with"):
        fedrl.flower.node("hub:1", other, **mine)
    assert not other.exists()
    said = [f.what for f in fedrl.flower.check("hub", ca=mine["ca"], key=key, folder=other)]
    assert any("north-b has no policy.toml" in line for line in said)
    other.mkdir()
    shutil.copy(home / FILE, other)  # meant
    with pytest.raises(KeyboardInterrupt):
        fedrl.flower.node("hub:1", other, **mine)
    kept = tmp_path / "north.key.folder"
    assert kept.read_text().strip() == str(home.resolve())  # nobody has let it in
    shutil.rmtree(home)  # moved there, that is
    (other / FILE).unlink()
    with pytest.raises(KeyboardInterrupt):  # and no other folder has one
        fedrl.flower.node("hub:1", other, **mine)


def test_data_that_is_not_there_is_said_at_the_start(tmp_path: Path, started: dict):
    with pytest.raises(UserError, match="--data nowhere is no folder"):
        fedrl.flower.node("hub:1", tmp_path, data="nowhere", **started)


def test_a_node_says_at_its_start_by_which_policy_it_goes(
    tmp_path: Path, started: dict, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / FILE).write_text("secure = true\nleast_clients = 9")
    with pytest.raises(KeyboardInterrupt):
        fedrl.flower.node("hub:1", tmp_path, least_clients=4, allow=["faults"], **started)
    told = capsys.readouterr().err
    coordinator = keys.coordinator_digest(started["ca"])
    assert f'coordinator {coordinator}; policy: allow = ["faults"], least_clients = 4' in told
    entries, damage, _ = audit_log.read(tmp_path)
    assert damage == []
    assert [e["event"] for e in entries] == ["begin", "start", "policy"]
    assert entries[1]["coordinator"] == coordinator
    assert entries[2]["said"] == {"allow": ["faults"], "least_clients": 4, "secure": True}


def test_another_coordinator_is_not_even_called(tmp_path: Path, started: dict):
    (tmp_path / FILE).write_text(f"coordinators = ['{DIGEST}']")
    with pytest.raises(UserError, match="coordinators of the policy have not"):
        fedrl.flower.node("hub:1", tmp_path, **started)
    with pytest.raises(UserError, match="have not one without a CA"):
        fedrl.flower.node("hub:1", tmp_path, client=0, insecure=True)


def test_a_policy_that_is_none_is_told_before_anybody_is_called(
    tmp_path: Path, started: dict, monkeypatch: pytest.MonkeyPatch
):
    called: list[object] = []
    monkeypatch.setattr(node_story, "_follow", lambda *words: called.append(words))
    (tmp_path / FILE).write_text("secure = yes")
    with pytest.raises(UserError, match="not valid TOML"):
        fedrl.flower.node("hub:1", tmp_path, **started)
    assert called == []
    (tmp_path / FILE).write_text("secure = true")
    with pytest.raises(KeyboardInterrupt):
        fedrl.flower.node("hub:1", tmp_path, **started)
    assert len(called) == 1


def test_a_node_does_not_start_with_a_damaged_log(tmp_path: Path, started: dict):
    (tmp_path / "audit.jsonl").write_text("{}\n")
    with pytest.raises(UserError, match=r"its audit log is damaged: .* `fedrl flower audit"):
        fedrl.flower.node("hub:1", tmp_path, **started)


def test_a_coordinators_digest_is_of_its_cas_key_and_no_files(tmp_path: Path):
    for name in "ab":
        fedrl.flower.make_server_keys(tmp_path / name)
    one, other = (keys.coordinator_digest(tmp_path / name / "ca.pem") for name in "ab")
    assert one != other
    assert one == keys.coordinator_digest(tmp_path / "a" / "ca.pem")
    with pytest.raises(UserError, match="is no certificate"):
        keys.coordinator_digest(tmp_path / "a" / "ca.key")


def test_a_second_certificate_behind_the_right_one_is_not_trusted(tmp_path: Path):
    for name in "ab":
        fedrl.flower.make_server_keys(tmp_path / name)
    both = tmp_path / "both.pem"
    both.write_bytes(b"".join((tmp_path / name / "ca.pem").read_bytes() for name in "ab"))
    with pytest.raises(UserError, match="has 2 certificates, and a federation has one CA"):
        keys.coordinator_digest(both)


def test_a_refusal_is_told_from_what_may_come_out_otherwise(tmp_path: Path):
    (tmp_path / FILE).write_text("secure = true")
    node = AskedNode(tmp_path)
    assert "(secure)" in node.reason(text())
    assert node.refused
    (tmp_path / FILE).write_text("secure = ")
    assert "cannot be read" in node.reason(text())
    assert node.refused
    (tmp_path / FILE).write_text("secure = false")
    assert node.reason(text(), sent={})  # no work for it
    assert not node.refused
    compute = node.client._compute

    def meanwhile(*job: object) -> object:
        (tmp_path / FILE).write_text("clip = 9.0")
        return compute(*job)

    node.client._compute = meanwhile
    assert "its policy has changed" in node.reason(text(), round=1, sent=broadcast())
    assert not node.refused


def test_the_template_says_what_a_least_number_of_clients_is_not_good_for():
    """The coordinator has read what was sent, whether or not it becomes a model."""
    said = " ".join(line.removeprefix("#").strip() for line in policy.template().splitlines())
    about = said.partition("least_clients")[0].rpartition("Least number")[2]
    assert "one absent member then stops the run" in about
    assert "not what the coordinator sees" in about
    assert about.rstrip().endswith("Against that: secure.")
