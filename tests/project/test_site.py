"""The documentation as a site: every page is in its navigation, its notebooks run, it builds."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.built_site import site as site
from support.repository import DOCS, ROOT

pytestmark = pytest.mark.slow

NOT_IN_NAV: dict[str, str] = {}
"""Pages of `docs/` that the site leaves out of its navigation, each with the reason."""
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))
PAGES = sorted(
    path.relative_to(DOCS).as_posix()
    for path in DOCS.rglob("*.md")
    if "records" not in path.relative_to(DOCS).parts
)
FETCHED = re.compile(r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["'](?:https?:)?//[^"']+""")
LINKED = re.compile(r"""<link\b(?![^>]*rel=["']canonical)[^>]*href=["'](?:https?:)?//[^"']+""")


def navigation() -> list[str]:
    """Pages that mkdocs.yml names, in order."""
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    return re.findall(r"([\w/-]+\.md)$", text, re.M)


def test_every_page_is_in_the_navigation_once():
    named = navigation()
    assert len(named) == len(set(named))
    notebooks = [f"notebooks/{path.stem}.md" for path in NOTEBOOKS]
    assert sorted([*named, *NOT_IN_NAV]) == sorted([*PAGES, *notebooks])


def test_a_page_for_every_method_and_world():
    """What a recipe can name is explained: by its name on a page of its kind."""
    from fedrl.algorithms import METHODS
    from fedrl.envs import WORLDS

    for folder, table in (("methods", METHODS), ("worlds", WORLDS)):
        text = "\n".join(p.read_text(encoding="utf-8") for p in (DOCS / folder).glob("*.md"))
        for name in table.builtin:
            assert re.search(rf"`{re.escape(name)}`|: (?:algorithm|world) {name} ", text), name


PARTS_OF_A_METHOD = ["The idea", "Pseudocode", "Settings", "Results", "Where we differ"]
METHOD_PAGES = sorted(p for p in (DOCS / "methods").glob("*.md") if p.stem != "index")


@pytest.mark.parametrize("page", METHOD_PAGES, ids=lambda path: path.stem)
def test_a_method_page_has_its_parts_in_order(page: Path):
    """The idea in ten lines with a figure, pseudocode, settings from the code, results, and where
    we differ."""
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^## ([^,\n]*)", text, re.M)  # "Settings, ratings" and "Settings, texts"
    assert list(dict.fromkeys(h for h in headings if h in PARTS_OF_A_METHOD)) == PARTS_OF_A_METHOD
    idea, code = (
        text.split(f"## {name}\n")[1].split("\n## ")[0] for name in ("The idea", "Pseudocode")
    )
    words = [line for line in idea.splitlines() if line.strip() and not line.startswith("!")]
    assert len(words) <= 10
    assert re.search(r"!\[.+\]\(\.\./pictures/\w+\.svg\)", idea)
    assert "```formula\n" in code
    assert re.search(r"^<!-- settings: algorithm ", text, re.M)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_as_it_was_run(notebook: Path):
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    counts = [cell["execution_count"] for cell in cells if cell["cell_type"] == "code"]
    assert counts == list(range(1, len(counts) + 1)), "run it again: make notebooks"
    kinds = {out["output_type"] for cell in cells for out in cell.get("outputs", [])}
    assert "error" not in kinds
    assert "/tmp/" not in notebook.read_text(encoding="utf-8")


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(notebook: Path, tmp_path: Path):
    """As a script, cell after cell, in an empty folder."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    if "flower" in notebook.read_text(encoding="utf-8"):
        pytest.importorskip("flwr", reason='needs the extra flower: pip install "fedrl[flower]"')
    pytest.importorskip("pandas", reason='needs the extra notebook: pip install "fedrl[notebook]"')
    script = tmp_path / "notebook.py"
    script.write_text("\n\n".join(code), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, script],
        cwd=tmp_path,
        env=os.environ | {"MPLBACKEND": "Agg", "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_every_public_name_is_in_the_reference(site: Path):
    import fedrl

    told = (site / "reference" / "api" / "index.html").read_text(encoding="utf-8")
    shown = {anchor.rpartition(".")[2] for anchor in re.findall(r'id="(fedrl\.[\w.]+)"', told)}
    shown |= {"flower"}  # a module: its functions are shown
    assert set(fedrl.__all__) - shown == set()


def test_the_site_builds_without_a_warning_and_fetches_nothing(site: Path):
    built = sorted(site.rglob("*.html"))
    assert len(built) > len(PAGES)
    for page in built:
        text = page.read_text(encoding="utf-8")
        assert not FETCHED.search(text), page
        assert not LINKED.search(text), page
        assert "<!-- settings:" not in text, page
        assert "<!-- recipes" not in text, page
