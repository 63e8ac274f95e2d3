"""argparse, as quiet as the rest of fedrl."""

import argparse
from typing import NoReturn

from fedrl.types import UserError


class Parser(argparse.ArgumentParser):
    """argparse whose complaints are one line, as everywhere else."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; see `{self.prog} --help`")
