"""`fedrl data`: what data sets there are and where they lie; `fedrl data NAME`: get one."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fedrl.cli.parser import Parser

if TYPE_CHECKING:
    from fedrl.api.real_data import DataSet

DATA = "Download real data from its publisher, check its sha256 and keep it; without NAME, a list."


def data(argv: list[str]) -> int:
    """Get real data from its publisher."""
    from fedrl import api

    known = api.data_sets()
    parser = Parser("fedrl data", description=DATA)
    parser.add_argument("name", nargs="?", metavar="NAME", help=", ".join(known))
    parser.add_argument("--yes", action="store_true", help="agree to the licence without asking")
    args = parser.parse_args(argv)
    if args.name is None:
        return _list(known)
    print(api.fetch_data(args.name, yes=args.yes))
    return 0


def _list(known: "Mapping[str, DataSet]") -> int:
    from rich.filesize import decimal

    from fedrl.datasets.fetch import doubt

    if doubted := doubt():
        print(f"{doubted}\n")
    for name, dataset in known.items():
        print(f"{name:<14}{dataset.title}")
        print(f"{'':<14}{decimal(dataset.size)}; licence: {dataset.licence}")
        print(f"{'':<14}{dataset.place or f'not here; fedrl data {name}'}")
    return 0
