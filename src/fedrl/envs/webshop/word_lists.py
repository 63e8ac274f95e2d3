"""The lists of words.toml."""

from __future__ import annotations

from functools import cache

from fedrl.core.package_files import package_toml


@cache
def word_list(name: str) -> tuple[str, ...]:
    """The words of one list, in its order."""
    words: str = package_toml(__package__, "words.toml")[name]
    return tuple(words.split())
