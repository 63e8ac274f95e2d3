"""Methods. A new one is a module with `Settings` and `build`, and a line in this table."""

from __future__ import annotations

from fedrl.core.registry import Entry, Table

_BUILTIN = {
    "pavg": Entry(
        "fedrl.algorithms.momentum.algorithm",
        "classic",
        "policy-gradient averaging, the baseline of the momentum family (β = 1)",
        {"beta": 1.0},
    ),
    "fedsvrpg-m": Entry(
        "fedrl.algorithms.momentum.algorithm",
        "classic",
        "variance-reduced policy gradients anchored to the server's direction",
    ),
    "fedhapg-m": Entry(
        "fedrl.algorithms.momentum.algorithm",
        "classic",
        "the same with Hessian-vector products instead of gradient differences",
        {"beta": 0.8},
    ),
    "fedprox": Entry(
        "fedrl.algorithms.classics.fedprox:FedProx",
        "classic",
        "policy-gradient averaging with a pull back to the server's parameters",
    ),
    "scaffold": Entry(
        "fedrl.algorithms.classics.scaffold:Scaffold",
        "classic",
        "policy-gradient averaging with control variates against clients' drift",
    ),
    "fednova": Entry(
        "fedrl.algorithms.classics.fednova:FedNova",
        "classic",
        "policy-gradient averaging normalised by each client's number of local steps",
    ),
    "fedpg-br": Entry(
        "fedrl.algorithms.classics.fedpg_br:FedPGBR",
        "classic",
        "gradients filtered against Byzantine clients, then steps in the server's own world",
    ),
    "fedqhd": Entry(
        "fedrl.algorithms.qhd.fedqhd",
        "classic",
        "hyperdimensional Q-learning, averaged in closed form, also across other encoders",
        kinds=("discrete",),
    ),
    "truncate-qhd": Entry(
        "fedrl.algorithms.qhd.fedqhd",
        "classic",
        "a baseline of FedQHD: readouts of other encoders cut to the smallest and averaged",
        {"encoders": "own", "agree": "truncate"},
        kinds=("discrete",),
    ),
    "feddqn": Entry(
        "fedrl.algorithms.qhd.dqn.feddqn",
        "classic",
        "deep Q-learning, weights averaged; a baseline of FedQHD",
        kinds=("discrete",),
    ),
    "distill-dqn": Entry(
        "fedrl.algorithms.qhd.dqn.distillation",
        "classic",
        "a baseline of FedQHD: DQNs of any size fit their mean predictions on anchors",
        kinds=("discrete",),
    ),
    "qavg": Entry(
        "fedrl.algorithms.classics.qavg:QAvg",
        "classic",
        "Q-learning in environments that differ, Q averaged (Jin et al. 2022)",
        kinds=("discrete", "tabular"),
    ),
    "fedprox-dqn": Entry(
        "fedrl.algorithms.classics.fedprox_dqn:FedProxDQN",
        "classic",
        "deep Q-learning whose clients are pulled towards the server's weights (FedProx)",
        kinds=("discrete", "tabular"),
    ),
    "fedagent": Entry(
        "fedrl.algorithms.fedagent.algorithm",
        "llm",
        "language agents: groups of episodes on each client's own tasks, averaged",
        kinds=("text",),
    ),
    "fedrlhf": Entry(
        "fedrl.algorithms.fedrlhf.ratings.algorithm",
        "classic",
        "reinforcement learning from human feedback that stays with each client",
        kinds=("ratings",),
    ),
    "fedrlhf-text": Entry(
        "fedrl.algorithms.fedrlhf.text.algorithm",
        "llm",
        "the same for texts: PPO on each client's own mix of sentiment and fluency",
        kinds=("reviews",),
    ),
}

METHODS = Table("algorithms", "algorithm.name", _BUILTIN)
