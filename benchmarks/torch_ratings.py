"""The baseline: a client's Q-learning on ratings as one would write it with PyTorch.

The network is that of `feedback/rating_kernels.py`; minibatches, actions and loss are those of
`algorithms/fedrlhf/ratings/policy.py`. Weights start equal, so that after any number of steps the
two can be compared.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedrl.feedback.rating_kernels import Examples, Sizes, layers

Parts = dict[str, np.ndarray]


class Network(nn.Module):
    def __init__(self, parts: Parts, sizes: Sizes, sparse: bool) -> None:
        super().__init__()
        self.user = self.table(parts["user"], sparse)
        self.movie = self.table(parts["movie"], sparse)
        dense = layers(parts["layers"], sizes._replace(users=0, movies=0))
        w1, b1, w2, b2, w3, b3 = (torch.tensor(array) for array in dense)
        shapes = (w1.T, b1), (w2.T, b2), (w3, b3)
        self.dense = nn.ModuleList(self.linear(w, b) for w, b in shapes)

    @staticmethod
    def table(rows: np.ndarray, sparse: bool) -> nn.Embedding:
        return nn.Embedding.from_pretrained(torch.tensor(rows), freeze=False, sparse=sparse)

    @staticmethod
    def linear(weight: Tensor, bias: Tensor) -> nn.Linear:
        layer = nn.Linear(weight.shape[1], weight.shape[0])
        layer.weight.data, layer.bias.data = weight.contiguous(), bias
        return layer

    def forward(self, user: Tensor, movie: Tensor, genres: Tensor) -> Tensor:
        x = torch.cat([self.user(user), self.movie(movie), genres], 1)
        first, second, last = self.dense
        return last(torch.relu(second(torch.relu(first(x)))))


class Client:
    """Epochs over one client's movies; `sparse`: tables have sparse gradients and SparseAdam."""

    def __init__(
        self,
        parts: Parts,
        sizes: Sizes,
        states: Examples,
        rewards: np.ndarray,
        sparse: bool = False,
        lr: float = 1e-3,
        batch: int = 8,
    ) -> None:
        torch.set_num_threads(1)
        self.network, self.batch = Network(parts, sizes, sparse), batch
        self.states = [torch.tensor(column) for column in states]
        self.rewards = torch.tensor(rewards)
        tables = [self.network.user.weight, self.network.movie.weight]
        dense = list(self.network.dense.parameters())
        if sparse:
            self.optimizers: list[torch.optim.Optimizer] = [
                torch.optim.SparseAdam(tables, lr=lr), torch.optim.Adam(dense, lr=lr),
            ]  # fmt: skip
        else:
            self.optimizers = [torch.optim.Adam([*tables, *dense], lr=lr)]

    def epochs(self, order: np.ndarray, chances: np.ndarray) -> float:
        """Passes in this order [epochs, n], actions by these chances; examples learned from."""
        for rows, draws in zip(torch.tensor(order), torch.tensor(chances, dtype=torch.float32)):
            for picks, chance in zip(rows.split(self.batch), draws.split(self.batch)):
                self.step(picks, chance)
        return float(order.size)

    def step(self, picks: Tensor, chance: Tensor) -> None:
        values = self.network(*(column[picks] for column in self.states))
        with torch.no_grad():
            action = (chance < torch.sigmoid(values[:, 1] - values[:, 0])).long()[:, None]
            paid = self.rewards[picks].gather(1, action)
        loss = functional.mse_loss(values.gather(1, action), paid) / 2
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in self.optimizers:
            optimizer.step()
