"""Episodes on the report page: which are shown, what is said of them, and when they are played."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.pages import Page

from fedrl.algorithms.fedagent.settings import Settings as AgentSettings
from fedrl.algorithms.fedrlhf.text.settings import Settings as TextSettings
from fedrl.cli import call, notes_printed
from fedrl.config.loading import resolve, to_toml
from fedrl.core.types import UserError
from fedrl.envs.text import Task
from fedrl.federation import round_loop
from fedrl.llm.transcripts import Episode, Step
from fedrl.report import episodes, episodes_section, panels, plots
from fedrl.report import page as report
from fedrl.report.episodes import Played, best, worst
from fedrl.report.run_groups import Group, trains_agents
from fedrl.report.run_labels import group_names
from fedrl.runs.read import Run
from fedrl.runs.run_dir import RunDir


def an_episode(kind: str, won: bool, commands: str, valid: bool = True) -> Episode:
    """One letter per command; the world's answer to a letter is always the same."""
    steps = tuple(Step(letter, letter, valid, f"saw {letter}") for letter in commands)
    return Episode(f"{kind}-{commands}", kind, f"do {kind}", "a room", won, steps)


# Which episodes


def test_best_are_the_shortest_wins_of_different_types() -> None:
    played = [
        an_episode("pick", True, "ab"),
        an_episode("pick", True, "abc"),
        an_episode("heat", True, "abcdefg"),
        an_episode("look", False, "a"),
    ]
    assert [one.task for one in best(played)] == ["pick-ab", "heat-abcdefg", "pick-abc"]
    assert best([played[-1]]) == ()


def test_worst_are_the_losses_with_most_trouble() -> None:
    calm, stuck = an_episode("pick", False, "abcd"), an_episode("heat", False, "abbb")
    silent = an_episode("look", False, "abcd", valid=False)
    won = an_episode("cool", True, "aaaaaa")
    assert (calm.trouble, stuck.trouble, silent.trouble) == (0, 2, 4)
    assert worst([calm, won, stuck, silent]) == (silent, stuck, calm)


def test_a_command_that_got_another_answer_is_no_repetition() -> None:
    steps = (Step("look", "look", True, "one"), Step("look", "look", True, "two"))
    assert Episode("t", "k", "g", "b", False, steps).trouble == 0


# What the page says


def a_page(*shown: Episode) -> Page:
    kinds = {"pick": (1, 4), "heat": (0, 2)}
    won = tuple(one for one in shown if one.won)
    lost = tuple(one for one in shown if not one.won)
    played = Played("x", 14, 0, "unseen", 0.4, kinds, won, lost)
    return Page(episodes_section.played_html(played))


def html_of(one: Episode) -> str:
    return episodes_section.played_html(Played("x", 1, 0, "unseen", 0.4, {"k": (0, 1)}, (), (one,)))


def test_page_tells_the_numbers_and_the_outcomes() -> None:
    page = a_page(an_episode("pick", True, "ab"), an_episode("heat", False, "xyyy"))
    assert "The model of round 14 played 6 evaluation tasks" in page.text
    assert "won 1 of them (17%)" in page.text
    assert "Won after 2 steps." in page.text
    assert "Lost after 4 steps: 2 commands repeated to no new effect." in page.text
    assert "× 3" in page.text
    assert page.text.count("saw y") == 1  # three steps that are all the same are one line


def test_thoughts_are_quiet_and_answers_without_a_choice_are_marked() -> None:
    reasoned = Step("<think>it is <b>hot</b></think><action>go</action>", "go", True, "fine")
    broken = Step("<think>hm", "", False, "Nothing happens.")
    other = Step("well", "", False, "Nothing happens.")
    one = Episode("t", "k", "find a <mug>", "a room", False, (reasoned, broken, other), 0.25)
    html = html_of(one)
    page = Page(html)
    assert not page.attributes("b")
    assert "<div class=thought><span class=text>it is &lt;b&gt;hot&lt;/b&gt;</span></div>" in html
    assert "<code>go</code>" in html
    assert html.count("no valid answer") == 2  # other words are another step
    assert "Lost after 3 steps: 2 answers not well formed, reward 0.25." in page.text
    assert "<action>" not in page.text
    assert "Find a <mug>" in page.text


def test_long_texts_are_folded_and_whole() -> None:
    text = "word " * 200
    html = html_of(Episode("t", "k", "goal", text, True, ()))
    assert "<div class=world><details class=long><summary>" in html
    assert f"<span class=text>{text.strip()}</span>" in html
    short = html_of(Episode("t", "k", "goal", "short", True, ()))
    assert "<div class=world><span class=text>short</span></div>" in short


