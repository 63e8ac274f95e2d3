"""A run from its settings to its folder: train, resume, evaluate, many at a time."""
