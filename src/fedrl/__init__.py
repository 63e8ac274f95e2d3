"""fedrl: federated reinforcement learning of agents, from tabular MDPs to language models."""

from fedrl import plugin

__version__ = "0.1.0"

plugin.install()
