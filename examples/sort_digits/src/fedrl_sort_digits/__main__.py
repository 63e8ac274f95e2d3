import sys
from pathlib import Path

from fedrl_sort_digits import write

print(write(Path(sys.argv[1] if len(sys.argv) > 1 else "data/sort_digits")))
