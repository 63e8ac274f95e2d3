"""argparse, as quiet as the rest of fedrl."""

import argparse
from typing import Any, NoReturn

from fedrl.cli.help_text import Filled
from fedrl.core.types import UserError


class Parser(argparse.ArgumentParser):
    """argparse whose complaints are one line, as everywhere else."""

    def __init__(self, name: str, **options: Any) -> None:
        super().__init__(name, **{"allow_abbrev": False, "formatter_class": Filled, **options})

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; see `{self.prog} --help`")
