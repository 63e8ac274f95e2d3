"""A tokenizer may make nothing of a prompt: that is one line which says where the prompt lies."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the extra llm")

from support.own_prompts import recipe
from support.prompt_files import ROWS, prompts, write_rows
from tokenizers import Tokenizer, normalizers

from fedrl.cli import call
from fedrl.config.loading import to_toml
from fedrl.core.types import Shareable, UserError
from fedrl.llm.prompts.prompt_format import require_tokens
from fedrl.runs.warmstart import Settings as WarmStart
from fedrl.runs.warmstart import warmstart

pytestmark = pytest.mark.slow
INVISIBLE = "\u200b\u200b"
"""No blank to Python; the tokenizer below drops it."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("model")
    write_rows(place / "sums.jsonl", ROWS[60:])
    how = WarmStart(tasks=10, steps=3, batch=8, width=32, layers=1)
    warmstart(prompts(place / "sums.jsonl", public=0.8, answer="answer"), how, place / "model")
    file = place / "model" / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(file))
    tokenizer.normalizer = normalizers.Replace("\u200b", "")
    tokenizer.save(str(file))
    return place / "model"


def told(folder: Path, model: Path, bad: str, capfd) -> tuple[int, str]:
    """What `fedrl run` says where every prompt of one split is such a one but the first three."""
    for split, rows in (("train", ROWS[:30]), ("test", ROWS[30:40])):
        kept = [row | {"prompt": f"{INVISIBLE}{i * chr(0x200B)}"} if split == bad and i > 2 else row
                for i, row in enumerate(rows)]  # fmt: skip
        (folder / "data").mkdir(exist_ok=True)
        write_rows(folder / "data" / f"{split}.jsonl", kept)
    shutil.copytree(model, folder / "model")
    config = recipe(folder, folder / "runs", partition={"strategy": "uniform", "size": 8})
    text = to_toml(config).replace('source = "sums.jsonl"', f'source = "{folder / "data"}"')
    (folder / "recipe.toml").write_text(text)
    code = call(["run", str(folder / "recipe.toml")])
    return code, capfd.readouterr().err


def test_of_the_evaluation_it_ends_the_run_in_one_line(tmp_path: Path, model: Path, capfd):
    code, err = told(tmp_path, model, "test", capfd)
    assert code == 2
    assert "Traceback" not in err
    (line,) = (line for line in err.splitlines() if line.startswith("error:"))
    assert "world.source, test, line 4: algorithm.model's tokenizer makes no token" in line


def test_of_training_its_clients_fail_with_the_line_and_no_traceback(
    tmp_path: Path, model: Path, capfd
):
    code, err = told(tmp_path, model, "train", capfd)
    assert code == 2  # nobody is left: the quorum
    assert "Traceback" not in err
    assert "makes no token of this prompt" in err
    (run,) = tmp_path.glob("runs/*/*")
    records = [json.loads(line) for line in (run / "clients.jsonl").open()]
    reasons = {record["reason"] for record in records if record["status"] == "failed"}
    assert reasons
    assert all("world.source, train, line " in reason for reason in reasons)
    assert INVISIBLE not in (run / "clients.jsonl").read_text()


def test_what_it_says_may_leave_a_client():
    require_tokens([[1], [2]], ["a", "b"])
    with pytest.raises(UserError, match=r"b: .* no token") as caught:
        require_tokens([[1], []], ["a", "b"])
    assert isinstance(caught.value.args[0], Shareable)
