"""argparse, as quiet as the rest of fedrl."""

import argparse
from typing import Any, NoReturn

from fedrl.cli.help_text import Filled
from fedrl.core.types import UserError


class Parser(argparse.ArgumentParser):
    """argparse whose complaints are one line, as everywhere else."""

    def __init__(self, name: str, **options: Any) -> None:
        super().__init__(name, **{"allow_abbrev": False, "formatter_class": Filled, **options})

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """`fedrl export runs/x/*` of a recipe with two runs is told as that."""
        asked, left = self.parse_known_args(args, namespace)
        if left and (one := self._only_run()) and not any(word.startswith("-") for word in left):
            given = [str(getattr(asked, one)), *left]
            raise UserError(f"{self.prog} takes one run; you gave {len(given)}: {', '.join(given)}")
        if left:
            self.error(f"unrecognized arguments: {' '.join(left)}")
        return asked

    def _only_run(self) -> str:
        """What a command calls its one run, which stands alone; empty where there are others."""
        named = [action for action in self._actions if not action.option_strings]
        alone = len(named) == 1 and named[0].metavar == "RUN" and named[0].nargs in (None, "?")
        return named[0].dest if alone else ""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; see `{self.prog} --help`")
