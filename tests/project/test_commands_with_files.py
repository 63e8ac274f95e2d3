"""Commands of the pages that need what a reader brings: the demo with its warm start, a reward in a
file, customers' folders. As they stand there, but for steps, rounds and few episodes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="language agents need the extra llm")

from support.own_ratings import rows_of, write
from support.page_commands import SHOWN
from support.prompt_files import ROWS, write_rows
from support.repository import DOCS, ROOT

from fedrl.cli import call
from fedrl.datasets.movielens import Ratings
from fedrl.runs.read import load

pytestmark = pytest.mark.slow
MAKEFILE = (ROOT / "Makefile").read_text("utf-8").replace("\\\n", "")
DEMO = re.findall(r"\$\(BIN\)/(fedrl .*)", MAKEFILE.partition("\ndemo:")[2].partition("\n\n")[0])
AGENT = "--rounds 1 --eval_every 1 --algorithm.tasks 2 --algorithm.eval_tasks 4"
REWARD, CUSTOMERS = (
    next(one.line for one in SHOWN if words in one.line)
    for words in ("world.reward ./mine.py:shorter", "held_out clients --algorithm.feedback live")
)
SWEEP, RESUMED = "fedrl sweep fedagent/baselines", "fedrl run --resume RUN --rounds 10"
WITH_FILES = [REWARD, CUSTOMERS, SWEEP, RESUMED]
WARM_START = (
    "fedrl warmstart prompts --out models/sort_digits --steps 3 --tasks 20 "
    "--world.source data/sort_digits --world.answer answer --world.reward exact_match"
)


def done(line: str, flags: str, capfd) -> None:
    assert call([*shlex.split(line)[1:], *shlex.split(flags)]) == 0, capfd.readouterr().err


def test_make_demo(tmp_path: Path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    warm, swept = (" ".join(line.split()) for line in DEMO)
    assert warm.startswith("fedrl warmstart household --out models/household-tiny ")
    assert swept == f"{SWEEP} --out runs/demo"
    done(re.sub("--steps 300", "--steps 3", warm), "", capfd)
    done(swept, AGENT, capfd)
    summaries = [*tmp_path.glob("runs/demo/**/summary.json")]
    assert len(summaries) == 3
    assert all(load(path.parent).status == "finished" for path in summaries)
    (page,) = tmp_path.glob("runs/demo/**/report.html")
    assert str(page.relative_to(tmp_path)) in capfd.readouterr().out


def test_a_reward_in_a_file(tmp_path: Path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    text = (DOCS / "worlds" / "prompts.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(def shorter.*?)```", text, re.S)
    Path("mine.py").write_text(code)
    for number, split in enumerate(("train", "test", "public")):  # none has another's prompts
        write_rows(tmp_path / "data" / "sort_digits" / f"{split}.jsonl", ROWS[number::3])
    done(WARM_START, "", capfd)
    done(REWARD, f"{AGENT} --algorithm.local_epochs 1 --partition.size 6", capfd)
    (run,) = tmp_path.glob("runs/prompts-sort_digits/*")
    returns = [told["eval/return"] for told in load(run).rounds.values() if "eval/return" in told]
    assert max(returns) <= 0  # paid by the file's reward: less for longer answers


def test_customers_of_a_shop_are_asked(tmp_path: Path, monkeypatch, capfd):
    """Two customers instead of ten: the first round asks them, and the resumed run goes on."""
    monkeypatch.chdir(tmp_path)
    north = rows_of("north")
    for folder, user in (("public", 3), ("customer0", 1), ("customer1", 2)):
        theirs = north.user == user
        bought = Ratings(*(column[theirs] for column in north[:4]), north.movies)
        write(tmp_path / "data" / folder / "movielens", bought)
    done(CUSTOMERS.replace("--federation.clients 10", "--federation.clients 2"), "", capfd)
    (run,) = tmp_path.glob("runs/fedrlhf-movielens/*")
    asked = [*tmp_path.glob("private/client-*/questions.jsonl")]
    assert len(asked) == 2
    assert all(path.read_text().count("\n") > 5 for path in asked)
    done(RESUMED.replace("RUN", str(run)).replace("10", "2"), "", capfd)
    assert load(run).status == "finished"
