"""Federated policy gradients: a base whose one hook is the client's local direction.

from fedrl.algorithms.policy_gradient import LocalStep, PolicyGradient, Settings
"""

from fedrl.algorithms.policy_gradient.algorithm import PolicyGradient
from fedrl.algorithms.policy_gradient.local_step import LocalStep
from fedrl.algorithms.policy_gradient.settings import Settings

__all__ = ["LocalStep", "PolicyGradient", "Settings"]
