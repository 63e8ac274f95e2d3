"""FedQHD and its baselines: hyperdimensional and deep Q-learning."""
