"""`fedrl serve`: the endpoint answers as evaluation and plain transformers do, and it ends."""

from __future__ import annotations

import importlib.util
import json
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="language models need torch (fedrl[llm])")
pytest.importorskip("transformers", reason="language models need transformers (fedrl[llm])")

from support.agent_runs import recipe, train
from support.children import python
from support.repository import ROOT
from support.small_talkers import talker

import fedrl
from fedrl.cli import call
from fedrl.runs import serving
from fedrl.runs.agents import load_agent

pytestmark = pytest.mark.slow

LACKING = [name for name in serving.NEEDED["transformers"] if not importlib.util.find_spec(name)]
needs_server = pytest.mark.skipif(
    bool(LACKING), reason=f"{', '.join(LACKING)}: not installed (fedrl[serve])"
)
WORDS = "go to take from move open close the a you see cabinet fridge 1 mug < > action / think"
OWN = "{% for m in messages %}{{ m.role }} : {{ m.content }} {% endfor %}assistant :"


def trained(folder: Path, format: str) -> fedrl.Run:
    """An agent of no skill, after a round."""
    model = talker(folder / "model", WORDS, OWN if format == "chat" else "", lively=True)
    how = {"format": format, "thinking": False, "eval_temperature": 0.0, "eval_tasks": 3}
    return fedrl.Run(train(recipe(model, rounds=1, algorithm=how), folder / "runs"))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> fedrl.Run:
    return trained(tmp_path_factory.mktemp("served"), "compact")


def posted(url: str, body: dict) -> dict:
    asked = urllib.request.Request(
        url, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with serving.OPENER.open(asked, timeout=60) as answer:
        return json.load(answer)


@needs_server
@pytest.mark.parametrize("format", ["compact", "chat"])
def test_evaluation_transformers_and_the_endpoint_say_the_same(format: str, tmp_path: Path) -> None:
    run = trained(tmp_path, format)
    agent, newest = load_agent(run.path)
    played = agent.play_tasks(newest.states[0]["theta"], agent.eval_tasks, 0).transcripts
    evaluated = {prompt: said for steps in played for prompt, said, _ in steps}
    run.export(tmp_path / "agent")
    plain = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "endpoint" / "plain.py"), str(tmp_path / "agent")],
        input=json.dumps(list(evaluated)), capture_output=True, text=True, check=True,
    )  # fmt: skip
    with run.serve(server="transformers") as endpoint:
        said = [
            posted(
                f"{endpoint.url}/chat/completions",
                {
                    "model": endpoint.model, "temperature": 0, "max_tokens": 6,
                    "messages": [{"role": "user", "content": prompt}],
                },
            )["choices"][0]["message"]["content"]
            for prompt in evaluated
        ]  # fmt: skip
        completed = {
            prompt: posted(
                f"{endpoint.url}/completions",
                {"prompt": prompt, "temperature": 0, "max_tokens": 6},
            )["choices"][0]["text"]
            for prompt in list(evaluated)[:2]
        }
    assert said == list(evaluated.values())
    assert json.loads(plain.stdout) == said
    assert run.policy().act(list(evaluated)) == said
    assert len(set(said)) > 1, "answers that cannot differ show nothing"
    if format == "compact":
        assert completed.items() <= evaluated.items()


