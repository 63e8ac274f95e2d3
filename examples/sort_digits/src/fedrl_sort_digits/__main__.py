import argparse
from pathlib import Path

from fedrl_sort_digits import write, write_organisations

parser = argparse.ArgumentParser("python -m fedrl_sort_digits")
parser.add_argument("folder", type=Path, nargs="?", default=Path("data/sort_digits"))
parser.add_argument("--organisations", action="store_true", help="a folder for each of three")
asked = parser.parse_args()
print((write_organisations if asked.organisations else write)(asked.folder))
