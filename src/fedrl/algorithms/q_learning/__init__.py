"""Federated Q-learning: a base whose one hook is the TD loss, or only its target.

from fedrl.algorithms.q_learning import QLearning, Settings, TDStep
"""

from fedrl.algorithms.q_learning.algorithm import QLearning
from fedrl.algorithms.q_learning.settings import Settings
from fedrl.algorithms.q_learning.td_step import TDStep

__all__ = ["QLearning", "Settings", "TDStep"]
