"""What reads well in the repository and not in a site, changed on the way.

- A link that is called by a file, `[deploy.md](deploy.md)`, is called by that page's title.
- A list within a list is indented by two spaces in the repository; Python-Markdown wants four.
- A block of `formula` has no button to copy it, which would lie over its end; nobody types it.
- A name with dots or slashes, in a heading of the reference or as what is folded, is broken at
  these on a narrow screen, and not within a word.
"""

from __future__ import annotations

import posixpath
import re
from functools import cache

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

NAME = re.compile(r"(<summary>|<span class=\"doc doc-object-name[^\"]*\">)([\w./-]+)")
JOINT = re.compile(r"(?<=[./_])(?=[A-Za-z])")
BY_FILE = re.compile(r"\[`?(?:docs/)?[\w/]+\.md`?\]\(([\w./-]+\.md)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    folder = posixpath.dirname(page.file.src_uri)

    def by_title(found: re.Match[str]) -> str:
        target, anchor = found[1], found[2] or ""
        file = files.get_file_from_path(posixpath.normpath(posixpath.join(folder, target)))
        return found[0] if file is None else f"[{title(file)}]({target}{anchor})"

    text = BY_FILE.sub(by_title, markdown)
    text = re.sub(r"^```formula$", "``` { .text .formula .no-copy }", text, flags=re.M)
    return re.sub(r"^  (?=[-*] )", "    ", text, flags=re.M)


def on_page_content(content: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    return NAME.sub(lambda found: f"{found[1]}{JOINT.sub('<wbr>', found[2])}", content)


@cache
def title(file: File) -> str:
    found = re.search(r"^# (.+)$", file.content_string, re.M)
    return found[1] if found else file.name
