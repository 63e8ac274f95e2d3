"""What README, CONTRIBUTING and the docs name is there: settings, files, recipes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.repository import DOCS, ROOT

from fedrl.config.renamed import RENAMED

PARTS_OF_THE_SITE = ("start", "concepts", "methods", "worlds", "explain", "reference")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))]
PAGES += [page for folder in PARTS_OF_THE_SITE for page in sorted((DOCS / folder).glob("*.md"))]
FOLDERS = ("src", "reproductions", "benchmarks", "tests", "docs")
SOURCES = [*(ROOT / "src").rglob("*.py"), *(ROOT / "reproductions").rglob("*.py")]
NOT_OURS = {"numpy.py", "org.py", "prepare.py"}
"""Files that an adversary puts somewhere, or that a reader writes after a page."""


def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_calls_a_setting_by_its_old_name(page: Path):
    for old in RENAMED:
        table, _, _ = old.partition(".")
        assert not re.search(rf"(?<![\w.]){re.escape(old)}\b(?!_)", text(page)) or old == table
        assert f"[{old}]" not in text(page)


def test_files_of_python_that_are_named_exist():
    there = {path.name for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")} | NOT_OURS
    missing = {
        (str(file.relative_to(ROOT)), name)
        for file in [*PAGES, *SOURCES]
        for name in re.findall(r"`([\w./-]+\.py)`", text(file))
        if name.rpartition("/")[2] not in there
    }
    assert not missing


def test_imports_inside_functions_of_reproductions_are_there():
    """What is imported late breaks late: hours into a grid."""
    seen = 0
    for file in (ROOT / "reproductions").rglob("*.py"):
        for module in re.findall(r"^ +from (fedrl[\w.]*) import ", text(file), re.M):
            path = (ROOT / "src").joinpath(*module.split("."))
            assert path.is_dir() or path.with_suffix(".py").is_file(), f"{file}: {module}"
            seen += 1
    assert seen > 5
