"""Templates beside the code: what is put into a page is text, and what is forgotten is an error."""

from __future__ import annotations

import jinja2
import pytest

from fedrl.core import package_files
from fedrl.core.package_files import render


@pytest.fixture
def template(monkeypatch: pytest.MonkeyPatch):
    """Renders a template that is given as text."""

    def rendered(text: str, **values: object) -> str:
        monkeypatch.setattr(package_files, "package_text", lambda package, name: text)
        package_files._templates.cache_clear()
        return render("nowhere", "page.html.jinja", **values)

    yield rendered
    package_files._templates.cache_clear()


def test_values_are_escaped_and_control_characters_replaced(template) -> None:
    page = template('<p title="{{ x }}">{{ x }}</p>', x='<b>"&\x00\n')
    assert page == '<p title="&lt;b&gt;&#34;&amp;\ufffd\n">&lt;b&gt;&#34;&amp;\ufffd\n</p>'


def test_what_a_template_asks_for_in_vain_is_an_error(template) -> None:
    with pytest.raises(jinja2.UndefinedError, match="forgotten"):
        template("{{ forgotten }}")
