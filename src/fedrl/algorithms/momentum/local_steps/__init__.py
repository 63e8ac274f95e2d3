"""Local steps of table policies in closed form: a numba kernel instead of traced trajectories."""
