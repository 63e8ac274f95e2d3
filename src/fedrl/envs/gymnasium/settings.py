"""Settings of the world `gymnasium`, and what their texts say. Nothing is imported here.

kwargs, attributes   "g=9.81" for all clients; "g=8.0:12.0" is drawn for each (whole numbers of
                     "size=4:8"); anything else is a text or true or false: "map_name=8x8"
wrappers             "package.module:Name", also with arguments that are plain values:
                     "gymnasium.wrappers:ClipReward(min_reward=-1)"
"""

from __future__ import annotations

import ast
import keyword
import re
import tomllib
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from fedrl.core import seeding
from fedrl.core.limits import not_negative
from fedrl.core.types import Assignment, CodeCall, CodeName, UserError

Value = bool | int | float | str

_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_RANGE = re.compile(rf"({_NUMBER}):({_NUMBER})")


class Keyword(NamedTuple):
    """`name=value` for all clients, or a number from `value` to `high` for each."""

    name: str
    value: Value
    high: float | int | None = None

    def of_client(self, client: int, seed: int) -> Value:
        """A client's own does not depend on how many others there are, nor on other keywords."""
        if self.high is None:
            return self.value
        random = seeding.generator(seed, f"gymnasium/{self.name}", client=client)
        if isinstance(self.value, int):
            return int(random.integers(self.value, int(self.high), endpoint=True))
        return float(random.uniform(float(self.value), self.high))


class Wrapper(NamedTuple):
    """An import path and the arguments that follow the environment."""

    module: str
    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(frozen=True)
class Settings:
    """Which environment, how clients' differ, and how learners see states and act."""

    name: Literal["gymnasium"] = "gymnasium"
    # The environment's id; "package:Name-v0" imports the package that registers it first.
    id: CodeName = "CartPole-v1"
    # Keywords of gymnasium.make: "g=9.81", or "g=8.0:12.0" for a draw per client.
    kwargs: tuple[Assignment, ...] = ()
    # Attributes that are set on the bare environment, in the same words: "masspole=0.1:0.3".
    attributes: tuple[Assignment, ...] = ()
    # Wrappers by import path, the innermost first: "gymnasium.wrappers:ClipReward(min_reward=-1)".
    wrappers: tuple[CodeCall, ...] = ()
    # Steps after which an episode is cut; 0 is the environment's own limit.
    horizon: int = 0
    # Discount factor of policy gradients' returns; Q-learners have their own.
    gamma: float = 0.99
    # A continuous action of -1 to 1 stands for the space's bounds, or is taken as it is; both are
    # clipped to the bounds. ignore: the environment gets what the policy says.
    action_bounds: Literal["rescale", "clip", "ignore"] = "rescale"
    # What is subtracted from a state before Q-learners' features see it; [] is the world's.
    shift: tuple[float, ...] = ()
    # What it is divided by then. [] is from the space's bounds; where these are infinite, measured
    # in random play.
    scale: tuple[float, ...] = ()
    # Policy networks see scaled states too.
    scaled: bool = False
    # A new environment for every episode: for wrappers that remember (NormalizeObservation).
    renew: bool = False

    def __post_init__(self) -> None:
        if not self.id:
            raise UserError('world.id is empty; name an environment, for instance "CartPole-v1"')
        if ":" in self.id:
            check_module(self.id.partition(":")[0], "world.id")
        not_negative(self, "world.", "horizon")
        if not 0 < self.gamma <= 1:
            raise UserError(f"world.gamma is {self.gamma}; it must lie in (0, 1]")
        if min(self.scale, default=1.0) <= 0:
            raise UserError(f"world.scale is {list(self.scale)}; every number must be above 0")
        for key in ("kwargs", "attributes"):
            words = [parse_keyword(text, f"world.{key}") for text in getattr(self, key)]
            names = [word.name for word in words]
            if twice := {name for name in names if names.count(name) > 1}:
                raise UserError(f"world.{key} says {', '.join(sorted(twice))} twice")
            if any(word.name == "render_mode" and word.value == "human" for word in words):
                raise UserError(
                    f"world.{key} says render_mode=human: training opens no windows; fedrl record "
                    "draws what was learned"
                )
        for text in self.wrappers:
            parse_wrapper(text)


def check_module(module: str, key: str) -> None:
    if not all(part.isidentifier() and not keyword.iskeyword(part) for part in module.split(".")):
        raise UserError(f"{key} names the module {module!r}; that is no name of a Python module")


def parse_keyword(text: str, key: str) -> Keyword:
    name, equals, said = (part.strip() for part in text.partition("="))
    if not equals or not name.isidentifier() or not said:
        raise UserError(f'{key} has {text!r}; say "name=value" or "name=low:high"')
    if ends := _RANGE.fullmatch(said):
        low, high = (number(end) for end in ends.groups())
        if isinstance(low, float) or isinstance(high, float):
            low, high = float(low), float(high)
        if low > high:
            raise UserError(f"{key} has {text!r}; the range must go upwards")
        return Keyword(name, low, high)
    try:
        value = tomllib.loads(f"value = {said}")["value"]
    except tomllib.TOMLDecodeError:
        return Keyword(name, said)
    return Keyword(name, value)


def number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)


def parse_wrapper(text: str) -> Wrapper:
    """`package.module:Name` or `package.module:Name(literal, key=literal)`."""
    module, _, call = text.partition(":")
    wrong = UserError(
        f'world.wrappers has {text!r}; say "package.module:Name" or '
        '"package.module:Name(key=value)" with plain values'
    )
    try:
        tree = ast.parse(call.strip(), mode="eval").body
        if isinstance(tree, ast.Name):
            return _wrapper(module, tree.id, (), {})
        if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name):
            raise wrong
        args = tuple(ast.literal_eval(value) for value in tree.args)
        named = {str(pair.arg): ast.literal_eval(pair.value) for pair in tree.keywords}
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise wrong from error
    return _wrapper(module, tree.func.id, args, named)


def _wrapper(module: str, name: str, args: tuple[Any, ...], named: dict[str, Any]) -> Wrapper:
    check_module(module, "world.wrappers")
    return Wrapper(module, name, args, named)
