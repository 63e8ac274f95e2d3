"""Functions as tools: their schemas are transformers' own, their errors are words for the agent."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("transformers", reason="the extra llm is not installed")

from fedrl.core.registry import only_packages
from fedrl.core.types import UserError
from fedrl.envs.tools.calls import Call
from fedrl.envs.tools.functions import LONGEST, Tools

CODE = '''
from typing import Literal


def repeat(word: str, times: int = 2, loud: bool = False) -> str:
    """Say a word again.

    Args:
        word: what to say
        times: how often
        loud: in capitals
    """
    if times > 3:
        raise ValueError("too often")
    return " ".join([word.upper() if loud else word] * times)


async def later(n: float) -> float:
    """Half of a number.

    Args:
        n: the number
    """
    return n / 2


def pick(which: Literal["left", "right"], among: list[int] | None = None) -> dict:
    """Choose.

    Args:
        which: the side
        among: numbers
    """
    return {"side": which}


def long() -> str:
    """A long text."""
    return "x" * 1_000_000


def recursive() -> str:
    """Never ends."""
    return recursive()


def untyped(x):
    """Nothing is known of x.

    Args:
        x: something
    """


def silent(x: int) -> int:
    return x


NUMBER = 3
'''


@pytest.fixture
def place(tmp_path: Path) -> str:
    (tmp_path / "own.py").write_text(CODE)
    return str(tmp_path / "own.py")


@pytest.fixture
def tools(place: str) -> Tools:
    names = ("repeat", "later", "pick", "long", "recursive")
    return Tools.find([f"{place}:{name}" for name in names])


def test_schemas_are_of_hints_and_docstring(tools: Tools) -> None:
    schema = tools.schemas[0]["function"]
    assert (schema["name"], schema["description"]) == ("repeat", "Say a word again.")
    assert schema["parameters"]["properties"]["times"] == {
        "type": "integer", "description": "how often",
    }  # fmt: skip
    assert schema["parameters"]["required"] == ["word"]


@pytest.mark.parametrize(
    "name, arguments, told",
    [
        ("repeat", {"word": "a"}, "a a"),
        ("repeat", {"word": "a", "times": 1, "loud": True}, "A"),
        ("later", {"n": 3}, "1.5"),
        ("pick", {"which": "left"}, "{'side': 'left'}"),
        ("pick", {"which": "left", "among": None}, "{'side': 'left'}"),
        ("repeat", {"word": "a", "times": 9}, "Error: ValueError: too often"),
        ("repeat", {}, "Error: the argument 'word' is missing."),
        ("repeat", {"word": "a", "n": 1}, "Error: there is no argument 'n'; there are word, times"),
        ("repeat", {"word": 3}, "Error: word must be of the type string."),
        ("repeat", {"word": "a", "times": True}, "Error: times must be of the type integer."),
        ("repeat", {"word": "a", "times": "2"}, "Error: times must be of the type integer."),
        ("pick", {"which": "up"}, "Error: which must be one of left, right."),
        ("fly", {}, "Error: there is no tool 'fly'; there are repeat, later, pick"),
        ("recursive", {}, "Error: RecursionError"),
    ],
)
def test_calls_and_their_mistakes(tools: Tools, name: str, arguments: dict, told: str) -> None:
    assert tools.call(Call(name, arguments)).startswith(told)


def test_a_long_result_is_cut(tools: Tools) -> None:
    assert len(tools.call(Call("long", {}))) == LONGEST


@pytest.mark.parametrize(
    "name, why",
    [
        ("untyped", "missing a type hint"),
        ("silent", "no docstring"),
        ("NUMBER", "is no function"),
        ("absent", "has no absent"),
    ],
)
def test_what_is_no_tool_is_one_line(place: str, name: str, why: str) -> None:
    with pytest.raises(UserError, match=why) as error:
        Tools.find([f"{place}:{name}"])
    assert "\n" not in str(error.value)


def test_two_of_one_name_and_none(place: str) -> None:
    with pytest.raises(UserError, match="two functions called repeat"):
        Tools.find([f"{place}:repeat", f"{place}:repeat"])
    with pytest.raises(UserError, match=r"world\.tools is empty"):
        Tools.find([])


@pytest.mark.slow
def test_a_node_takes_tools_of_allowed_packages_alone(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "nobodys", ModuleType("nobodys"))
    with only_packages(["fedrl"]):
        for name in (f"{place}:repeat", "nobodys:repeat", "numpy:add"):
            with pytest.raises(UserError):
                Tools.find([name])
