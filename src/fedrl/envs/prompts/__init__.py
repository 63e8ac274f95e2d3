"""Prompts with a reward function: a data set of one's own, in which one answer is an episode."""
