"""The model card of an exported language model: a README.md with front matter.

It says what was trained how, on what kind and amount of data, what that cost in privacy, how well
it does and how it is asked, and from which code it comes. Of the data it tells counts and digests
(`core.data_outline`), of the settings numbers and the program's own words: no text of a task, no
name of a category, no path of this machine.
"""

from __future__ import annotations

import dataclasses
import json
import re
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path

import tomli_w

import fedrl
from fedrl.config.schema import Config
from fedrl.core.abilities import SavesModel
from fedrl.core.data_outline import DataOutline
from fedrl.core.intervals import wilson
from fedrl.core.own_data import Pins
from fedrl.core.package_files import render
from fedrl.core.source_code import without_folders
from fedrl.core.types import CodeName, Json, ModelName, Word
from fedrl.llm.warmstart_record import shown_tasks
from fedrl.privacy import accounting
from fedrl.runs import read
from fedrl.runs.model_card_clients import whose
from fedrl.runs.run_dir import RunDir

FILE = "README.md"
UNKNOWN = "unknown"
"""The licence that the hub's cards have where nobody says."""
LICENSE = re.compile(r"\A---\n(?:.*\n)*?license: *['\"]?([\w.+-]+)", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Origin:
    """Where a model comes from: the run's folder, its settings, the round, and who is asked."""

    path: Path
    config: Config
    round: int
    algorithm: SavesModel
    adapters: bool = False
    client: int | None = None  # whose own model it is, if not all clients'


def card(origin: Origin, title: str, license: str = "") -> str:
    """The whole README.md."""
    config, path = origin.config, origin.path
    model = str(config.algorithm.model)
    outline = origin.algorithm.data_outline()
    evaluated, results = _results(origin, outline)
    meta = RunDir(path).read_meta()
    prompt = origin.algorithm.prompt_outline()
    clients, participation = whose(path, config, origin.round)
    return render(
        __package__,
        "model_card.md.jinja",
        title=title,
        front=_front_matter(origin, title, license or _license_of(model)),
        config=config,
        clients=clients,
        participation=participation,
        adapters=origin.adapters,
        lora_rank=config.algorithm.lora_rank,
        base=base_name(model),
        round=origin.round,
        settings=fenced("\n".join(settings_lines(config)), "toml"),
        outline=outline,
        held=sorted(outline.held),
        known=config.engine != "flower" and bool(outline.held),
        content_digest=config.world.digest if isinstance(config.world, Pins) else "",
        shown=len(shown_tasks(model)),
        privacy=[*_own_lines(origin), *privacy_lines(config, _epsilon(origin))],
        evaluated=evaluated,
        results=results,
        prompt=fenced(prompt) if prompt else "",
        answer_tokens=config.algorithm.answer_tokens,
        license=license or _license_of(model),
        version=meta.get("versions", {}).get("fedrl") or fedrl.__version__,
        commit=meta.get("commit") or "not known",
        started=meta.get("started") or "not known",
        run=f"{config.name}/{path.resolve().name}",
    )


def _front_matter(origin: Origin, title: str, license: str) -> str:
    """YAML, of which JSON is a part."""
    algorithm = origin.config.algorithm
    about: Json = {
        "license": license,
        "library_name": "peft" if origin.adapters else "transformers",
        "pipeline_tag": "text-generation",
        "tags": [
            "fedrl",
            "federated-learning",
            "reinforcement-learning",
            without_folders(algorithm.name),
        ],
    }
    base = str(algorithm.model)
    if base_name(base) == base:
        about["base_model"] = base
    return "\n".join(f"{key}: {json.dumps(value)}" for key, value in about.items())


def base_name(model: str) -> str:
    """A model as others may be told it: an id of the hub, or the last part of a path."""
    place = Path(model)
    local = place.exists() or place.is_absolute() or model.startswith(".") or model.count("/") != 1
    return place.name if local else model


def _license_of(model: str) -> str:
    """What the card of the first model says, if it is here."""
    readme = Path(model) / FILE
    if not readme.is_file():
        return UNKNOWN
    found = LICENSE.search(readme.read_text(encoding="utf-8", errors="replace"))
    return found[1] if found else UNKNOWN


# Settings


def settings_lines(config: Config) -> list[str]:
    """What differs from the defaults, as a recipe says it; without texts of one's own and paths."""
    tables = [("", config)] + [
        (f"{field.name}.", getattr(config, field.name))
        for field in dataclasses.fields(config)
        if dataclasses.is_dataclass(getattr(config, field.name))
    ]
    return [line for prefix, table in tables for line in _changed(prefix, table)]


def _changed(prefix: str, table: object) -> Iterator[str]:
    assert dataclasses.is_dataclass(table)
    hints = typing.get_type_hints(type(table), include_extras=True)
    for field in dataclasses.fields(table):
        value = getattr(table, field.name)
        named = field.name == "name" and prefix in ("algorithm.", "world.")
        if (
            field.name in ("out", "name", "connection", "agree", "digests", "borrowed")
            and not named
        ):
            continue
        if (value != field.default or named) and (told := _told(value, hints[field.name])):
            # The key goes by hand: with its points it would be in quotes.
            yield f"{prefix}{field.name} {tomli_w.dumps({'_': told[0]}).strip().removeprefix('_ ')}"


def _told(value: object, hint: object) -> list[object]:
    """The value as it may be told; nothing of what a person may have written."""
    if isinstance(value, bool | int | float):
        return [value]
    if isinstance(value, tuple) and value and typing.get_origin(hint) is tuple:
        parts = [told for each in value for told in _told(each, typing.get_args(hint)[0])]
        return [parts] if len(parts) == len(value) else []
    if not isinstance(value, str):
        return []
    if hint == ModelName:
        return [base_name(value)]
    known = hint in (Word, CodeName) or typing.get_origin(hint) is typing.Literal
    return [without_folders(value)] if known else []


# Privacy


def _epsilon(origin: Origin) -> float | None:
    """ε after the model's round, as the run logged it."""
    logged = read.load(origin.path).rounds
    spent = [
        metrics["privacy/epsilon"]
        for number, metrics in logged.items()
        if number <= origin.round and "privacy/epsilon" in metrics
    ]
    return spent[-1] if spent else None


def _own_lines(origin: Origin) -> list[str]:
    """What the privacy of the updates does not cover."""
    if origin.client is None:
        return []
    return [
        f"This is client {origin.client}'s own model. The adapters that this client kept for "
        "itself, merged here, were learned from its data without any of the protection below, "
        "which is of the shared part; the results are of the shared model, too."
    ]


def privacy_lines(config: Config, epsilon: float | None) -> list[str]:
    """What the clients were promised, plainly."""
    settings = config.privacy
    if config.federation.kind != "federated":
        return [f"None: this is a {config.federation.kind} model, not a federated one."]
    lines = []
    if settings.clip:
        lines.append(f"Each update was scaled down to length {settings.clip:g} (L2) at most.")
    if settings.noise and epsilon is not None:
        delta = settings.delta or accounting.default_delta(config.federation.clients)
        whom = "on the sum" if settings.where == "central" else "by every client on its own update"
        lines.append(
            f"(ε, δ) = ({epsilon:.4g}, {delta:.2g}) for each client, by Gaussian noise of "
            f"multiplier {settings.noise:g} {whom}."
        )
        if settings.seeded:
            lines.append(
                "The noise came from the run's seed: whoever knows it can subtract it, so this ε "
                "is a simulation's and protects nobody."
            )
    else:
        lines.append(
            "No differential privacy: ε is infinite, and nothing bounds what the model remembers "
            "of its clients' data."
        )
    lines.append(
        "Secure aggregation: the server saw only sums of updates."
        if settings.secure
        else "No secure aggregation: the server saw each client's update."
    )
    return lines


# Results


def _results(origin: Origin, outline: DataOutline) -> tuple[int, list[tuple[str, str, str]]]:
    """The last evaluated round, and of each metric its name, before training and then.

    Numbers of single categories and clients (`eval/success_…`) are left out.
    """
    logged = {n: m for n, m in read.load(origin.path).rounds.items() if n <= origin.round}
    evaluated = max((n for n, metrics in logged.items() if _told_metrics(metrics)), default=0)
    now, before = (_told_metrics(logged.get(n, {})) for n in (evaluated, 0))
    rows = []
    for key, value in sorted(now.items()):
        first = before.get(key)
        rows.append(
            (
                key.removeprefix("eval/"),
                "" if first is None else _number(key, first, outline),
                _number(key, value, outline),
            )
        )
    return evaluated, rows


def _told_metrics(metrics: Mapping[str, float]) -> dict[str, float]:
    return {k: v for k, v in metrics.items() if k.startswith(("eval/", "held/")) and "_" not in k}


def _number(key: str, value: float, outline: DataOutline) -> str:
    if key != outline.share or not outline.evaluated or not 0 <= value <= 1:
        return f"{value:.4g}"
    low, high = wilson(value, outline.evaluated)
    return f"{value:.4g} [{low:.3g}, {high:.3g}]"


def fenced(text: str, language: str = "text") -> str:
    """A block of code, whatever it holds."""
    longest = max(map(len, re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"
