"""`fedrl data`: what data sets there are and where they lie; `fedrl data NAME`: get one."""

from fedrl.cli.parser import Parser

DATA = "Download real data from its publisher, check its sha256 and keep it; without NAME, a list."


def data(argv: list[str]) -> int:
    """Get real data from its publisher."""
    from fedrl.datasets import DATASETS
    from fedrl.datasets.fetch import fetch

    parser = Parser("fedrl data", description=DATA)
    parser.add_argument("name", nargs="?", metavar="NAME", help=", ".join(DATASETS))
    parser.add_argument("--yes", action="store_true", help="agree to the licence without asking")
    args = parser.parse_args(argv)
    if args.name is None:
        return _list()
    print(fetch(args.name, args.yes))
    return 0


def _list() -> int:
    from rich.filesize import decimal

    from fedrl.datasets import DATASETS
    from fedrl.datasets.fetch import doubt, place, present

    if doubted := doubt():
        print(f"{doubted}\n")
    for name, dataset in DATASETS.items():
        print(f"{name:<14}{dataset.title}")
        print(f"{'':<14}{decimal(dataset.size)}; licence: {dataset.licence}")
        where = place(name) if present(name) else f"not here; fedrl data {name}"
        print(f"{'':<14}{where}")
    return 0
