"""FedProx, SCAFFOLD, FedNova, FedPG-BR: one short file each, on the hooks of their families."""
