"""The command `fedrl`, and `python -m fedrl`."""

import sys


def main() -> None:
    try:
        from fedrl.cli import main as command
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] == "fedrl":
            raise
        # Installed with --no-deps, or into an environment that lost a package.
        sys.exit(f'error: fedrl needs the package {error.name}: pip install "fedrl"')
    command()


if __name__ == "__main__":
    main()