def test_a_prompt_is_shown_as_it_is_and_a_goal_as_a_sentence() -> None:
    prompt = Episode("t", "k", "rev gfab=", "rev gfab=", True, ())
    assert "</span> rev gfab= <span" in html_of(prompt)
    goal = Episode("t", "k", "find a mug", "You are in a room.", True, ())
    assert "</span> Find a mug <span" in html_of(goal)


def test_the_goal_is_not_told_twice() -> None:
    begin = "You are in a room.\n\nYour task is to: put a mug on the desk."
    one = Episode("t", "k", "put a mug on the desk.", begin, True, ())
    assert episodes_section.without_goal(one) == "You are in a room.\n"
    kept = "A page with the goal put a mug on the desk and much more that one wants to read here."
    assert episodes_section.without_goal(Episode("t", "k", "put a mug on the desk", kept, True, ()))


def test_a_page_that_stays_is_not_shown_again() -> None:
    page = "Instruction: [SEP] find a red mug of at least half a litre, please [SEP] Back [SEP] Buy"
    goal = "find a red mug of at least half a litre, please"
    steps = (Step("click[x]", "click[x]", True, page), Step("click[y]", "click[y]", True, page))
    text = Page(html_of(Episode("t", "k", goal, "Search", False, steps))).text
    assert text.count("Instruction: · (the task) · Back · Buy") == 1
    assert text.count("(the same again)") == 1


# When they are played


class Agent:
    """Plays one step, "push", which wins tasks with an even number; notes what it was asked."""

    settings = SimpleNamespace(eval_split="unseen", eval_temperature=0.4)

    def __init__(self) -> None:
        self.eval_tasks = [Task(str(i), "even" if i % 2 == 0 else "odd") for i in range(100)]
        self.asked: list[str] = []

    def play_tasks(self, theta: Any, tasks: Any, seed: int) -> Any:
        self.asked += [task.id for task in tasks]
        samples = [
            SimpleNamespace(episode=i, command="push", valid=True, situation="a wall")
            for i in range(len(tasks))
        ]
        return SimpleNamespace(
            samples=samples,
            won=[int(task.id) % 2 == 0 for task in tasks],
            returns=[0.5] * len(tasks),
            transcripts=[[("prompt", "push", "it falls")] for _ in tasks],
            goals=[f"push {task.id}" for task in tasks],
        )


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Agent]:
    path, agent = tmp_path / "run", Agent()
    (path / "checkpoints").mkdir(parents=True)
    RunDir(path).checkpoint(round_loop.Snapshot(3, [{"theta": {}}]))
    snapshot = round_loop.Snapshot(3, [{"theta": {}}])
    monkeypatch.setattr(episodes, "load_agent", lambda path: (agent, snapshot))
    monkeypatch.setattr(episodes, "size_on_cpu", lambda path: 1000)
    return path, agent


