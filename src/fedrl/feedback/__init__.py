"""Human feedback that stays with its client: who answers, where answers are kept, what they teach."""
