"""The baseline: FedSVRPG-M as one would write it first, with PyTorch and Gymnasium.

One environment, one episode at a time; the importance weight and the gradients at θ_{r,k} and
θ_{r-1} by autograd, each over the whole episode in one call. Episode lengths, step sizes and the
clients' initial states are those of our own run.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Categorical

from fedrl.algorithms.momentum.algorithm import Settings

Direction = list[Tensor]


def network() -> nn.Module:
    """Two tanh layers of 8; a small last layer, so that the first policy is near its most random"""
    layers = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))
    for layer in layers:
        if isinstance(layer, nn.Linear):
            nn.init.orthogonal_(layer.weight, gain=0.01 if layer.out_features == 2 else 1.0)
            nn.init.zeros_(layer.bias)
    return layers


class Loop:
    """The server and its clients, one after the other."""

    def __init__(
        self, settings: Settings, bounds: Sequence[float], horizon: int, gamma: float, rounds: int
    ) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.settings = settings
        self.bounds = bounds
        self.gamma = gamma
        self.rounds = rounds
        self.env = gymnasium.make("CartPole-v1", max_episode_steps=horizon)
        self.env.reset(seed=0)
        self.steps = 0

    def episode(self, policy: nn.Module, bound: float) -> tuple[Tensor, Tensor, Tensor]:
        """Observations [T,4], actions [T], and Ψ [T]."""
        observation, _ = self.env.reset(options={"low": -bound, "high": bound})
        observations, actions, rewards = [], [], []
        ended = False
        while not ended:
            with torch.no_grad():
                action = Categorical(logits=policy(torch.as_tensor(observation))).sample()
            observations.append(observation)
            actions.append(action)
            observation, reward, fallen, out_of_time, _ = self.env.step(action.item())
            rewards.append(reward)
            ended = fallen or out_of_time
        self.steps += len(rewards)
        discounted = np.array(rewards) * self.gamma ** np.arange(len(rewards))
        psi = self.settings.return_scale * np.cumsum(discounted[::-1])[::-1]
        return (
            torch.as_tensor(np.stack(observations)),
            torch.stack(actions),
            torch.as_tensor(psi.copy(), dtype=torch.float32),
        )

    def direction(
        self, policy: nn.Module, previous: nn.Module, u: Direction, bound: float
    ) -> Direction:
        """u_{r,k} of Eq. (4)."""
        s = self.settings
        observations, actions, psi = self.episode(policy, bound)
        here = Categorical(logits=policy(observations)).log_prob(actions)
        there = Categorical(logits=previous(observations)).log_prob(actions)
        weight = torch.exp((there - here).sum()).detach().clamp(max=s.weight_clip)
        g = torch.autograd.grad((psi * here).sum(), list(policy.parameters()))
        h = torch.autograd.grad(weight * (psi * there).sum(), list(previous.parameters()))
        return [a + (1 - s.beta) * (b - c) for a, b, c in zip(g, u, h)]

    def first_gradient(self, policy: nn.Module, bound: float) -> Direction:
        observations, actions, psi = self.episode(policy, bound)
        log_prob = Categorical(logits=policy(observations)).log_prob(actions)
        return list(torch.autograd.grad((psi * log_prob).sum(), list(policy.parameters())))

    def client(
        self, server: nn.Module, previous: nn.Module, u: Direction, bound: float
    ) -> Direction:
        """Δ = θ_{r,K} − θ_r."""
        policy = copy.deepcopy(server)
        for _ in range(self.settings.local_steps):
            step = self.direction(policy, previous, u, bound)
            with torch.no_grad():
                for parameter, d in zip(policy.parameters(), step):
                    parameter.add_(d, alpha=self.settings.lr)
        return [b.detach() - a.detach() for a, b in zip(server.parameters(), policy.parameters())]

    def run(self) -> Iterator[int]:
        """Yields the environment steps so far, after the opening and after every round."""
        s = self.settings
        server = network()
        previous = copy.deepcopy(server)
        batch = math.ceil(s.local_steps / (self.rounds * s.beta**2))
        u = mean([self.first_gradient(server, b) for b in self.bounds for _ in range(batch)])
        yield self.steps
        for _ in range(self.rounds):
            changes = [self.client(server, previous, u, bound) for bound in self.bounds]
            previous = copy.deepcopy(server)
            u = [d / (s.lr * s.local_steps) for d in mean(changes)]
            with torch.no_grad():
                for parameter, d in zip(server.parameters(), u):
                    parameter.add_(d, alpha=s.lr * s.local_steps)  # λ = ηK
            yield self.steps


def mean(directions: Sequence[Direction]) -> Direction:
    return [torch.stack(leaves).mean(0) for leaves in zip(*directions)]
