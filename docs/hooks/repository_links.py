"""Links of the documentation that lead out of `docs/` become pages of the site.

The pages of `docs/` are read in the repository too, where `../src/fedrl/core/types.py` is a file.
In the site that file is a page under `source/`, made here with the code in it: nothing has to be
fetched from anywhere, and a link to what is not there stops the build.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\])\(([^)\s#]*)(#[^)\s]*)?\)")
LANGUAGES = {".py": "python", ".toml": "toml", ".json": "json", ".sh": "bash", ".yml": "yaml"}
PICTURES = (".png", ".svg", ".gif")
NOT_SHOWN = re.compile(r"__pycache__|\.egg-info|^\.")
UNSEARCHED = "---\nsearch:\n  exclude: true\n---\n"


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    made: set[str] = set()
    open_pages = [
        (file.src_uri, file.content_string) for file in files if file.is_documentation_page()
    ]
    while open_pages:
        where, text = open_pages.pop()
        for place in outside(where, text):
            if (uri := page_of(place)) in made:
                continue
            made.add(uri)
            if uri.endswith(".md"):
                content = shown(place)
                files.append(File.generated(config, uri, content=content))
                open_pages.append((uri, content))
            else:
                path = str(ROOT / place)
                files.append(File.generated(config, uri, abs_src_path=path))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    here = page.file.src_uri

    def relinked(found: re.Match[str]) -> str:
        text, target, anchor = found[1], found[2], found[3] or ""
        place = repository_path(here, target)
        if place is None:
            return found[0]
        if of_docs(place):
            uri = place.removeprefix("docs/")
        else:
            uri, anchor = page_of(place), anchor if place.endswith(".md") else ""
        return f"{text}({posixpath.relpath(uri, posixpath.dirname(here) or '.')}{anchor})"

    return outside_code(markdown, lambda text: LINK.sub(relinked, text))


def outside_code(markdown: str, change: Callable[[str], str]) -> str:
    """The text with all of it changed but fenced and indented blocks, where nothing is a link."""
    lines, fence = [], ""
    for line in markdown.split("\n"):
        mark = re.match(r"\s*(`{3,}|~{3,})", line)
        if mark and (not fence or mark[1].startswith(fence)):
            fence = "" if fence else mark[1]
            lines.append(line)
        else:
            lines.append(line if fence or line.startswith("    ") else change(line + "\n")[:-1])
    return "\n".join(lines)


def outside(where: str, text: str) -> Iterator[str]:
    """Files and folders of the repository, not of `docs/`, that a page links to."""
    found: list[str] = []

    def noted(part: str) -> str:
        found.extend(target for _, target, _ in LINK.findall(part))
        return part

    outside_code(text, noted)
    for target in found:
        place = repository_path(where, target)
        if place is not None and not of_docs(place):
            yield place


def repository_path(where: str, target: str) -> str | None:
    """Where a link of the page `where` leads in the repository; None where it can stay."""
    if not target or re.match(r"[a-z]+:|/", target):
        return None
    if where.startswith("source/"):
        folder = posixpath.dirname(place_of(where))
        if (ROOT / place_of(where)).is_dir():
            folder = place_of(where)
    else:
        folder = posixpath.join("docs", posixpath.dirname(where))
    place = posixpath.normpath(posixpath.join(folder, target))
    if place.startswith("docs/") and not where.startswith("source/"):
        return place if (ROOT / place).is_dir() else None
    return place


def of_docs(place: str) -> bool:
    """Whether it is a page or picture that the site has anyhow."""
    return place.startswith("docs/") and not (ROOT / place).is_dir()


def page_of(place: str) -> str:
    """What of the site shows a file or folder; pictures are shown as they are."""
    if place.endswith(PICTURES):
        return f"source/{place}"
    return f"source/{place.removesuffix('.md')}.md"


def place_of(uri: str) -> str:
    """The file or folder behind a page of `source/`."""
    bare = uri.removeprefix("source/").removesuffix(".md")
    return bare if (ROOT / bare).exists() else f"{bare}.md"


def shown(place: str) -> str:
    """A page with what lies there: a folder's README or its files, a text, code."""
    path = ROOT / place
    if path.is_dir():
        readme = path / "README.md"
        if readme.is_file():
            return UNSEARCHED + readme.read_text(encoding="utf-8")
        inside = sorted(p for p in path.iterdir() if not NOT_SHOWN.search(p.name))
        lines = [
            f"- {p.name}" if p.suffix == ".json" else f"- [{p.name}]({p.name})" for p in inside
        ]
        return UNSEARCHED + "\n".join([f"# {place}\n", *lines, ""])
    if not path.is_file():
        raise FileNotFoundError(f"a page links to {place}, which is not in the repository")
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return UNSEARCHED + text
    language = LANGUAGES.get(path.suffix, "text")
    return f"{UNSEARCHED}# {place}\n\n````{language}\n{text}\n````\n"
