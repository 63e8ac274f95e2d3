"""Tables as people read them: verdicts in colour, numbers in one piece, and cards on a phone.

- A verdict ("holds", "undecided", "prevented") is given a class; its word stays, so that colour is
  never all that says it.
- "3.1 ± 0.2" is not broken over two lines, and a long word in code may be: after a slash, say.
- `\\|` in code is a pipe, as it is in the repository.
- A long sentence is marked, so that other columns do not squeeze it.
- A table with sentences in three or more columns is a list of cards on a narrow screen
  (`site.css`), where every cell says the name of its column; the first only where it is a number,
  which says nothing by itself. Roles keep it a table for a screen reader, who would lose it with
  the table's layout.
"""

from __future__ import annotations

import html
import re

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

VERDICTS = {
    "holds": "yes",
    "prevented": "yes",
    "does not hold": "no",
    "undecided": "open",
    "detected": "open",
    "possible": "open",
    "not judged": "none",
    "not measured": "none",
    "nothing was learned": "none",
    "withdrawn": "none",
}
WORDS = "|".join(VERDICTS)
TABLE = re.compile(r"<table>.*?</table>", re.S)
ROW = re.compile(r"<tr>(.*?)</tr>", re.S)
CELL = re.compile(r"<(t[hd])([^>]*)>(.*?)</\1>", re.S)
FIRST = re.compile(rf"^({WORDS})(?=$| [◦†(])")
"""A cell that begins with one in plain words."""
STRONG = re.compile(rf"<strong>({WORDS})</strong>")
CODE = re.compile(r"<code>([^<]{20,})</code>")
LONG = re.compile(r"\S{20,}")
"""A word of code that a column of a phone has no room for."""
NUMBER = re.compile(r"[-+−\d.,]+")
SENTENCE = 24
"""Signs from which on a cell holds words rather than a number or a name."""


def on_page_content(content: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    return TABLE.sub(lambda found: changed(found[0]), content)


def changed(table: str) -> str:
    heads = [text_of(cell) for _, _, cell in CELL.findall(table.partition("</thead>")[0])]
    cards = len(heads) > 2 and any(
        len(text_of(cell)) > SENTENCE for kind, _, cell in CELL.findall(table) if kind == "td"
    )

    def row(found: re.Match[str]) -> str:
        labels = iter(heads)
        inside = CELL.sub(lambda one: cell(*one.groups(), next(labels, "")), found[1])
        return f'<tr role="row">{inside}</tr>' if cards else f"<tr>{inside}</tr>"

    def cell(kind: str, attributes: str, inside: str, label: str) -> str:
        if kind == "td" and len(text_of(inside)) > 2 * SENTENCE:
            attributes += " data-long"
        if cards:
            role = "columnheader" if kind == "th" else "cell"
            attributes += f' role="{role}"'
            if kind == "td" and NUMBER.fullmatch(text_of(inside)):
                attributes += " data-number"
            if kind == "td" and label:
                attributes += f' data-label="{html.escape(label)}"'
        return f"<{kind}{attributes}>{readable(inside)}</{kind}>"

    done = ROW.sub(row, table)
    return done.replace("<table>", '<table data-rows="cards" role="table">') if cards else done


def readable(inside: str) -> str:
    """A cell with its verdicts marked, its intervals whole and its long names divisible."""
    text = re.sub(r"<code>[^<]*</code>", lambda found: found[0].replace(r"\|", "|"), inside)
    text = FIRST.sub(lambda found: marked("span", found[1]), text)
    text = STRONG.sub(lambda found: marked("strong", found[1]), text)
    text = re.sub(r"(?<=\d) ± (?=\d)", "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}", text)
    return CODE.sub(
        lambda found: f"<code>{LONG.sub(lambda word: divisible(word[0]), found[1])}</code>", text
    )


def marked(tag: str, word: str) -> str:
    return f'<{tag} class="verdict {VERDICTS[word]}">{word}</{tag}>'


def divisible(name: str) -> str:
    return re.sub(r"(::|[/_.=,])(?=[^/_.=,:]{2})", r"\1<wbr>", name)


def text_of(inside: str) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", inside)).strip()
