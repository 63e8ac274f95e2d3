"""A page read back, and run folders to show on one."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from fedrl.report.run_groups import Group, group_runs
from fedrl.runs.read import load

VOID = {"meta", "img", "br", "hr", "link", "input"}


class Page(HTMLParser):
    """Collects tags, and fails where an element is closed that is not the one last opened."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] != "style":
            self.text += data

    def attributes(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]


def write_run(
    folder: Path,
    *,
    seed: int = 0,
    algorithm: str = 'name = "pavg"',
    name: str = "cartpole",
    final: float = 100.0,
    rounds: int = 10,
    done: int = 10,
    status: str = "finished",
    failures: tuple[tuple[int, int, str], ...] = (),
    world: str = 'name = "cartpole"',
) -> Path:
    """A run whose return rises in a straight line to `final`, evaluated every second round."""
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(
        f"name = {json.dumps(name)}\nseed = {seed}\nrounds = {rounds}\nout = {str(folder)!r}\n"
        f"[federation]\nclients = 4\n[algorithm]\n{algorithm}\n"
        f"[world]\n{world}\n"
    )
    meta = {
        "command": f"fedrl run x.toml --seed {seed}",
        "commit": "abc1234",
        "versions": {"numpy": "2.4.0"},
        "hardware": {"cores": 2},
        "seconds": 90.0,
        "status": status,
    }
    (folder / "meta.json").write_text(json.dumps(meta))
    lines = []
    for r in range(done + 1):
        line: dict[str, Any] = {
            "round": r,
            "train/return": final * r / rounds,
            "env/steps": r * (1000 + seed),
            "comm/bytes_up": r * 1_000_000,
            "comm/bytes_down": r * 2_000_000,
            "cohort/failed": sum(when == r for when, _, _ in failures),
        }
        if r % 2 == 0:
            line |= {"eval/return": final * r / rounds, "eval/grad_norm_sq": 10.0**-r}
        lines.append(json.dumps(line))
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    clients = [
        {"round": when, "client": client, "status": "failed", "reason": reason}
        for when, client, reason in failures
    ]
    clients.append({"round": 1, "client": 0, "status": "ok"})
    (folder / "clients.jsonl").write_text("".join(json.dumps(line) + "\n" for line in clients))
    return folder


def write_runs(
    folder: Path,
    finals: dict[str, list[float]],
    first_seed: int = 0,
    world: str = 'name = "cartpole"',
) -> list[Path]:
    """By method its final returns, a run for each."""
    return [
        write_run(
            folder / f"{name}-{seed}", seed=seed, algorithm=f'name = "{name}"', final=final,
            world=world,
        )
        for name, values in finals.items()
        for seed, final in enumerate(values, first_seed)
    ]  # fmt: skip


def groups(folders: list[Path]) -> list[Group]:
    return group_runs([load(folder) for folder in folders])
