"""Tools: typed Python functions that an agent calls in its answers, over several turns."""