def test_a_large_model_on_a_cpu_plays_only_if_asked(
    run: tuple[Path, Agent], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, agent = run
    monkeypatch.setattr(episodes, "size_on_cpu", lambda path: episodes.QUICK + 1)
    page = Page(episodes_section.agent_html(path)).text
    assert page.startswith("No episodes: the model has 50M parameters")
    assert "`fedrl report --episodes` plays them" in page
    assert agent.asked == []
    assert (
        "played 64 of 100 evaluation tasks"
        in Page(episodes_section.agent_html(path, asked=True)).text
    )
    assert len(agent.asked) == 64
    assert (
        "played 64 of 100 evaluation tasks" in Page(episodes_section.agent_html(path)).text
    )  # they are kept
    assert len(agent.asked) == 64


@pytest.mark.slow
def test_what_was_asked_reaches_the_section(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from support.pages import write_run

    run = write_run(tmp_path / "run", algorithm='name = "fedagent"')
    monkeypatch.setattr(
        episodes_section, "agent_html", lambda path, asked: f"<p>asked: {asked}</p>"
    )
    for flags, said in (([], "False"), (["--episodes"], "True"), (["--no-episodes"], None)):
        assert call(["report", str(run), *flags]) == 0
        text = Page((run / "report.html").read_text(encoding="utf-8")).text
        assert ("Episodes" in text, f"asked: {said}" in text) == (said is not None,) * 2


@pytest.mark.parametrize("on_gpu", [False, True])
def test_the_size_is_read_off_the_shapes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_gpu: bool
) -> None:
    torch = pytest.importorskip("torch", reason="language models need the extra llm")
    pytest.importorskip("transformers", reason="language models need the extra llm")
    from support.tiny_model import tiny

    from fedrl.llm import policy

    model = tiny()
    model.config.save_pretrained(tmp_path / "model")  # no weights
    recipe = {"name": "x", "world": {"name": "household"},
              "algorithm": {"name": "fedagent", "model": str(tmp_path / "model")}}  # fmt: skip
    (tmp_path / "config.toml").write_text(to_toml(resolve(recipe)))
    device = torch.device("cuda" if on_gpu else "cpu")
    monkeypatch.setattr(policy, "choose_device", lambda name: device)
    size = sum(p.numel() for p in model.parameters())
    assert episodes.size_on_cpu(tmp_path) == (0 if on_gpu else size)


def test_played_once_and_again_for_a_newer_checkpoint(
    run: tuple[Path, Agent], capsys: pytest.CaptureFixture[str]
) -> None:
    path, agent = run
    with notes_printed():
        first = episodes.episodes(path)
    assert len(agent.asked) == len(set(agent.asked)) == 64
    assert "64 of 64 evaluation tasks played" in capsys.readouterr().err
    evens = sum(int(task) % 2 == 0 for task in agent.asked)
    assert first.kinds == {"even": (evens, evens), "odd": (0, 64 - evens)}
    assert first.worst[0].reward == 0.5
    assert first.best[0].goal == f"push {first.best[0].task}"
    assert episodes.episodes(path) == first  # read back, the same to the last letter
    assert len(agent.asked) == 64
    RunDir(path).checkpoint(round_loop.Snapshot(4, [{"theta": {}}]))
    episodes.episodes(path)
    assert len(agent.asked) == 128
    assert agent.asked[:64] == agent.asked[64:]


@pytest.mark.parametrize("text", ["", "[1]", '{"version": 0}', "{"])
def test_a_file_of_another_form_is_played_again(run: tuple[Path, Agent], text: str) -> None:
    path, agent = run
    (path / episodes.FILE).write_text(text)
    episodes.episodes(path)
    assert len(agent.asked) == 64
    assert json.loads((path / episodes.FILE).read_text())["round"] == 3


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (UserError("algorithm.model: there is no folder x"), "there is no folder x"),
        (ModuleNotFoundError("no", name="torch"), 'torch: pip install "fedrl[llm]"'),
        (RuntimeError("CUDA error:\nout of <memory>"), "CUDA error: out of <memory>"),
        (OSError(5, "Input/output error"), "Input/output error"),
    ],
)
def test_the_report_is_made_where_the_agent_cannot_play(
    run: tuple[Path, Agent], monkeypatch: pytest.MonkeyPatch, error: Exception, said: str
) -> None:
    path, _ = run

    def fail(path: Path) -> Any:
        raise error

    monkeypatch.setattr(episodes, "load_agent", fail)
    page = Page(episodes_section.agent_html(path))
    assert page.text.startswith("No episodes: ")
    assert said in page.text


def agents_run(path: Path, name: str, final: float, kind: str = "federated") -> Group:
    config = {"algorithm.name": "fedagent", "algorithm.model": "m", "federation.kind": kind}
    rounds = {0: {"eval/success": 0.25}, 1: {"eval/success": final}}
    return Group(name, (Run(path / name, config, {}, rounds, [], 0.0),))


def test_many_groups_show_only_the_best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        episodes_section, "agent_html", lambda path, asked: f"<p>agent of {path.name}</p>"
    )
    groups = [agents_run(tmp_path, name, final) for name, final in zip("abcd", (0.1, 0.9, 0.5, 0))]
    all_three = episodes_section.agents_episodes(groups[:3], "eval/success")
    assert all_three == [(name, f"<p>agent of {name}</p>") for name in "abc"]
    only = episodes_section.agents_episodes(groups, "eval/success")
    assert only == [("b", "<p>agent of b</p>")]
    other = Group("p", (Run(tmp_path, {"algorithm.name": "pavg"}, {}, {0: {}}, [], 0.0),))
    assert episodes_section.agents_episodes([other], "eval/return") == []


# Baselines in one report


