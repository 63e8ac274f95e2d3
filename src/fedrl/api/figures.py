"""`fedrl.draw`: what the planner, the gap and a partition found, as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedrl.analysis.federation_gap import GapReport
    from fedrl.analysis.partition import PartitionReport
    from fedrl.analysis.plan import PlanReport


def draw(report: PlanReport | GapReport | PartitionReport, file: str | Path) -> Path:
    """Write a .png, .svg or .pdf of what `plan`, `gap` or `partition_tasks` returned; the file."""
    from fedrl.analysis import federation_gap_figure, figure_file, partition_figure, plan_figure
    from fedrl.analysis.federation_gap import GapReport
    from fedrl.analysis.plan import PlanReport

    path = figure_file.figure_path(file)
    if isinstance(report, PlanReport):
        figure = plan_figure.figure(report)
    elif isinstance(report, GapReport):
        figure = federation_gap_figure.figure(report)
    else:
        figure = partition_figure.figure(
            report.shares, report.tasks, report.settings, report.measures, report.labels
        )
    figure_file.save(figure, path)
    return path
