"""`fedrl serve`: a run's language model behind an OpenAI-compatible endpoint.

The server is transformers' own (`transformers serve`) or vLLM's, started as a child on loopback
over the exported model, which is kept in the run's folder under `exports/` and made once for every
checkpoint. It has no password: whoever reaches the address may ask. What the server says goes into
`server-PORT.log` beside the model.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import json
import os
import re
import shlex
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Protocol, get_args, runtime_checkable

import fedrl
from fedrl.core import child_process
from fedrl.core.abilities import SavesModel
from fedrl.core.registry import suggestion
from fedrl.core.types import Json, UserError
from fedrl.runs import provenance
from fedrl.runs.agents import build, newest_checkpoint
from fedrl.runs.checkpoint import round_of
from fedrl.runs.exports import export
from fedrl.runs.run_dir import RunDir

ServerName = Literal["auto", "transformers", "vllm"]
NEEDED = {"transformers": ("fastapi", "uvicorn", "openai", "pydantic"), "vllm": ("vllm",)}
"""Packages beside those of language models."""
WORDS = {
    "transformers": ("transformers.cli.transformers", "serve"),
    "vllm": ("vllm.entrypoints.openai.api_server", "--model"),
}
QUIET = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_UPDATE_CHECK": "1", "VLLM_NO_USAGE_STATS": "1"}
"""All that is served is here: nothing is fetched, and nothing is told."""
EXPORTS, LOG = "exports", "server-{port}.log"
CACHE = "hub"
"""An empty one: the server lists it (and fails if it is not there), and other models that a user
fetched are not for those who ask this one."""
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Where the machine itself finds a server that listens on all its addresses."""
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Endpoint:
    """A server that answers, until `close`. `url` ends with /v1, `model` is what requests name."""

    def __init__(
        self, process: subprocess.Popen[bytes], url: str, folder: Path, log: Path, request: str
    ) -> None:
        self._process, self._request = process, request
        self.url, self.folder, self.model, self.log = url, folder, folder.name, log

    def __repr__(self) -> str:
        return f"<fedrl.Endpoint {self.url} of {self.model}>"

    @property
    def curl(self) -> str:
        """A line that asks it something."""
        place = f"{self.url}/chat/completions"
        return f"curl {place} -H 'Content-Type: application/json' -d {shlex.quote(self._request)}"

    def wait(self) -> None:
        """Until the server ends, which it does not by itself."""
        self._process.wait()
        raise UserError(f"the server has ended: {_last_line(self.log)}")

    def close(self) -> None:
        child_process.stop([self._process])

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def serve(path: Path, host: str, port: int, server: ServerName) -> Endpoint:
    """Start the server, and wait until it answers."""
    name = chosen_server(server)
    port = _free_port(host, port)
    folder, request = exported(path)
    log, cache = folder.parent / LOG.format(port=port), folder.parent / CACHE
    cache.mkdir(exist_ok=True)
    with log.open("wb") as said:
        process = subprocess.Popen(
            [*child_process.python(), "-P", "-m", *words(name, folder.name, host, port)],
            cwd=folder.parent,  # so the model is called by its name, not by a path
            env=os.environ | QUIET | {"HF_HUB_CACHE": str(cache)},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,  # Ctrl-C is the parent's to handle
        )
    reached = EVERYWHERE.get(host, host)
    address = f"http://{f'[{reached}]' if ':' in reached else reached}:{port}"
    endpoint = Endpoint(process, f"{address}/v1", folder, log, request)
    try:
        while not _answers(f"{address}/health"):
            if process.poll() is not None:
                raise UserError(f"the server of {name} did not start: {_last_line(log)}")
            time.sleep(0.2)
    except BaseException:
        endpoint.close()
        raise
    return endpoint


def words(server: str, model: str, host: str, port: int) -> list[str]:
    """The server's module and its arguments."""
    module, first = WORDS[server]
    named = ["--served-model-name", model] if server == "vllm" else []
    return [module, first, model, *named, "--host", host, "--port", str(port)]


def chosen_server(server: str) -> str:
    """transformers or vllm; `auto` is vLLM where it is installed and PyTorch sees a GPU."""
    if server not in get_args(ServerName):
        raise UserError(f"--server is {server!r}; {suggestion(server, list(get_args(ServerName)))}")
    if server == "auto":
        server = "vllm" if not _lacking("vllm") and _sees_gpu() else "transformers"
    if lacking := _lacking(server):
        how = provenance.installs("serve") if server == "transformers" else "pip install vllm"
        raise UserError(f"the server of {server} needs {', '.join(lacking)}: {how}")
    return server


def _lacking(server: str) -> list[str]:
    return [name for name in NEEDED[server] if importlib.util.find_spec(name) is None]


def _sees_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def exported(path: Path) -> tuple[Path, str]:
    """The newest checkpoint as a model folder in the run's own, and a request to try it with."""
    config, algorithm = build(path)
    if not isinstance(algorithm, SavesModel):
        raise UserError(f"{path} is a run of {config.algorithm.name}, which trains no text model")
    snapshot = newest_checkpoint(path, config)
    (file,) = (c for c in RunDir(path).checkpoints() if round_of(c) == snapshot.round)
    folder = path.resolve() / EXPORTS / f"{file.stem}-{fedrl.__version__}" / config.name
    if not folder.exists():
        export(path, folder)
    return folder, json.dumps(
        {
            "model": folder.name,
            "messages": first_messages(algorithm),
            "temperature": 0,
            "max_tokens": config.algorithm.answer_tokens,
        },
        ensure_ascii=False,
    )


@runtime_checkable
class AsksFirst(Protocol):
    """An agent in a world with tasks that are nobody's secret."""

    def first_messages(self) -> Sequence[Json]: ...


def first_messages(algorithm: SavesModel) -> list[Json]:
    """A task to try it with; where none is to be had, how prompts look."""
    with contextlib.suppress(UserError, OSError):  # a world on a server that is away
        if isinstance(algorithm, AsksFirst) and (asked := algorithm.first_messages()):
            return list(asked)
    return [{"role": "user", "content": algorithm.prompt_outline() or "…"}]


def _free_port(host: str, port: int) -> int:
    """The port, or a free one for 0; one line if it cannot be had."""
    kind = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with contextlib.closing(socket.socket(kind, socket.SOCK_STREAM)) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
            return int(probe.getsockname()[1])
    except OverflowError as error:
        raise UserError(
            f"--port is {port}; choose one from 1 to 65535, or 0 for any free one"
        ) from error
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise UserError(f"port {port} is in use; choose another with --port") from error
        raise UserError(f"--host {host} --port {port} cannot be had: {error.strerror}") from error


def _answers(health: str) -> bool:
    try:
        with OPENER.open(health, timeout=5.0) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def _last_line(log: Path) -> str:
    """What the server said last, and where the rest is."""
    lines = [line for line in log.read_text("utf-8", errors="replace").splitlines() if line.strip()]
    said = re.sub(r"\x1b\[[0-9;]*m", "", lines[-1]).strip()[:200] if lines else "it said nothing"
    return f"{said} ({log})"
