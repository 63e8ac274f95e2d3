"""Many seeds of one experiment at once, for tables over hundreds or thousands of seeds.

The same algorithm, the same randomness and the same steps as the round loop with full
participation, but with the seeds as a batch axis: a test holds each seed's numbers to those of
`federation.round_loop`. Any federated policy gradient whose server works tensor by tensor can be
run so: the momentum methods, FedProx, SCAFFOLD, FedNova.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from fedrl.algorithms.momentum.algorithm import Momentum
from fedrl.algorithms.policy_gradient.algorithm import PolicyGradient, stack
from fedrl.algorithms.policy_gradient.runners import Start
from fedrl.algorithms.policy_gradient.settings import Settings
from fedrl.core import seeding, tree
from fedrl.core.abilities import ServerSamples
from fedrl.core.types import Tensors, UserError
from fedrl.envs.interfaces import ControlWorld

Curves = dict[str, np.ndarray]


def run_seeds(
    settings: Settings,
    make_world: Callable[[int], ControlWorld],
    seeds: Sequence[int],
    rounds: int,
    eval_every: int = 1,
    method: Callable[..., PolicyGradient] = Momentum,
) -> Iterator[tuple[int, Curves]]:
    """Yield (round, metrics [S]) for S seeds; each seed has its own world."""
    if settings.local_steps_spread:
        raise UserError(
            "many seeds at once take steps that no seed draws: say client_steps instead"
        )
    worlds = [make_world(seed) for seed in seeds]
    client_env_ids = [[client] for client in range(worlds[0].clients)]
    algorithm = method(settings, worlds[0], rounds, client_env_ids)
    if not isinstance(algorithm, PolicyGradient) or isinstance(algorithm, ServerSamples):
        raise UserError(f"{settings.name}: its seeds are run one by one")
    count, clients = len(seeds), len(client_env_ids)
    params = stack(
        [stack([w.params(pool) for pool in client_env_ids]) for w in worlds]
    )  # [S,clients,n,…]
    pairs = tree.map(lambda x: x.reshape(-1, *x.shape[2:]), params)
    state = stack([algorithm.init(seeding.derive(seed, "init")) for seed in seeds])
    fresh = [algorithm.client_tensors(algorithm.runner.init(0))] * (count * clients)
    kept, steps = stack(fresh), np.zeros(count)
    taken = algorithm.steps_of({}, range(clients))
    taken = None if taken is None else np.tile(taken, count)
    for number in range(rounds + 1):
        metrics: Curves = {}
        if number or algorithm.initial_exchange:
            drawn = np.array(
                [
                    seeding.derive(seed, "local/0", number, client)
                    for seed in seeds
                    for client in range(clients)
                ],
                np.uint64,
            )
            sent = algorithm.broadcast(state, number)
            tensors = {name: value for name, value in sent.items() if name != "round"}
            each = tree.map(lambda x: np.repeat(x, clients, 0), tensors)
            start = Start(each.pop("theta"), each, kept, taken)
            update, kept, stats = algorithm.work(sent, start, pairs, drawn)
            per_seed = tree.map(lambda x: x.reshape(count, clients, *x.shape[1:]), update)
            mean = tree.map(lambda x: x.mean(1, dtype=np.float64).astype(x.dtype), per_seed)
            state = algorithm.step(state, mean, number)
            steps += stats["steps"].reshape(count, clients).sum(1)
            for name in algorithm.measured(number):
                metrics[f"train/{name}"] = stats[name].reshape(count, clients).mean(1)
        metrics["env/steps"] = steps.copy()
        if number % eval_every == 0 or number == rounds:
            metrics |= _evaluate(algorithm, state, params, seeds, number)
        yield number, metrics


def _evaluate(
    algorithm: PolicyGradient, state: Tensors, params: Tensors, seeds: Sequence[int], number: int
) -> Curves:
    drawn = [seeding.derive(seed, "evaluate", number) for seed in seeds]
    values = algorithm.returns(state["theta"], params, drawn, algorithm.settings.eval_episodes)
    metrics = {"eval/return": values.mean(1), "eval/return_min": values.min(1)}
    return metrics | algorithm.diagnostics(state, params)
