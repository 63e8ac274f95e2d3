"""Movie reviews with sentiments."""
