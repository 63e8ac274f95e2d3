"""`fedrl list`: the methods, worlds and recipes that are installed, and where they come from."""

from importlib.metadata import version

from fedrl.core.registry import Entry


def origin(entry: Entry) -> str:
    """The extra that it needs, or the package that it comes from."""
    return f"{entry.package} {version(entry.package)}" if entry.outside else entry.extra


def list_(argv: list[str]) -> int:
    """What is installed: methods, worlds, recipes."""
    from fedrl import api

    if argv:
        print("usage: fedrl list\n\nShows the methods, worlds and recipes that come with fedrl.")
        return 0 if argv[0] in ("-h", "--help") else 2
    found = api.catalogue()
    for title, table in (("methods", found.methods), ("worlds", found.worlds)):
        print(f"{title}:")
        for name, entry in table.items():
            print(f"  {name:<16}{entry.summary}  [{origin(entry)}]")
    for title, lines in (("recipes", found.recipes), ("sweeps", found.sweeps)):
        print(f"{title}:")
        for name, line in lines.items():
            print(f"  {name:<24}{line}")
    return 0
