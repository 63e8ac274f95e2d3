"""What test files share: small worlds, models, runs, nodes and browsers."""
