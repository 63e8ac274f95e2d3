"""Household tasks in words: ALFWorld, generated or genuine."""
