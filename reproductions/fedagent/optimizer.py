"""The section of FedAgent's page about AdamW's moments: kept between rounds, or fresh in each.

Its runs are those of `fedrl sweep fedagent/optimizer` and of `fedrl run fedagent/household` with
the flags that the section shows. What they found is kept as records beside the page's pictures, one
per run, so that the section is written without the runs:

    python -m reproductions.fedagent.optimizer RECORDS.json COMMIT RUN…
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedrl.core.atomic_files import write_atomically
from fedrl.runs.grid import LATE, TAIL
from fedrl.runs.read import load
from reproductions.fedagent import numbers
from reproductions.fedagent.claims import told
from reproductions.markdown import table

RECORDS = "optimizer.json"
SUCCESS = "eval/success"
BEFORE = "rebuilt, union of shares"
ROWS = {
    ("demo", "centralized"): "Centralized, the demo",
    ("demo", "local"): "Local 21, the demo",
    ("alfworld", "centralized"): "Centralized, ALFWorld",
    ("alfworld", "local"): "Local 21, ALFWorld",
}
Record = Mapping[str, Any]


def record(folder: Path, commit: str) -> Record:
    """A run in a few numbers: which it is, what it reached, where and how long it took."""
    run = load(folder)
    config = run.config
    kind = config["federation.kind"]
    # The source from before there was a choice rebuilt the optimiser in every round.
    state = config.get("algorithm.optimizer_state", BEFORE)
    if state == "auto":
        state = "fresh" if kind == "federated" else "kept"
    genuine = config.get("world.source") == "alfworld"
    return {
        "world": "alfworld" if genuine else "demo",
        "kind": kind,
        "optimizer_state": state,
        "seed": config.get("seed", 0),
        "success": {str(r): m[SUCCESS] for r, m in run.rounds.items() if SUCCESS in m},
        "failures": len(run.failures),
        "seconds": run.seconds,
        "commit": commit,
        "hardware": run.meta.get("hardware", {}) | {"accelerator": "NVIDIA H200" * genuine},
        "versions": run.meta.get("versions", {}),
    }


def end(found: Record) -> float:
    """The mean of the last evaluations, as everywhere on the page."""
    at = sorted(map(int, found["success"]))
    late = [r for r in at[-TAIL:] if r >= LATE * at[-1]]
    return float(np.mean([found["success"][str(r)] for r in late]))


def by_seed(records: Sequence[Record], world: str, kind: str, state: str) -> numbers.BySeed:
    wanted = {"world": world, "kind": kind, "optimizer_state": state}
    return {one["seed"]: end(one) for one in records if wanted.items() <= one.items()}


def section(pictures: Path) -> str:
    """Nothing where there are no records."""
    file = pictures / RECORDS
    if not file.is_file():
        return ""
    records = json.loads(file.read_text(encoding="utf-8"))
    rows = []
    for (world, kind), title in ROWS.items():
        old, fresh, kept = (
            by_seed(records, world, kind, state) for state in (BEFORE, "fresh", "kept")
        )
        cells = [numbers.shown(found) if found else "–" for found in (old, fresh, kept)]
        difference = numbers.gap(kept, fresh)
        rows.append([title, *cells, "–" if difference is None else told(difference)])
    together = {one["seed"]: end(one) for one in records if one["kind"] == "federated"}
    if together:
        rows.append(["FedAgent, the demo", "–", numbers.shown(together), "–", "–"])
    curves = [_curve(one) for one in records if one["world"] == "alfworld"]
    failed = [one for one in records if one["failures"]]
    head = ("", f"before: {BEFORE}", "fresh", "kept", "kept against fresh, points")
    return f"""## AdamW's moments: kept or fresh

Whoever learns alone keeps AdamW's moments from round to round (`algorithm.optimizer_state`), as a
run in one piece does, and Centralized holds the whole pool of tasks. *Fresh* is the same code with
moments that begin anew in each round; *before* is the older code, whose Centralized held the union
of the clients' shares and whose last minibatch of an epoch could be small. Success in % as above.

{table(head, rows)}

The demo: `fedrl sweep fedagent/optimizer` (60 rounds, 5 seeds, the last two evaluations of 200
tasks). ALFWorld: SmolLM2-135M-Instruct after `fedrl warmstart household --model … --world.source
alfworld --world.max-steps 30 --tasks 180 --times 3 --steps 80 --batch 64 --lr 2e-4 --prompt-tokens
320`, then

    fedrl run fedagent/household --federation.kind centralized --federation.cohort 0 --seed S \\
        --algorithm.format compact --algorithm.answer-tokens 16 --algorithm.prompt-tokens 320 \\
        --algorithm.tasks 16 --algorithm.local-epochs 2 --algorithm.lr 2e-5 \\
        --algorithm.minibatch 256 --algorithm.microbatch 128 --algorithm.temperature 0.7 \\
        --algorithm.kl 0 --algorithm.entropy 0 --algorithm.invalid-penalty 0 \\
        --algorithm.by-episode --world.max-steps 30 --rounds 20 --eval-every 4 --checkpoint-every 20

on 134 unseen games: one evaluation has a standard error of 4 points. By seed and round:

{table(("", "seed", "success by round, %"), curves)}

{len(failed)} of {len(records)} runs had to try a round again, for want of GPU memory beside others.
Every run's record is in [{RECORDS}]({pictures.name}/{RECORDS}), with its commit and machine.
"""


def _curve(one: Record) -> list[str]:
    curve = ", ".join(f"{r}: {100 * value:.1f}" for r, value in one["success"].items())
    return [f"{one['kind']}, {one['optimizer_state']}", str(one["seed"]), curve]


def main(words: Sequence[str]) -> None:
    """Add the records of these runs to the file; a run that is in it is replaced."""
    file, commit = Path(words[0]), words[1]
    known = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else []
    key = ("world", "kind", "optimizer_state", "seed")
    found = {tuple(one[k] for k in key): one for one in known}
    for folder in words[2:]:
        one = record(Path(folder), commit)
        found[tuple(one[k] for k in key)] = one
    text = json.dumps([found[k] for k in sorted(found)], indent=1)
    write_atomically(file, (text + "\n").encode())


if __name__ == "__main__":
    main(sys.argv[1:])
