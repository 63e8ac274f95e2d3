"""fedrl: federated reinforcement learning of agents, from tabular MDPs to language models."""

from fedrl.envs.gymnasium import registration

__version__ = "0.1.0"

registration.install()
