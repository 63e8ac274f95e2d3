"""OpenEnv's adapter against a stand-in that speaks its wire; the real one is in tests/oracles."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace

import pytest

pytest.importorskip("websockets", reason="the extra openenv is not installed")

from support.openenv_server import DESCRIPTION, StandIn, stand_in

from fedrl.core.types import Shareable, UserError
from fedrl.envs.batch import Batch
from fedrl.envs.openenv import fields
from fedrl.envs.openenv.session import ServerLost
from fedrl.envs.openenv.world import Settings, World
from fedrl.envs.side_by_side import StepsTogether, run_all


@pytest.fixture
def server() -> Iterator[StandIn]:
    with stand_in() as running:
        yield running


def world(server: StandIn, **settings: object) -> World:
    return World(replace(Settings(url=server.url, unseen=7, train=21, max_steps=5), **settings))


def test_an_episode_is_played_over_there(server: StandIn) -> None:
    here = world(server)
    episode, turn = here.start("train/10")  # 10 % 7 + 1 = 4
    assert episode.goal == DESCRIPTION
    assert turn.observation == "It lies between 1 and 7."
    assert not turn.done
    turn = episode.step("6")
    assert (turn.observation, turn.reward, turn.done) == ("It lies between 1 and 5.", 0.0, False)
    turn = episode.step("4")
    assert (turn.reward, turn.done, turn.info["won"]) == (1.0, True, True)
    assert server.resets == [{"seed": 10}]


def test_a_lost_game_is_not_won(server: StandIn) -> None:
    episode, _ = world(server).start("train/10")
    turn = [episode.step("1") for _ in range(3)][-1]
    assert turn.done
    assert not turn.info["won"]


def test_splits_are_ranges_of_seeds_that_share_nothing(server: StandIn) -> None:
    here = world(server, public=3, first_seed=100)
    ids = {split: [task.id for task in here.tasks(split)] for split in here.splits}
    assert ids["public"] == ["public/100", "public/101", "public/102"]
    assert ids["unseen"][0] == "unseen/103"
    assert ids["train"][0] == "train/110"
    assert ids["train"][-1] == "train/130"
    seeds = [id.split("/")[1] for split in ids.values() for id in split]
    assert len(set(seeds)) == len(seeds) == 31


def test_task_ids_come_from_a_file(server: StandIn, tmp_path) -> None:
    (tmp_path / "ids").write_text("a\nb\n\nc\nb\nd\n")
    here = world(server, ids=str(tmp_path / "ids"), task="task_id", unseen=1, public=1, train=0)
    assert [task.id for task in here.tasks("train")] == ["train/c", "train/d"]
    here.start("train/d")
    assert server.resets == [{"task_id": "d"}]
    with pytest.raises(
        UserError, match=r"has 4 tasks, and world\.public, unseen and train ask for 9"
    ):
        world(server, ids=str(tmp_path / "ids"), task="task_id", unseen=7, train=2)


def test_many_episodes_each_have_a_session_and_sessions_are_kept(server: StandIn) -> None:
    batch = Batch(world(server))
    for _ in range(3):
        batch.reset([f"train/{seed}" for seed in range(7, 27)])
        while batch.running:
            batch.step(["4"] * 20)
        batch.reset([])
    assert server.opened == server.most == 20
    by_session = {number for number, _ in server.steps[:20]}
    assert len(by_session) == 20


def test_a_step_limit_leaves_a_session_that_the_next_episode_uses(server: StandIn) -> None:
    batch = Batch(world(server), max_steps=1)
    batch.reset(["train/10"])
    batch.step(["1"])
    assert not batch.running
    batch.reset([])
    assert batch.reset(["train/11"])[0].observation == "It lies between 1 and 7."
    assert server.opened == 1


def test_what_is_no_action_is_told_to_the_agent(server: StandIn) -> None:
    episode, _ = world(server).start("train/10")
    turn = episode.step("four")
    assert (turn.observation, turn.done) == ("Error: guess must be of the type integer.", False)
    assert episode.step("9").observation == "Error: Invalid message"  # the server's own word
    assert episode.step("4").info["won"]


@pytest.mark.parametrize(
    "mode, why",
    [
        ("hang", "did not answer within 0.3 s"),
        ("nonsense", "answered what is no answer of OpenEnv"),
        ("nan", "answered what is no answer of OpenEnv"),
        ("close", "closed the connection"),
    ],
)
def test_a_server_that_misbehaves_is_one_line_that_may_be_shared(
    server: StandIn, mode: str, why: str
) -> None:
    here = world(server, patience=0.3)
    batch = Batch(here)
    batch.reset(["train/10", "train/11"])
    server.mode = mode
    with pytest.raises(ServerLost) as lost:
        batch.step(["1", "2"])
    assert str(lost.value) == f"the OpenEnv server {why}"
    assert isinstance(lost.value.args[0], Shareable)
    server.mode = "well"
    batch.reset(["train/10"])  # a session that broke is not used again
    assert batch.step(["4"])[0].info["won"]


def test_a_server_that_is_not_there(server: StandIn) -> None:
    here = World(Settings(url="http://127.0.0.1:9", patience=1.0))
    with pytest.raises(ServerLost, match="cannot be reached"):
        here.start("train/60")


def test_a_server_that_was_restarted_is_met_again(server: StandIn) -> None:
    here = world(server)
    here.start("train/10")
    with stand_in() as other:
        assert here.server.sessions.place.url == server.url
        here.server.sessions.place = replace(here.server.sessions.place, url=other.url)
        kept = here.server.sessions._idle
        assert len(kept) == 1
        run_all([kept[0].close()])
        episode, _ = here.start("train/10")
        assert episode.step("4").info["won"]
        assert other.opened == 1
        here.close()


def test_a_full_server_says_how_many_sessions_it_takes(server: StandIn) -> None:
    server.capacity = 2
    with pytest.raises(ServerLost, match="takes 2 sessions at once"):
        Batch(world(server)).reset(["train/10", "train/11", "train/12"])


def test_a_world_goes_to_another_process_without_its_connections(server: StandIn) -> None:
    here = world(server)
    here.start("train/10")
    again = pickle.loads(pickle.dumps(here))
    assert again.settings == here.settings
    assert again.start("train/10")[1].observation == "It lies between 1 and 7."


def test_the_goal_and_commands_may_come_from_fields() -> None:
    assert fields.shown({"text": "hi", "done": True, "metadata": {}}, ()) == "hi"
    assert fields.shown({"text": "hi", "left": 2}, ()) == "text: hi\nleft: 2"
    assert fields.shown({"text": "hi", "left": 2}, ["text"]) == "hi"
    assert fields.shown({}, ["text"]) == ""
    assert fields.listed({"legal": ["a", 3]}, "legal") == ["a", "3"]
    assert fields.listed({"legal": "a"}, "legal") == []


def test_actions_of_one_field_and_of_many() -> None:
    one = fields.action_fields({"properties": {"metadata": {}, "word": {"type": "string"}}}, "")
    assert one.action("a b") == {"word": "a b"}
    optional = {"anyOf": [{"type": "null"}, {"type": "number"}]}
    many = {"properties": {"x": {"type": "integer"}, "y": optional, "ok": {"type": "boolean"}}}
    assert fields.action_fields(many, "y").action("1.5") == {"y": 1.5}
    assert fields.action_fields(many, "ok").action(" Yes ") == {"ok": True}
    whole = fields.action_fields(many, "")
    assert whole.action('{"x": 1, "y": 2}') == {"x": 1, "y": 2}
    assert whole.hint == (
        'Each command is a JSON object with the fields "x" (integer), "y" (number), "ok" (boolean).'
    )
    assert fields.action_fields(many, "x").action(" 3 ") == {"x": 3}
    for text in ("nan", "inf", "-Infinity", "1e999", "three"):
        with pytest.raises(fields.NoAction):
            fields.action_fields(many, "y").action(text)
    for text in ("[1]", "move", "{" * 100_000, '{"x": NaN}'):
        with pytest.raises(fields.NoAction):
            whole.action(text)
    with pytest.raises(fields.NoAction):
        fields.action_fields(many, "ok").action("perhaps")
    required = many | {"required": ["x"]}
    assert fields.action_fields(required, "").field == "x"
    with pytest.raises(UserError, match="is 'z'"):
        fields.action_fields(many, "z")
    with pytest.raises(UserError, match="tells no schema"):
        fields.action_fields(None, "")
    assert fields.action_fields(None, "word").action("hi") == {"word": "hi"}


@pytest.mark.parametrize(
    "settings, why",
    [
        ({}, "world.url or world.serve"),
        ({"url": "ftp://x"}, "it is like http"),
        ({"url": "http://x", "serve": "a:b"}, "not both"),
        ({"url": "http://x", "task": "task_id"}, "world.ids must list"),
        ({"url": "http://x", "ids": "f"}, "name reset's argument"),
        ({"url": "http://x", "unseen": 0}, "at least 1"),
    ],
)
def test_impossible_settings_are_one_line(settings: dict[str, object], why: str) -> None:
    with pytest.raises(UserError, match=why):
        Settings(**settings)


def test_an_episode_of_another_world_is_no_missing_turn():
    """As many turns as episodes, or an error: a dropped one would move all that follow it."""
    with pytest.raises(TypeError, match="another world"):
        StepsTogether().step_many([SimpleNamespace(goal="")], ["go"])  # type: ignore[list-item]
