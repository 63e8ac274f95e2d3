"""What Adam remembers of a client's earlier rounds, as named arrays that the client keeps.

    exp_avg, exp_avg_sq    the first and second moments of the gradient, per parameter
    step                   steps taken, for the correction of the moments' start at 0

A client that learns alone and keeps them takes the steps of one unbroken run, however that is cut
into rounds: 20 rounds of 2 epochs are 40 epochs. Without them the first step of every round is of
length lr in every coordinate, however small the gradient. In a federation the weights jump to the
server's between two rounds, and by a client's next turn its moments are of a model that may be many
rounds old: there they are dropped, unless settings ask for them.

They are twice as large as what is trained, in memory and on disk: 8 bytes per parameter and client
that has taken part, in the checkpoint of a simulation and on a node's own disk otherwise. They are
sums of gradients of the client's data, and never leave it.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from fedrl.core.types import Tensors

PARTS = ("exp_avg", "exp_avg_sq", "step")


def optimizer_moments(
    optimizer: torch.optim.Optimizer, parameters: Mapping[str, nn.Parameter]
) -> Tensors:
    """Copies, by the parameters' names; of a parameter that never had a gradient there is none."""
    return {
        part: {
            name: optimizer.state[p][part].to("cpu", copy=True).numpy()
            for name, p in parameters.items()
            if p in optimizer.state
        }
        for part in PARTS
    }


def restore(
    optimizer: torch.optim.Optimizer, parameters: Mapping[str, nn.Parameter], state: Tensors | None
) -> None:
    """Let a new optimizer go on with the moments of the one before; `state` stays as it is."""
    fused = any(group.get("fused") for group in optimizer.param_groups)
    for name in (state or {}).get("step", {}):
        assert state is not None
        p = parameters[name]
        # AdamW counts on the CPU whatever the device, unless its step is one kernel there.
        places = {"step": p.device if fused else torch.device("cpu")}
        optimizer.state[p] = {
            part: torch.tensor(state[part][name], device=places.get(part, p.device))
            for part in PARTS
        }
