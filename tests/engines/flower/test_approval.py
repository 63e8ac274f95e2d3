"""Recipes that wait for a person: nothing of them is done before the yes, nor after a no."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")
pytest.importorskip("jax", reason="needs the extra classic")

from support.asked_nodes import SECRET, AskedNode, broadcast, text

import fedrl
from fedrl.cli import call
from fedrl.core.types import UserError
from fedrl.engines.flower import approval
from fedrl.engines.flower.policy import FILE

WAITS = "waits for a person of this organisation (approval)"


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AskedNode:
    monkeypatch.chdir(tmp_path)  # nodes change it
    home = tmp_path / "node"
    home.mkdir()
    (home / FILE).write_text('approval = "person"\n')
    return AskedNode(home)


def test_a_recipe_waits_until_a_person_has_said_yes(node: AskedNode, monkeypatch):
    built: list[str] = []
    recipe, sent = text(), broadcast()
    build = approval.require

    def noting(*words: object) -> None:
        build(*words)  # type: ignore[arg-type]
        built.append("let through")

    monkeypatch.setattr(approval, "require", noting)
    name, home = approval.digest(recipe), node.client.folder
    for found in (node.reason(recipe, sent=sent), node.ready(recipe)):
        assert found == f"recipe {name[:16]} {WAITS}"
    assert built == []
    assert fedrl.flower.waiting(home) == [name]
    assert fedrl.flower.approve(home, name[:8]) == name
    assert fedrl.flower.waiting(home) == []
    assert node.reason(recipe, sent=sent) == ""
    assert [e["event"] for e in node.entries()] == [
        "begin", "policy", "refused", "refused", "approved", "update",
    ]  # fmt: skip
    assert {e["recipe"] for e in node.entries()[2:]} == {name}
    # Another letter, another recipe.
    assert WAITS in node.reason(recipe + "#", sent=sent)
    # Its person may think again.
    fedrl.flower.approve(home, name, yes=False)
    assert "a person of this organisation said no" in node.reason(recipe, sent=sent)


def test_what_the_policy_refuses_does_not_even_wait(node: AskedNode):
    assert "rehearses no attacks" in node.reason(text({"attack": {"share": 0.3}}))
    assert fedrl.flower.waiting(node.client.folder) == []


def test_only_so_many_wait(node: AskedNode):
    for number in range(approval.MOST):
        assert WAITS in node.reason(text({"seed": number}))
    found = node.reason(text({"seed": 99}))
    assert found == f"{approval.MOST} recipes wait for a person of this organisation (approval)"
    assert len(fedrl.flower.waiting(node.client.folder)) == approval.MOST
    assert WAITS in node.reason(text({"seed": 1}))  # one that waits already
    assert "characters" in node.reason(text() + "#" * 300_000)


def test_a_file_counts_only_under_its_own_digest(node: AskedNode):
    """Who can write into the folder can approve; a file under another's name does not."""
    home, recipe = node.client.folder, text()
    place = home / "recipes" / "approved"
    place.mkdir(parents=True)
    (place / f"{approval.digest(recipe)}.toml").write_text(text({"seed": 4}))
    assert WAITS in node.reason(recipe)
    (place / f"{approval.digest(recipe)}.toml").write_text(recipe)
    assert WAITS not in node.reason(recipe)


def test_pinned_recipes_and_no_others(node: AskedNode):
    recipe, sent = text(), broadcast()
    name, home = approval.digest(recipe), node.client.folder
    (home / FILE).write_text(f'approval = "pinned"\npinned = ["{name}"]\n')
    assert node.reason(recipe, sent=sent) == ""
    assert "is not one that this node's owner has pinned" in node.reason(text({"seed": 1}))
    assert fedrl.flower.waiting(home) == []
    (home / FILE).write_text(f'approval = "person"\npinned = ["{name}"]\n')
    assert node.reason(recipe, sent=sent) == ""


def test_the_command_shows_it_in_words_and_asks(node: AskedNode, capsys, monkeypatch):
    home = str(node.client.folder)
    assert call(["flower", "approve", home]) == 0
    assert capsys.readouterr().out == "no recipe waits\n"
    node.reason(text(SECRET))
    name = approval.digest(text(SECRET))
    assert call(["flower", "approve", home]) == 0
    assert capsys.readouterr().out.splitlines()[0] == name
    monkeypatch.setattr("sys.stdin", io.StringIO("no\n"))
    assert call(["flower", "approve", home, name[:6]]) == 1
    told = capsys.readouterr().out
    assert "into a secure sum of at least 4 clients: the coordinator sees the sum" in told
    assert "- no metrics of its training" in told
    assert "* privacy.secure = True" in told
    assert told.endswith("it goes on waiting\n")
    assert "\n1 round with 5 of 5 clients each" in told
    monkeypatch.setattr("sys.stdin", io.StringIO("yes\n"))
    assert call(["flower", "approve", home, name[:6]]) == 0
    assert f"approved {name}" in capsys.readouterr().out
    assert approval.verdict_on(node.client.folder, name) == "approved"
    assert call(["flower", "approve", home, name[:6], "--no"]) == 0
    assert approval.verdict_on(node.client.folder, name) == "rejected"
    with pytest.raises(UserError, match="knows no recipe whose digest begins with 'zz'"):
        fedrl.flower.approve(home, "zz")
    with pytest.raises(UserError, match="is no folder of a node"):
        fedrl.flower.waiting(home + "x")


