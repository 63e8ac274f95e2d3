"""A DQN's weights as a policy: greedy by its values."""

from __future__ import annotations

import numpy as np

from fedrl.algorithms.qhd.dqn.network import Shape, layers
from fedrl.core.policies import NetworkPolicy, Scaling


def network_policy(weights: np.ndarray, shape: Shape, scaling: Scaling) -> NetworkPolicy:
    """Of one vector of weights [P], as `network.layers` reads it."""
    w1, b1, w2, b2, w3, b3 = layers(np.array(weights, np.float32), shape)
    parts = ((w1, b1), (w2, b2), (np.ascontiguousarray(w3.T), b3))
    return NetworkPolicy(parts, "relu", "values", scaling)
