"""FedRLHF for texts."""