def test_baselines_are_named_for_people() -> None:
    common = {"algorithm.name": "fedagent", "rounds": 3, "federation.cohort": 0}
    kinds = [
        common | {"federation.kind": "federated", "federation.cohort": 2, "federation.client": 0},
        common | {"federation.kind": "local", "federation.client": 21},
        common | {"federation.kind": "local", "federation.client": 42},
        common | {"federation.kind": "centralized", "federation.client": 0},
    ]
    names = ["FedAgent", "Local (client 21)", "Local (client 42)", "Centralized"]
    assert group_names(kinds) == names
    assert group_names([*kinds, kinds[0] | {"algorithm.lr": 0.1}])[::4] == [
        "FedAgent",
        "FedAgent lr=0.1",
    ]
    methods = [
        {"algorithm.name": "pavg", "federation.kind": "federated"},
        {"algorithm.name": "fedsvrpg-m", "federation.kind": "independent"},
    ]
    assert group_names(methods) == ["pavg", "fedsvrpg-m Independent"]


def test_success_is_in_percent_and_the_start_is_a_dotted_line(tmp_path: Path) -> None:
    groups = [
        agents_run(tmp_path, "FedAgent", 0.75),
        agents_run(tmp_path, "Centralized", 0.5, "centralized"),
    ]
    panel = panels.panel(groups, "eval/success")
    assert panel.share
    assert panel.start == 0.25
    figure = plots.curves([panel])
    figure.draw_without_rendering()
    [axes] = figure.axes
    assert axes.lines[0].get_linestyle() == ":"
    assert axes.lines[0].get_ydata()[0] == 0.25
    labels = [text.get_text() for text in axes.get_yticklabels()]
    assert "40%" in labels
    head = report.headline(groups, "eval/success")
    assert (head.metric, head.finals[0]) == ("success rate", ("FedAgent", "75.0%"))
    groups[1].runs[0].config["algorithm.model"] = "another"
    assert panels.panel(groups, "eval/success").start is None  # no common start
    assert panels.panel(groups, "train/success").start is None


@pytest.mark.slow
def test_no_torch_is_loaded_by_the_page() -> None:
    import subprocess

    program = "import sys, fedrl.report.episodes_section; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@pytest.mark.slow
def test_a_report_of_a_real_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From training to the page, with a model of no skill in a game that walking wins."""
    pytest.importorskip("torch", reason="FedAgent needs the extra llm")
    pytest.importorskip("transformers", reason="FedAgent needs the extra llm")
    from support.agent_runs import WORLD, recipe, train

    from fedrl.envs.household.game import Game
    from fedrl.envs.household.world import Household, Settings
    from fedrl.runs import warmstart

    def arrived(self: Game) -> bool:
        return self.place % 3 == 0 and self.place != self.layout.start

    monkeypatch.setattr(Game, "_goal_holds", arrived)
    world = Household(Settings(**{k: v for k, v in WORLD.items() if k != "name"}))
    how = warmstart.Settings(tasks=40, steps=100, width=32, layers=1, batch=32, lr=1e-2)
    model = warmstart.warmstart(world, how, tmp_path / "model")
    path = train(recipe(model), tmp_path / "runs")
    page = Page(report.build([path]).read_text(encoding="utf-8"))
    kept = episodes.read_episodes(path / episodes.FILE)
    assert kept is not None
    assert kept.round == 2
    assert f"played {WORLD['unseen']} of {WORLD['unseen']} evaluation tasks" in page.text
    dealt = {task.id for task in world.tasks("train")}
    for one in (*kept.best, *kept.worst):
        assert one.task not in dealt
        assert one.goal in one.begin
        assert 1 <= len(one.steps) <= WORLD["max_steps"]
        assert one.steps[0].command == one.steps[0].said.strip()
    assert page.text.count("Won after") == len(kept.best)
    assert page.text.count("Lost after") == len(kept.worst)


def test_a_method_built_on_fedagent_is_shown_like_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what it is: its name is its author's, and its code may be nowhere here."""
    of_agents = {f"algorithm.{f.name}": f.default for f in dataclasses.fields(AgentSettings)}
    own = of_agents | {"algorithm.name": "gone_package.module:DrGRPO"}
    assert trains_agents(own)
    assert trains_agents({"algorithm.name": "fedagent"})  # older runs lack newer settings
    of_texts = {f"algorithm.{f.name}": f.default for f in dataclasses.fields(TextSettings)}
    assert not trains_agents(of_texts | {"algorithm.name": "gone_package.module:Texts"})
    assert not trains_agents({"algorithm.name": "fedrlhf-text", **of_texts})
    assert not trains_agents({"algorithm.name": "pavg"})
    assert not trains_agents({})
    like = agents_run(tmp_path, "a", 0.5).runs[0]
    group = Group("own", (dataclasses.replace(like, config=own),))
    monkeypatch.setattr(episodes_section, "agent_html", lambda path, asked: "played")
    assert episodes_section.agents_episodes([group], "eval/success") == [("own", "played")]
    assert panels.warm_start([group], "eval/success") == 0.25
