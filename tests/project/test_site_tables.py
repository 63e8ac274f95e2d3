"""Tables of the site: verdicts are marked, intervals stay whole, sentences become cards."""

from __future__ import annotations

import importlib.util

import pytest
from support.repository import DOCS

pytest.importorskip("mkdocs", reason='needs the extra docs: pip install "fedrl[docs]"')
SPEC = importlib.util.spec_from_file_location("tables", DOCS / "hooks" / "tables.py")
tables = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(tables)


def made(head: list[str], *rows: list[str]) -> str:
    def line(kind: str, cells: list[str]) -> str:
        return "<tr>\n" + "".join(f"<{kind}>{cell}</{kind}>\n" for cell in cells) + "</tr>\n"

    body = "".join(line("td", row) for row in rows)
    text = f"<table>\n<thead>\n{line('th', head)}</thead>\n<tbody>\n{body}</tbody>\n</table>"
    return tables.changed(text)


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        ("<strong>holds</strong> ◦", '<strong class="verdict yes">holds</strong> ◦'),
        ("not measured", '<span class="verdict none">not measured</span>'),
        ("not judged (+1)", '<span class="verdict none">not judged</span> (+1)'),
        ("it holds", "it holds"),
        ("3.1 ± 0.2", "3.1\u00a0±\u00a00.2"),
        (r"<code>[B, \|A\|]</code>", "<code>[B, |A|]</code>"),
        ("<code>--short.name</code>", "<code>--short.name</code>"),
        (
            "<code>fedrl run fedagent/household_7b_lora</code>",
            "<code>fedrl run fedagent/<wbr>household_<wbr>7b_<wbr>lora</code>",
        ),
        (
            "<code>tests/attacks/test_own_epsilon.py::test_it</code>",
            "<code>tests/<wbr>attacks/<wbr>test_<wbr>own_<wbr>epsilon.<wbr>py::<wbr>test_<wbr>it</code>",
        ),
    ],
)
def test_a_cell_is_readable(cell, shown):
    assert tables.readable(cell) == shown


def test_sentences_in_three_columns_are_cards_that_say_their_column():
    table = made(["what", "a & b", "why"], ["x", "1", "a sentence that is rather long"])
    assert table.startswith('<table data-rows="cards" role="table">')
    assert '<td role="cell" data-label="why">a sentence' in table
    assert "data-long" not in table
    assert '<td role="cell" data-number data-label="a &amp; b">1</td>' in table
    assert '<td data-long role="cell" data-label="c">xxx' in made(list("abc"), ["1", "2", "x" * 50])
    assert table.count('role="row"') == 2
    assert table.count('role="columnheader"') == 3


def test_numbers_and_two_columns_stay_a_plain_table():
    numbers = made(["", "κ = 0", "κ = 1"], ["β = 0.1", "1.0 ± 0.1", "2"])
    assert numbers.startswith("<table>")
    assert "data-label" not in numbers
    two = made(["a", "b"], ["x" * 50, "a sentence that is rather long"])
    assert two.startswith("<table>")
    assert f"<td data-long>{'x' * 50}" in two
