"""The result page of FedRLHF: ours with intervals, the paper's numbers, and computed verdicts.

Every number comes from a run folder or from a bound that was measured and kept. What was not
measured, or not to its end, is named.
"""

from __future__ import annotations

from pathlib import Path

from reproductions.fedqhd.numbers import prose

from fedrl.core.number_format import duration
from reproductions.fedagent.page import machine
from reproductions.fedrlhf import feedback, imdb, movielens, theory, tradeoff
from reproductions.fedrlhf.claims import claims
from reproductions.fedrlhf.results import Found, Results
from reproductions.markdown import missing, table


def write(results: Results, scale: str, page: Path) -> None:
    pictures = page.with_suffix("")
    sections = [
        heading(results, scale),
        claims(results),
        *(movielens.section(results, k, pictures) for k in results.scale.clients),
        feedback.section(results),
        tradeoff.section(results, pictures),
        theory.section(results.bound, pictures),
        *(imdb.section(found, name, pictures) for name, found in results.texts.items()),
    ]
    if "full" not in results.texts and scale != "smoke":
        sections.append(missing(imdb.TITLES["full"]))
    sections += [left_out(results), costs(results)]
    page.write_text("\n\n".join(filter(None, sections)) + "\n", encoding="utf-8")


def heading(results: Results, scale: str) -> str:
    ran = list(results.runs())
    commits = sorted({str(run.meta["commit"]) for run in ran if run.meta.get("commit")})
    machines = sorted({machine(run) for run in ran})
    commands = "\n".join(
        f"    fedrl reproduce fedrlhf --scale {name}"
        for name in dict.fromkeys((*(n for n, f in results.texts.items() if any(
            one.runs for one in f.values())), scale))
    )  # fmt: skip
    before = """Paper: *FedRLHF: a convergence-guaranteed federated framework for privacy-preserving
        and personalized RLHF*. Everything below was written by"""
    stand_in = ""
    if not results.genuine:
        stand_in = """

            **The ratings of this page are generated**: a stand-in with MovieLens's schema, whose
            numbers cannot be compared with the paper's."""
    after = f"""which keeps every run and goes on where it was stopped (`--processes 0` writes the
        page of what is there, `--only PART` computes one part). Hardware:
        {"; ".join(machines) or "unknown"}. Commits (+: with local changes):
        {", ".join(commits) or "unknown"}.

        ± is a 95% t-interval over seeds unless it says otherwise. Nothing is scored on what was
        trained on, with one exception that is marked as no evaluation.{stand_in}"""
    return "\n\n".join([
        "# FedRLHF: human feedback that never leaves the client", prose(before), commands,
        prose(after),
    ])  # fmt: skip


def by_name(results: Results) -> dict[str, Found]:
    """Parts, IMDb's with their scale."""
    reviews = {f"imdb, {scale}": found for scale, found in results.texts.items()}
    return {**results.parts, **reviews}


def left_out(results: Results) -> str:
    """Runs that are not there, or not to their end."""
    named = by_name(results)
    told = [
        f"{part}, {one.cell.name}: {line}"
        for part, found in named.items()
        if any(one.runs for one in found.values())
        for one in found.values()
        if (line := one.missing())
    ]
    return "## Missing\n\n" + "\n".join(f"- {line}" for line in told) if told else ""


def costs(results: Results) -> str:
    named = by_name(results)
    rows = []
    for part, found in named.items():
        ran = [run for one in found.values() for run in one.runs.values()]
        if ran:
            rows.append([
                part, str(len(ran)), duration(sum(run.seconds for run in ran)),
                ", ".join(sorted({str(run.meta.get("processes", "?")) for run in ran})),
                ", ".join(sorted({str(run.meta.get("commit") or "unknown") for run in ran})),
            ])  # fmt: skip
    text = "Seconds of computation added up over runs, which share the machine."
    head = ("part", "runs", "time", "runs at a time", "commit")
    return "\n\n".join(["## What it took", prose(text), table(head, rows)])
