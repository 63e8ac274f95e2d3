"""`fedrl list`: the methods, worlds and recipes that come with fedrl."""


def list_(argv: list[str]) -> int:
    """Methods, worlds and recipes."""
    from fedrl import api

    if argv:
        print("usage: fedrl list\n\nShows the methods, worlds and recipes that come with fedrl.")
        return 0 if argv[0] in ("-h", "--help") else 2
    found = api.catalogue()
    for title, table in (("methods", found.methods), ("worlds", found.worlds)):
        print(f"{title}:")
        for name, entry in table.items():
            print(f"  {name:<16}{entry.summary}  [{entry.extra}]")
    for title, lines in (("recipes", found.recipes), ("sweeps", found.sweeps)):
        print(f"{title}:")
        for name, line in lines.items():
            print(f"  {name:<24}{line}")
    return 0
