"""The warm start: demonstrations fit what the agent will see, and recover from mistakes."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the warm start needs the extra llm")
pytest.importorskip("transformers", reason="the warm start needs the extra llm")

from support.tiny_model import nudged, samples, tiny

from fedrl.cli import call
from fedrl.cli.warmstart import warmstart as command
from fedrl.core.types import UserError
from fedrl.envs.household.world import Household
from fedrl.envs.household.world import Settings as Home
from fedrl.envs.text import spaced
from fedrl.envs.webshop.shop import Settings as ShopSettings
from fedrl.envs.webshop.shop import WebShop
from fedrl.llm.policy import Policy
from fedrl.llm.pretrain import demonstrations, supervised
from fedrl.llm.pretrain.demonstrations import ENDS, Expertise, Shopper
from fedrl.llm.prompts.chat import Chat
from fedrl.llm.prompts.compact_household import CompactHousehold
from fedrl.llm.prompts.compact_webshop import CompactWebShop
from fedrl.llm.warmstart_record import shown_tasks
from fedrl.runs.warmstart import Settings, warmstart

SHOP = WebShop(ShopSettings(products=300, validation=50, public=60))
PUBLIC = [task.id for task in SHOP.tasks("public")]
FAILED = re.compile(r"; ([^;]+) did nothing ;")
HOME = Household(Home(size="tiny", public=30, unseen=12, max_steps=6))


class Template:
    """A tokenizer of single characters, with a chat template."""

    chat_template, eos_token_id = "any", 0

    def __call__(self, texts: list[str], add_special_tokens: bool) -> dict[str, list[list[int]]]:
        assert not add_special_tokens
        return {"input_ids": [[ord(letter) for letter in text] for text in texts]}

    def apply_chat_template(self, messages, tokenize: bool, add_generation_prompt: bool) -> str:
        return "".join(f"[{m['role']}]{m['content']}" for m in messages) + "[agent]"


def text(row: list[int]) -> str:
    return "".join(map(chr, row))


# Lessons


def test_prompts_are_encoded_as_they_are_when_the_agent_acts():
    format, limit = Chat(thinking=False), 900
    found = demonstrations.samples(Template(), SHOP, format, PUBLIC[:5], Expertise(0.0), limit)
    words = list(demonstrations.texts(SHOP, format, PUBLIC[:5], Expertise(0.0)))
    assert len(found) == len(words) > 10
    cut = 0
    for sample, (prompt, answer) in zip(found, words, strict=True):
        assert len(sample.prompt) <= limit
        assert text(sample.prompt).startswith("[user]")
        assert text(sample.prompt).endswith("[agent]")
        if len(prompt) + len("[user][agent]") <= limit:
            assert text(sample.prompt) == f"[user]{prompt}[agent]"
        else:
            cut += 1
        assert text(sample.answer[:-1]) == answer
        assert sample.answer[-1] == Template.eos_token_id
    assert cut, "no prompt was too long: the comparison is too easy"


def test_demonstrations_name_what_did_nothing_as_an_agent_says_it():
    """So an agent that failed reads a prompt of the kind that it was shown."""
    words = list(demonstrations.texts(SHOP, CompactWebShop(), PUBLIC, Expertise(0.4)))
    failed = [(m[1], said) for prompt, said in words if (m := FAILED.search(prompt))]
    assert len(failed) > len(words) / 20
    buttons = {"buy", "next", "prev", "back", "description", "features", "reviews"}
    for answer, _ in failed:
        assert answer in buttons or answer.split()[0] in ("search", "item", "option"), answer
    assert {answer.split()[0] for answer, _ in failed} >= {"search", "item", "option"}
    assert sum(answer == said for answer, said in failed) < len(failed) / 10  # try another


def test_noise_changes_what_is_seen_and_not_who_answers():
    calm, wild = (
        list(demonstrations.texts(SHOP, CompactWebShop(), PUBLIC[:20], Expertise(noise)))
        for noise in (0.0, 0.4)
    )
    assert len(wild) > len(calm)
    assert not any(a == "prev" for _, a in calm)
    assert any(a == "prev" for _, a in wild), "nobody came back from a wrong product"


@pytest.mark.parametrize("task", PUBLIC[:25])
def test_the_shopper_wins_from_wherever_chance_has_led(task):
    rng = random.Random(task)
    visit, turn = SHOP.start(task)
    shopper = Shopper(visit, SHOP.demonstrate(task))
    for _ in range(rng.randrange(8)):
        turn = visit.step(rng.choice([c for c in turn.admissible if c not in ENDS] or ["x"]))
        if visit.page.kind == "start":
            turn = visit.step("search[a red thing]")
    for _ in range(20):
        if turn.done:
            break
        turn = visit.step(shopper.advise())
    assert turn.info["won"]


FLAT = Household(Home(size="tiny", public=60))
ROOMS = [task.id for task in FLAT.tasks("public")]


def searching(prompt: str) -> list[str]:
    """The places that are new, if the agent holds nothing and knows of nothing."""
    parts = [part.strip() for part in prompt.split(" ;")]
    if parts[2] != "know" or parts[3] != "hold nothing":
        return []
    return re.findall(r"[a-z]+ \d+", parts[1])


def test_listed_the_expert_searches_as_the_room_is_read():
    orders = {}
    for listed in (True, False):
        said = demonstrations.texts(FLAT, CompactHousehold(), ROOMS, Expertise(0.0, listed))
        orders[listed] = [
            answer == f"go to {new[0]}"
            for prompt, answer in said
            if (new := searching(prompt)) and answer.startswith("go to")
        ]
    assert len(orders[True]) > 50
    assert all(orders[True])
    assert not all(orders[False]), "likely places first is another order"


def test_some_mistakes_do_nothing_and_are_answered_too():
    said = list(demonstrations.texts(FLAT, CompactHousehold(), ROOMS, Expertise(0.3)))
    after = [answer for prompt, answer in said if "nothing happens" in prompt]
    assert len(after) > 20
    calm = demonstrations.texts(FLAT, CompactHousehold(), ROOMS, Expertise(0.0))
    assert not any("nothing happens" in prompt for prompt, _ in calm)


# Learning


def policy() -> Policy:
    class Words:
        pad_token_id, eos_token_id = 0, 1

    return Policy(tiny(), Words(), torch.device("cpu"))


def test_parts_hold_every_sample_once_and_pad_little():
    every = samples(40, seed=3)
    found = list(supervised.length_batches(every, padded=50))
    assert sorted(map(id, every)) == sorted(id(s) for part in found for s in part)
    widths = [[len(s.prompt) + len(s.answer) for s in part] for part in found]
    assert all(len(part) * max(part) <= 50 for part in widths)
    assert len(found) > 3
    for before, after in pairwise(widths):
        assert max(before) <= min(after)
    assert [len(part) for part in supervised.length_batches(every[:1], padded=1)] == [1]


@pytest.mark.slow
def test_a_step_is_the_same_however_it_is_cut(monkeypatch):
    every, weights = samples(30, seed=1), []
    for padded in (30, 10_000):
        monkeypatch.setitem(supervised.TOKENS_PER_PASS, "cpu", padded)
        learner = policy()
        supervised.train_supervised(learner, every, supervised.Supervised(3, 1e-2, 20))
        weights.append(torch.cat([p.flatten() for p in learner.model.parameters()]))
    first = torch.cat([p.flatten() for p in policy().model.parameters()])
    assert (weights[0] - first).abs().max() > 1e-4
    assert torch.allclose(weights[0], weights[1], atol=1e-5)


@pytest.mark.slow
def test_what_is_imitated_becomes_less_surprising():
    every, learner, told = samples(12, seed=2), policy(), []
    before = supervised.negative_log_likelihood(learner, every)
    supervised.train_supervised(
        learner, every, supervised.Supervised(60, 2e-2, 12), lambda step, loss: told.append(loss)
    )
    assert len(told) == 60
    assert told[0] == pytest.approx(before, rel=0.3)
    assert supervised.negative_log_likelihood(learner, every) < before / 2


def test_surprise_is_the_mean_over_answer_tokens(monkeypatch):
    every, learner = samples(9, seed=5), policy()
    total, tokens = 0.0, 0
    for sample in every:
        ids = torch.tensor([[*sample.prompt, *sample.answer]])
        logs = learner.model(ids).logits.detach().log_softmax(-1)[0]
        for i, token in enumerate(sample.answer):
            total -= float(logs[len(sample.prompt) - 1 + i, token])
            tokens += 1
    for padded in (20, 4096):
        monkeypatch.setitem(supervised.TOKENS_PER_PASS, "cpu", padded)
        assert supervised.negative_log_likelihood(learner, every) == pytest.approx(
            total / tokens, rel=1e-5
        )
    learner = Policy(nudged(learner.model, 0.1), learner.tokenizer, learner.device)
    assert supervised.negative_log_likelihood(learner, every) != pytest.approx(
        total / tokens, rel=1e-5
    )


# The command


@pytest.mark.slow
def test_the_command_tells_how_well_it_went(tmp_path, capsys):
    out = tmp_path / "model"
    flags = "--tasks 20 --times 2 --steps 40 --batch 16 --width 16 --layers 1 --lr 1e-2"
    world = "--world.size tiny --world.public 30 --world.unseen 12 --world.max-steps 6"
    words = f"household --out {out} {flags} {world} --eval unseen --eval-tasks 5"
    assert command(words.split()) == 0
    printed = " ".join(capsys.readouterr().out.split())
    record = json.loads((out / "warmstart.json").read_text())
    found = record["found"]
    assert len(record["tasks"]) == 20
    assert record["examples"] > 2 * 20 * 3
    assert 0 < found["loss"] < found["held_out_loss"] + 1
    assert 0 <= found["success"] <= 1
    assert "examples of 20 public tasks" in printed
    assert f"on 10 tasks that were not shown {found['held_out_loss']:.3f}" in printed
    assert "on 5 tasks of unseen" in printed


@pytest.mark.slow
def test_fewer_public_tasks_than_usual_are_all_shown_unless_more_are_asked_for(tmp_path, capsys):
    """What was asked for in so many words is not changed."""
    world = "household --world.size tiny --world.public 20 --world.unseen 2"
    small = "--steps 1 --batch 4 --width 16 --layers 1"
    assert call(f"warmstart {world} {small} --out {tmp_path / 'model'}".split()) == 0
    assert "--tasks is not given: all 20 public tasks of the world are shown" in " ".join(
        capsys.readouterr().out.split()
    )
    record = json.loads((tmp_path / "model" / "warmstart.json").read_text())
    assert len(record["tasks"]) == record["settings"]["tasks"] == 20
    assert call(f"warmstart {world} {small} --tasks 300 --out {tmp_path / 'none'}".split()) == 2
    said = capsys.readouterr().err
    assert "only 20 public tasks: lower --tasks to 20, or raise --world.public" in said


def test_public_tasks_at_the_end_are_those_not_shown(tmp_path, monkeypatch):
    seen: list[str] = []

    def evaluate(world, settings, model, tasks, longest):
        seen.extend(task.id for task in tasks)
        return {"success": 0.0, "return": 0.0, "steps": 0.0}

    monkeypatch.setattr("fedrl.runs.warmstart._evaluate", evaluate)
    settings = Settings(tasks=25, steps=1, batch=4, width=16, layers=1, eval="public")
    folder = warmstart(HOME, settings, tmp_path / "m")
    record = json.loads((folder / "warmstart.json").read_text())
    assert len(seen) == 5
    assert not set(seen) & set(record["tasks"])


BRIEF = Settings(tasks=20, steps=1, batch=4, width=16, layers=1)


@pytest.mark.slow
def test_what_a_model_was_shown_before_is_remembered_and_is_not_evaluated_on(tmp_path, monkeypatch):
    seen: list[str] = []

    def evaluate(world, settings, model, tasks, longest):
        seen.extend(task.id for task in tasks)
        return {"success": 0.0, "return": 0.0, "steps": 0.0}

    monkeypatch.setattr("fedrl.runs.warmstart._evaluate", evaluate)
    first = warmstart(HOME, replace(BRIEF, tasks=4), tmp_path / "first")
    again = replace(BRIEF, model=str(first), tasks=7, eval="public")
    second = warmstart(HOME, again, tmp_path / "second")
    before, after = (
        json.loads((folder / "warmstart.json").read_text())["tasks"] for folder in (first, second)
    )
    new = set(spaced([task.id for task in HOME.tasks("public")], 7))
    assert set(before) - new, "the second warm start shows all of the first"
    assert sorted(after) == sorted(new | set(before))
    assert shown_tasks(str(second)) == new | set(before)
    assert seen
    assert not set(seen) & set(after)


@pytest.mark.slow
@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_a_folder_is_whole_or_not_there(tmp_path, monkeypatch, error):
    there: list[bool] = []

    def interrupted(world, settings, model, tasks, longest):
        there.append((model / "config.json").is_file() and not (tmp_path / "m").exists())
        raise error

    killed = tmp_path / ".m.part"
    killed.mkdir()
    (killed / "half").touch()
    monkeypatch.setattr("fedrl.runs.warmstart._evaluate", interrupted)
    with pytest.raises(error):
        warmstart(HOME, replace(BRIEF, eval="unseen"), tmp_path / "m")
    assert there == [True]
    assert list(tmp_path.iterdir()) == []
    killed.mkdir()
    (killed / "half").touch()
    warmstart(HOME, BRIEF, tmp_path / "m")
    assert list(tmp_path.iterdir()) == [tmp_path / "m"]
    assert not (tmp_path / "m" / "half").exists()
    assert (tmp_path / "m" / "warmstart.json").is_file()


def test_a_place_that_cannot_be_written_is_one_line_before_the_work(tmp_path, monkeypatch):
    def taught(*given):
        raise AssertionError("the work has begun")

    monkeypatch.setattr("fedrl.runs.warmstart._imitate_expert", taught)
    (tmp_path / "file").touch()
    for out in (tmp_path / "file" / "m", Path("/proc/m2")):
        with pytest.raises(UserError, match=f"--out {out}: cannot make this folder") as caught:
            warmstart(HOME, BRIEF, out)
        assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match="exists already"):
        warmstart(HOME, BRIEF, tmp_path / "file")


def test_tasks_are_evenly_spaced():
    assert spaced(range(10), 4) == [0, 2, 5, 7]
    assert spaced(range(5), 5) == list(range(5))
    assert spaced([], 0) == []


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"noise": 1.0}, "--noise is 1.0"),
        ({"times": 0}, "--times is 0"),
        ({"spread": -1.0}, "--spread is -1.0"),
    ],
)
def test_impossible_settings_are_refused(settings, words):
    with pytest.raises(UserError, match=words):
        Settings(**settings)


def test_a_split_that_is_not_there_is_refused_before_the_work(tmp_path: Path):
    for split, words in (("unseem", "did you mean 'unseen'"), ("public", "not shown")):
        with pytest.raises(UserError, match=words):
            warmstart(HOME, Settings(tasks=30, eval=split), tmp_path / "m")
    assert not (tmp_path / "m").exists()