@needs_server
def test_the_command_serves_until_ctrl_c(
    run: fedrl.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("-m", "fedrl", "serve", str(run.path), "--port", "0", "--server", "transformers")
    monkeypatch.setenv("HF_HOME", str(tmp_path))  # that of a user who never fetched a model
    with python(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        first = process.stdout.readline()
        url = first.split(" answers at ")[1].split()[0]
        process.stdout.readline()
        curl = process.stdout.readline()
        assert curl.startswith(f"curl {url}/chat/completions -H ")
        asked = json.loads(curl.split(" -d '")[1].rstrip("'\n"))
        agent, _ = load_agent(run.path)
        assert "TASK" not in asked["messages"][0]["content"]  # of a task, not of any
        assert asked["messages"] == agent.first_messages()
        with urllib.request.urlopen(f"{url}/models") as models:
            assert models.status == 200
        answer = posted(f"{url}/chat/completions", asked)
        assert answer["choices"][0]["message"]["role"] == "assistant"
        process.send_signal(signal.SIGINT)
        said, wrong = process.communicate(timeout=60)
    assert process.returncode == 0, wrong
    assert "the server is stopped" in said
    port = int(url.split(":")[2].split("/")[0])
    with socket.socket() as probe:  # nobody listens there any more
        assert probe.connect_ex(("127.0.0.1", port)) != 0


@needs_server
def test_a_killed_command_takes_its_server_along(run: fedrl.Run) -> None:
    if sys.platform != "linux":
        pytest.skip("only Linux's kernel sees to it")
    words = ("-m", "fedrl", "serve", str(run.path), "--port", "0", "--server", "transformers")
    with python(*words, stdout=subprocess.PIPE, text=True) as process:
        port = int(process.stdout.readline().split(":")[2].split("/")[0])
        process.kill()
        process.wait()
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) != 0:
                    return
            time.sleep(0.1)
    raise AssertionError("the server still listens")


def test_the_model_is_exported_once_for_a_checkpoint(run: fedrl.Run) -> None:
    first, request = serving.exported(run.path)
    (first / "mark").touch()
    again, _ = serving.exported(run.path)
    assert (again / "mark").exists()
    assert first.is_relative_to(run.path / "exports")
    assert (first / "README.md").is_file()
    asked = json.loads(request)
    assert (asked["model"], asked["temperature"], asked["max_tokens"]) == (first.name, 0, 6)
    assert fedrl.Run(run.path).round == 1  # it is still a run
    assert len(fedrl.load(str(run.path.parent / "*"))) == 1


def test_the_servers_are_started_with_their_own_arguments() -> None:
    assert serving.words("transformers", "mine", "127.0.0.1", 80) == [
        "transformers.cli.transformers", "serve", "mine", "--host", "127.0.0.1", "--port", "80",
    ]  # fmt: skip
    assert serving.words("vllm", "mine", "127.0.0.1", 80) == [
        "vllm.entrypoints.openai.api_server", "--model", "mine", "--served-model-name", "mine",
        "--host", "127.0.0.1", "--port", "80",
    ]  # fmt: skip


VLLM = """
import json, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
told = dict(zip(sys.argv[1::2], sys.argv[2::2]))
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        import os
        self.send_response(200 if self.path in ("/health", "/told") else 404)
        self.end_headers()
        seen = {"told": told, "model": os.path.isfile(told["--model"] + "/config.json")}
        self.wfile.write(json.dumps(seen | {"offline": os.environ["HF_HUB_OFFLINE"]}).encode())
HTTPServer((told["--host"], int(told["--port"])), Handler).serve_forever()
"""


def test_vllms_server_is_called_as_documented(run: fedrl.Run, tmp_path: Path, monkeypatch) -> None:
    """A stand-in: how it is called, not what it answers."""
    place = tmp_path / "vllm" / "entrypoints" / "openai"
    place.mkdir(parents=True)
    for folder in (place, place.parent, place.parent.parent):
        (folder / "__init__.py").touch()
    (place / "api_server.py").write_text(VLLM)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with run.serve(server="vllm") as endpoint:
        with serving.OPENER.open(endpoint.url.replace("/v1", "/told")) as answer:
            seen = json.load(answer)
        port = endpoint.url.split(":")[2].split("/")[0]
    assert seen["told"] == {
        "--model": endpoint.model, "--served-model-name": endpoint.model, "--host": "127.0.0.1",
        "--port": port,
    }  # fmt: skip
    assert seen["model"]
    assert seen["offline"] == "1"


@pytest.mark.parametrize("server", ["transformers", "vllm"])
def test_a_missing_package_is_one_line(run: fedrl.Run, server: str, monkeypatch, capsys) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert call(["serve", str(run.path), "--server", server]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"error: the server of {server} needs {serving.NEEDED[server][0]}")
    assert "pip install" in told
    assert told.count("\n") == 1


def test_auto_is_vllm_where_it_is_installed_and_there_is_a_gpu(monkeypatch) -> None:
    installed, gpu = {"vllm", *serving.NEEDED["transformers"]}, [True]
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: name if name in installed else None
    )
    monkeypatch.setattr(serving, "_sees_gpu", lambda: gpu[0])
    assert serving.chosen_server("auto") == "vllm"
    gpu[0] = False
    assert serving.chosen_server("auto") == "transformers"
    gpu[0] = True
    installed.remove("vllm")
    assert serving.chosen_server("auto") == "transformers"
    with pytest.raises(fedrl.UserError, match=r"--server is 'vlm'.*vllm"):
        serving.chosen_server("vlm")


def test_a_port_that_cannot_be_had_is_one_line(run: fedrl.Run, monkeypatch, capsys) -> None:
    monkeypatch.setattr(serving, "chosen_server", lambda server: "transformers")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert call(["serve", str(run.path), "--port", port]) == 2
        assert f"port {port} is in use" in capsys.readouterr().err
    assert call(["serve", str(run.path), "--port", "70000"]) == 2
    assert "from 1 to 65535" in capsys.readouterr().err
    assert call(["serve", str(run.path), "--host", "203.0.113.1"]) == 2
    assert "cannot be had" in capsys.readouterr().err


def test_a_server_that_does_not_start_says_why(run: fedrl.Run, monkeypatch, capsys) -> None:
    monkeypatch.setattr(serving, "chosen_server", lambda server: "transformers")
    monkeypatch.setattr(serving, "words", lambda *_: ["no_such_module_of_ours"])
    assert call(["serve", str(run.path), "--port", "0"]) == 2
    told = capsys.readouterr().err
    assert "did not start: " in told
    assert "No module named no_such_module_of_ours" in told


def test_a_run_without_a_text_model_is_refused(tmp_path: Path, monkeypatch, capsys) -> None:
    pytest.importorskip("jax", reason="needs the extra classic")
    monkeypatch.setattr(serving, "chosen_server", lambda server: "transformers")
    table = {"algorithm": {"name": "pavg"}, "world": {"name": "random_mdp"}, "rounds": 1}
    run = fedrl.run({**table, "out": str(tmp_path), "federation": {"clients": 2}})
    assert call(["serve", str(run.path), "--port", "0"]) == 2
    assert "is a run of pavg, which trains no text model" in capsys.readouterr().err
