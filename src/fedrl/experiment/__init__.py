"""Experiments: settings, run directories, reports, reproductions."""
