"""Movie ratings as a contextual bandit."""
