"""The feedback page as a screen reader has it: names and roles as a browser tells them."""

from __future__ import annotations

import pytest
from support.browsing import browser, new_person, playwright  # noqa: F401
from support.feedback_browsing import click, count, press, sent
from support.feedback_pages import compare, rate, running

pytestmark = pytest.mark.slow

expect = playwright.expect
RATING = """
- banner:
  - text: Your feedback client 3 2 left
  - progressbar "Answers in this sitting"
  - navigation "Parts of this page":
    - button "Questions"
    - button "My answers"
    - button "What changed"
- main:
  - group:
    - text: What this is about
    - paragraph: /Here is a guess of how many stars you would give/
  - heading "Is this guess right?" [level=1]
  - article:
    - paragraph: item a
    - text: Our guess
    - img "3.7 of 5 stars"
  - group "Is this guess right?":
    - button "Too high"
    - button "About right"
    - button "Too low"
    - button "Not seen / cannot say"
    - button "Skip, ask me later"
  - group: Add a note
- contentinfo
- status: "/Is this guess right\\\\? item a — Our guess: 3.7 of 5 stars/"
"""
COMPARING = """
- main:
  - group:
    - text: What this is about
    - paragraph: /Here are two to choose from/
  - heading "Which one is better?" [level=1]
  - article "First":
    - heading "First" [level=2]
    - paragraph: one
  - article "Second":
    - heading "Second" [level=2]
    - paragraph: two
  - group "Which one is better?":
    - button "First is better"
    - button "About the same"
    - button "Second is better"
    - button "Cannot say"
    - button "Skip, ask me later" [disabled]
  - group: Add a note
  - region "Lately":
    - heading "Lately" [level=2]
    - button "Undo"
    - list:
      - listitem: Too high item a
- contentinfo
- status: "/Too high\\\\. Which one is better\\\\? First: one — Second: two/"
"""
HISTORY = """
- main:
  - heading "My answers" [level=1]
  - paragraph: /Change or delete what you have said/
  - list "My answers, the newest first":
    - listitem:
      - paragraph: item a
      - text: Our guess was
      - img "3.7 of 5 stars"
      - text: /./
      - 'combobox "Your answer: item a"':
        - option "Too high" [selected]
        - option "About right"
        - option "Too low"
        - option "Cannot say"
      - 'button "Delete your answer: item a"'
      - 'textbox "Your note: item a"'
  - region "My data":
    - heading "My data" [level=2]
    - button "Download as a table (CSV)"
    - button "Download all (JSON)"
    - button "Delete all my answers"
    - paragraph
"""


@pytest.fixture
def page(folder, visit):
    folder.ask([rate("a"), compare("b", "one", "two")])
    with running(folder) as server:
        yield visit(server)


def test_a_blind_person_hears_all_that_an_answer_needs(page):
    """The guess is what is judged: a question that is read aloud without it cannot be answered."""
    assert page.locator("html").get_attribute("lang") == "en"
    body = page.locator("body")
    expect(body).to_match_aria_snapshot(RATING)
    bar = page.get_by_role("progressbar")
    expect(bar).to_have_attribute("aria-valuetext", "0 answered, 2 left")
    press(page, "1")
    count(page, "1 left")
    expect(bar).to_have_attribute("aria-valuetext", "1 answered, 1 left")
    expect(body).to_match_aria_snapshot(COMPARING)
    sent(page)


def test_what_was_said_can_be_found_changed_and_deleted_by_name(page):
    press(page, "1")
    sent(page)
    page.get_by_role("button", name="My answers").click()
    expect(page.locator("body")).to_match_aria_snapshot(HISTORY)
    page.get_by_role("combobox", name="Your answer: item a").select_option("Too low")
    expect(page.get_by_role("status")).to_have_text("Changed to Too low.")
    page.get_by_role("button", name="Delete your answer: item a").click()
    asks = page.get_by_role("dialog")
    expect(asks.get_by_role("button", name="Keep")).to_be_visible()
    expect(asks).to_have_attribute("aria-labelledby", "sure-text")
    asks.get_by_role("button", name="Keep").click()
    sent(page)


def test_the_keyboard_alone_is_enough(page):
    """Tab reaches the answers after the parts of the page, in the order of reading."""
    expect(page.locator("body.seen")).to_be_attached()
    reached = []
    for _ in range(10):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.lastChild.textContent"))
    assert reached == [
        "Questions", "My answers", "What changed", "What this is about", "Too high",
        "About right", "Too low", "Not seen / cannot say", "Skip, ask me later", "Add a note",
    ]  # fmt: skip
    click(page, "Too high")
    count(page, "1 left")
    sent(page)
