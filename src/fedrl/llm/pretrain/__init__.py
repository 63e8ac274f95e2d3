"""Warm starts: learning from an expert or from texts before any reward."""
