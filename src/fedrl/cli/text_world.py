"""Text worlds by their flags, for the commands around them."""

import dataclasses
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager

NAMED = "a text world: household, webshop, prompts, or one of your own (package.module:Name)"


WORLD = "Settings of the world are flags, as in `fedrl run`; `fedrl play WORLD --help` lists them."


@contextmanager
def patience(what: str) -> Iterator[None]:
    """A sign of life for work that turns out to take more than two seconds."""
    timer = threading.Timer(2.0, print, (f"{what} …",), {"file": sys.stderr, "flush": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def meanings(settings: type, prefix: str = "") -> str:
    """The flags of a settings class with the comments above its fields, for a help text."""
    from fedrl.config.help import comments

    told = comments(settings)
    lines = []
    for field in dataclasses.fields(settings):
        if field.name != "name":
            flag = f"  --{prefix}{field.name.replace('_', '-')} {field.default}"
            lines += textwrap.wrap(
                f"{flag:<28}  {told.get(field.name, '')}", 98, subsequent_indent=" " * 30
            )
    return "\n".join(lines)
