"""Vocabulary and small tools that everything else is built from."""
