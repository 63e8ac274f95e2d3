"""Worlds for people: a terminal and a shop in the browser."""
