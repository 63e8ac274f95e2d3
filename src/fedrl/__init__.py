"""fedrl: federated reinforcement learning of agents, from tabular MDPs to language models."""

__version__ = "0.1.0"
