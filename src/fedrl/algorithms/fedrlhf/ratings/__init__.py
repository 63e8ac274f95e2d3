"""FedRLHF for ratings."""
