"""`fedrl list`: the methods, worlds and recipes that are installed, and where they come from."""

from importlib.metadata import version

from fedrl.core.registry import Entry


def origin(entry: Entry) -> str:
    """The extra that it needs, or the package that it comes from."""
    return f"{entry.package} {version(entry.package)}" if entry.outside else entry.extra


def list_(argv: list[str]) -> int:
    """What is installed: methods, worlds, recipes."""
    from fedrl.algorithms import METHODS
    from fedrl.config.loading import recipes_folder
    from fedrl.envs import WORLDS
    from fedrl.runs.sweep import sweeps

    if argv:
        print("usage: fedrl list\n\nShows the methods, worlds and recipes that come with fedrl.")
        return 0 if argv[0] in ("-h", "--help") else 2
    for title, table in (("methods", METHODS), ("worlds", WORLDS)):
        print(f"{title}:")
        for name, entry in table.items():
            print(f"  {name:<16}{entry.summary}  [{origin(entry)}]")
    print("recipes:")
    folder = recipes_folder()
    for path in sorted(folder.glob("*/*.toml")):
        first = path.read_text(encoding="utf-8").splitlines()[0].lstrip("# ")
        print(f"  {path.relative_to(folder).with_suffix('')!s:<24}{first}")
    print("sweeps:")
    for name, path in sweeps().items():
        first = path.read_text(encoding="utf-8").splitlines()[0].lstrip("# ")
        print(f"  {name:<24}{first}")
    return 0
