"""Notebooks as pages: `docs/notebooks/NAME.ipynb` with the outputs that are stored in it.

`python docs/hooks/notebook_pages.py` (or `make notebooks`) runs them anew and stores what comes
out, without paths of this machine and without times of cells.
"""

from __future__ import annotations

import base64
import json
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NOTEBOOKS = Path(__file__).resolve().parents[1] / "notebooks"


def on_files(files: Any, *, config: Any) -> Any:
    from mkdocs.structure.files import File

    for notebook in sorted(NOTEBOOKS.glob("*.ipynb")):
        uri = f"notebooks/{notebook.stem}.md"
        pictures: dict[str, str | bytes] = {}
        text = page(json.loads(notebook.read_text(encoding="utf-8")), notebook.name, pictures)
        files.append(File.generated(config, uri, content=text))
        for name, content in pictures.items():
            files.append(
                File.generated(config, f"notebooks/{notebook.stem}/{name}", content=content)
            )
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Links to notebooks lead to their pages; a page's own notebook is there to be downloaded."""
    own = Path(page.file.src_uri).stem if page.file.src_uri.startswith("notebooks/") else ""

    def relinked(found: re.Match[str]) -> str:
        return found[0] if found[2] == own else f"]({found[1]}{found[2]}.md)"

    return re.sub(r"\]\(((?:[\w./]*/)?)(\w+)\.ipynb\)", relinked, markdown)


def page(notebook: dict[str, Any], name: str, pictures: dict[str, str | bytes]) -> str:
    """The notebook in Markdown; `pictures` gets what it shows, by names."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
        elif cell["cell_type"] == "code" and source.strip():
            parts.append(f"```python\n{source}\n```")
            stem = Path(name).stem
            parts += [shown(out, stem, pictures) for out in cell["outputs"]]
    title, _, rest = parts[0].partition("\n")
    link = f"[This page as a notebook]({name}), to run it yourself."
    return "\n\n".join([title, rest.strip(), link, *parts[1:]])


def shown(output: dict[str, Any], stem: str, pictures: dict[str, str | bytes]) -> str:
    data = output.get("data", {})
    if "image/svg+xml" in data:
        name = f"{len(pictures)}.svg"
        pictures[name] = "".join(data["image/svg+xml"])
        return f"![What the cell draws]({stem}/{name})"
    if "image/png" in data:
        name = f"{len(pictures)}.png"
        pictures[name] = base64.b64decode("".join(data["image/png"]))
        return f"![What the cell draws]({stem}/{name})"
    if "text/html" in data:
        inner = re.sub(r"<style.*?</style>", "", "".join(data["text/html"]), flags=re.S)
        return re.sub(r"\n\s*", "\n", inner).strip()
    text = "".join(output.get("text") or data.get("text/plain", ""))
    return f'```text title="output"\n{text.rstrip()}\n```' if text.strip() else ""


def code(notebook: Path) -> Iterator[str]:
    """The code of a notebook, cell by cell."""
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            yield "".join(cell["source"])


def run(notebook: Path) -> None:
    """Run it in an empty folder and store what comes out."""
    import nbformat
    from nbclient import NotebookClient

    document = nbformat.read(notebook, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        NotebookClient(document, timeout=300, resources=resources).execute()
        for cell in document.cells:
            cell.metadata = {}
            for output in cell.get("outputs", []):
                if "text" in output:
                    output.text = output.text.replace(f"{folder}/", "")
    document.metadata = {"language_info": {"name": "python"}}
    notebook.write_text(nbformat.writes(document) + "\n", encoding="utf-8")


if __name__ == "__main__":
    named = [Path(name) for name in sys.argv[1:]] or sorted(NOTEBOOKS.glob("*.ipynb"))
    for one in named:
        run(one)
        print(one)
