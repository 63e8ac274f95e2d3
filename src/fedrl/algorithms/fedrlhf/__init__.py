"""FedRLHF: learning from feedback that never leaves its client."""
