"""FedAgent: the algorithm, its local epochs, its convergence theory."""
