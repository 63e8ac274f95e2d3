"""A policy and the sampler that answers with its weights, always the same ones for both.

Every call that plays sets the weights first. The sampler reads them by version, so that a rollout
can never be made with older ones than the learner believes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fedrl.core.types import Tensors
from fedrl.llm import lora
from fedrl.llm.generation.sampler import Sampler
from fedrl.llm.policy import Policy
from fedrl.llm.weights import MergedWeights


@dataclass
class Actor:
    policy: Policy
    sampler: Sampler
    version: int = 0

    def initial_weights(self, seed: int) -> Tensors:
        """What the server begins with: the folder's weights, or new adapters by the run's seed."""
        if lora.has_adapters(self.policy.model):
            lora.draw_adapters(self.policy.model, seed)
        weights = self.policy.weights()
        return {name: array for name, array in weights.items() if not lora.is_personal(name)}

    def new_personal_adapters(self, seed: int) -> Tensors:
        """What a client's own begin with; they change nothing yet."""
        lora.draw_adapters(self.policy.model, seed, lora.PERSONAL)
        weights = self.policy.weights()
        return {name: array for name, array in weights.items() if lora.is_personal(name)}

    def load(self, theta: Tensors) -> None:
        self.policy.set_weights(theta)
        self.sync_sampler()

    def sync_sampler(self) -> None:
        """Tell the sampler of new weights: the plain one shares them, others keep a copy."""
        self.version += 1
        model = self.policy.model.eval()
        weights = MergedWeights(model) if self.sampler.copies_weights else None
        self.sampler.push(weights, self.version)

    def generator(self, seed: int) -> torch.Generator:
        return torch.Generator(self.policy.device).manual_seed(seed % 2**63)
