"""Human feedback that stays with its client: who answers, where answers are, what they teach."""