def test_words_say_what_leaves(node: AskedNode):
    pytest.importorskip("dp_accounting", reason="ε needs the extra privacy")
    home = node.client.folder
    plain = text()
    noisy = text({"privacy": {"clip": 1.0, "noise": 4.0, "where": "local"}, "rounds": 4})
    for recipe in (plain, noisy):
        node.reason(recipe)
    told = "\n".join(fedrl.flower.describe(home, approval.digest(plain)))
    assert "- an update, as it is: the coordinator sees it, and its weight" in told
    assert "nothing bounds what it tells (no ε)" in told
    assert "- metrics of its training" in told
    told = "\n".join(fedrl.flower.describe(home, approval.digest(noisy)))
    assert "with noise of 4 times that length" in told
    assert "all 4 rounds: ε = " in told
    (home / FILE).write_text("clip = 0.1")  # since it was asked for
    told = fedrl.flower.describe(home, approval.digest(noisy))[0]
    assert told.startswith("REFUSED by the policy: privacy.clip is 1")


@pytest.mark.slow
def test_tensors_and_metrics_that_would_leave_are_named(node: AskedNode):
    home = node.client.folder
    quiet = text({"privacy": {"clip": 1.0, "noise": 4.0, "where": "local"}})
    for recipe in (text(), quiet):
        node.reason(recipe)
    told = fedrl.flower.describe(home, approval.digest(text()), data="")
    assert told[0] == "The update of a round: 1 tensors, 200 bytes"
    assert told[1] == "- logits: float64 [5, 5]"
    assert told[2].startswith("Metrics beside it: env/")
    told = fedrl.flower.describe(home, approval.digest(quiet), data="")
    assert told[2] == "Metrics beside it: none"


def test_the_nodes_own_flags_count_for_its_person_too(node: AskedNode):
    """What the node was started with goes over its file here as there."""
    risky = text({"faults": {"clients": [0]}})
    started = AskedNode(node.client.folder, allow=["faults"])
    assert WAITS in started.reason(risky)
    home, name = node.client.folder, approval.digest(risky)
    assert "REFUSED" in fedrl.flower.describe(home, name)[0]
    assert "REFUSED" not in fedrl.flower.describe(home, name, allow=["faults"])[0]


def test_the_policy_of_keys_node_is_held_against_the_nodes_own_coordinator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """`keys node --ca` names it in the policy; what waits came through it."""
    monkeypatch.chdir(tmp_path)
    hub, home = fedrl.flower.make_server_keys(tmp_path / "hub"), tmp_path / "south"
    file = fedrl.flower.make_node_keys(tmp_path / "south.key", home, hub / "ca.pem")
    file.write_text(file.read_text() + '\napproval = "person"\n')
    ours = fedrl.flower.coordinator(hub / "ca.pem")
    started = AskedNode(home, coordinator=ours)
    assert started.client.audit is not None
    started.client.audit.started("1", None)
    assert WAITS in started.reason(text())
    name = approval.digest(text())
    assert "REFUSED" not in "\n".join(fedrl.flower.describe(home, name))
    started.client.audit.coordinator = "0" * 64  # since then it was started for another one
    started.client.audit.started("1", None)
    assert fedrl.flower.describe(home, name)[0].startswith("REFUSED by the policy: coordinator")


def test_noise_that_peers_make_sure_of_counts_for_the_person_too(node: AskedNode):
    home = node.client.folder
    (home / FILE).write_text('approval = "person"\n')
    recipe = text({"privacy": {"clip": 0.5, "secure": True, "noise": 1.0}})
    assert WAITS in node.reason(recipe)
    (home / FILE).write_text('approval = "person"\nnoise = 0.9\n')
    assert node.client.audit is not None
    name = approval.digest(recipe)
    assert fedrl.flower.describe(home, name)[0].startswith("REFUSED by the policy: privacy.noise")
    node.client.audit.started("1", 5)
    assert "REFUSED" not in "\n".join(fedrl.flower.describe(home, name))


def test_nothing_in_a_recipe_writes_on_a_persons_screen(node: AskedNode):
    (node.client.folder / FILE).write_text('approval = "person"\nallow = ["algorithm", "world"]\n')
    recipe = text({"algorithm": {"name": "fedrlhf-text", "model": "x\x1b[2J\u202e\n- all is well"},
                   "world": {"name": "imdb"}})  # fmt: skip
    assert WAITS in node.reason(recipe)
    lines = fedrl.flower.describe(node.client.folder, approval.digest(recipe))
    assert all(line.isprintable() for line in lines)
