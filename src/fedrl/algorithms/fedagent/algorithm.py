"""FedAgent: language agents trained by reinforcement learning across clients.

Papers: "FedAgent" and "FedAgentGym" (federated agent reinforcement learning), Algorithm 1.

    round t     broadcast θ_t to M clients drawn without replacement
      client    θ ← θ_t; τ times: draw a batch of its own tasks, play each G times with θ,
                advantages within each task's group, one pass of clipped policy gradients
      server    θ_{t+1} = θ_t + mean (θ − θ_t), or a server optimiser's step along that mean

Clients count the same, or with `aggregate.name = "weighted"` by the tasks that they hold (FedAvg's
n_i / n).

Every environment step is one sample (prompt, answer); the episode's return gives the advantage of
all its steps, and an ill-formed answer costs its own step alone. What a client sends is its change
of θ (of the adapters alone with LoRA) and the numbers in `reports`; tasks, trajectories and rewards
stay where they are.

Where we differ from the authors' release: a client's tasks are drawn afresh on every visit; group
statistics are over episodes, not weighted by their lengths; evaluation is on tasks that nobody
trains on, which is asserted. AdamW starts anew in every round of a federation, where a client then
has no state to keep; one that learns alone keeps the moments, so that its rounds are one unbroken
run as in the paper's baselines (`optimizer_state`). Options of ours, off by default: FedProx
(`prox`), server momentum and Adam, episodes that count the same whatever their length
(`by_episode`), and FedSVRPG-M's anchored momentum carried over to language agents (`beta` < 1): the
server also broadcasts θ_{t-1} and its direction u, and the clients send the mean of their
directions, which becomes the next u.

A method of one's own is a subclass that says otherwise how episodes are judged (`advantage`) or
what a client's steps go down (`loss`); docs/extend/language_agents.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from fedrl.aggregation import server_optimizers
from fedrl.algorithms.fedagent.settings import Settings
from fedrl.core import tree
from fedrl.core.limits import one_of
from fedrl.core.registry import missing_extra
from fedrl.core.types import SHARE, Job, Metrics, Range, Result, Shareable, Spec, Tensors, UserError
from fedrl.envs.text import PartitionedWorld, Task, spaced
from fedrl.llm.warmstart_record import shown_tasks

if TYPE_CHECKING:
    import torch

    from fedrl.algorithms.fedagent.local_trainer import LocalTrainer
    from fedrl.llm.rl.loss import TokenStep
    from fedrl.llm.rollout import Rollout

AgentSettings = Settings

DIRECTION = "u."
"""Before a parameter's name: the mean of a client's anchored directions, sent if β < 1."""


SHARES = (
    "train/success", "train/invalid", "train/no_think", "train/truncated", "train/no_act",
    "train/zero_advantage", "train/ratio_far", "train/weight_clipped",
)  # fmt: skip


class FedAgent:
    """Language agents: groups of episodes on each client's own tasks, averaged.

    `trainer` remembers nothing: every call sets its weights.
    """

    Settings: TypeAlias = AgentSettings
    kinds = ("text",)
    initial_exchange = False
    every_sample = False
    """Whether the loss also counts for samples that went as the others of their group did, whose
    advantage is 0. With `kl` or `entropy` it always does."""
    reports = frozenset(
        {
            "train/success", "train/return", "train/steps", "train/invalid", "train/no_think",
            "train/truncated", "train/no_act", "train/zero_advantage", "train/loss",
            "train/entropy", "train/ratio_far", "train/kl", "train/drift", "train/gradient_norm",
            "train/value_loss", "train/weight_mean", "train/weight_clipped",
            "env/steps", "env/episodes", "env/tokens",
        }
    )  # fmt: skip

    def __init__(
        self,
        settings: AgentSettings,
        dealt: PartitionedWorld,
        rounds: int,
        client_env_ids: Sequence[Sequence[int]],
    ) -> None:
        self._check_hooks(settings)
        self.settings, self.world = settings, dealt.world
        episodes = settings.local_epochs * settings.tasks * settings.group
        self.ranges = dict.fromkeys(SHARES, SHARE) | {
            "env/episodes": Range(0, episodes, whole=True),
            "env/steps": Range(0, episodes * dealt.world.max_steps, whole=True),
            "env/tokens": Range(
                0, episodes * dealt.world.max_steps * settings.answer_tokens, whole=True
            ),
            "train/steps": Range(0, dealt.world.max_steps),
        }
        self.shares = [
            sorted({task for owner in pool for task in dealt.shares[owner]})
            for pool in client_env_ids
        ]
        one_of("algorithm.eval_split", settings.eval_split, dealt.world.splits)
        tasks = dealt.world.tasks(settings.eval_split)
        self.eval_tasks = spaced(tasks, min(settings.eval_tasks or len(tasks), len(tasks)))
        if not self.eval_tasks:
            raise UserError(f"algorithm.eval_split: {settings.eval_split!r} has no tasks")
        evaluated = {task.id for task in self.eval_tasks}
        trained = {task for share in self.shares for task in share}
        if shared := evaluated & trained:
            raise UserError(f"task {min(shared)} is both trained on and evaluated")
        known = shown_tasks(settings.model)
        for what, ids in (("evaluated", evaluated), ("a client's", trained)):
            if shared := known & ids:
                raise UserError(
                    f"algorithm.model: its warm start was shown task {min(shared)}, which is {what}"
                    " here; choose the world's splits (world.public, …) as the warm start did"
                )
        self.heaviest = float(max(map(len, self.shares)))
        self._trainer: LocalTrainer | None = None

    # What a method of one's own may say otherwise

    def advantage(self, rollout: Rollout) -> np.ndarray:
        """How much better each step sample went than what it is compared with [samples].

        Not asked where a critic judges (estimator = "ppo"). Penalties of ill-formed answers come
        off afterwards.
        """
        from fedrl.llm.rl.advantages import ESTIMATORS

        return ESTIMATORS[self.settings.estimator](rollout)

    def loss(self, now: TokenStep) -> torch.Tensor:
        """What a client's steps go down: per answer token [A], weighed by `now.weight`, or a
        scalar, of which a minibatch's microbatches (`now.share` of it) are added up.

        Not asked with beta < 1, which steps an anchored direction.
        """
        from fedrl.llm.rl.loss import clipped_objective

        return clipped_objective(now)

    def _check_hooks(self, settings: AgentSettings) -> None:
        """A hook that would never be asked is a mistake."""
        method = type(self)
        if settings.estimator == "ppo" and method.advantage is not FedAgent.advantage:
            raise UserError(
                f'algorithm.estimator is "ppo", whose critic judges steps, but {settings.name} has '
                "an advantage of its own: choose another estimator"
            )
        if settings.beta < 1 and method.loss is not FedAgent.loss:
            raise UserError(
                f"algorithm.beta is {settings.beta}: an anchored direction is stepped, and the loss"
                f" of {settings.name} would not be read; set algorithm.beta = 1.0"
            )

    # The server

    def init(self, seed: int) -> Tensors:
        theta = self.trainer.actor.initial_weights(seed)
        state = {"theta": theta} | server_optimizers.init(self.settings.server_optimizer, theta)
        if self.settings.beta < 1:
            state |= {"previous": theta, "u": tree.zeros_like(theta)}
        return state

    def broadcast(self, state: Tensors, round: int) -> Tensors:
        names = ("theta", "previous", "u") if self.settings.beta < 1 else ("theta",)
        return {name: state[name] for name in names}

    def declare(self, broadcast: Tensors) -> dict[str, Spec]:
        sent = {name: Spec(a.shape, str(a.dtype)) for name, a in broadcast["theta"].items()}
        if self.settings.beta < 1:
            sent |= {DIRECTION + name: spec for name, spec in sent.items()}
        return sent

    def step(self, state: Tensors, mean: Tensors, round: int) -> Tensors:
        settings = self.settings
        change = {name: mean[name] for name in state["theta"]}
        theta, rest = server_optimizers.apply(
            settings.server_optimizer, state, state["theta"], change, settings.server_lr
        )
        if settings.beta < 1:
            u = {name: mean[DIRECTION + name] for name in theta}
            rest = rest | {"previous": state["theta"], "u": u}
        return {"theta": theta} | rest

    # A client

    def local(self, job: Job) -> Result:
        return self._learn(job)

    def poisoned(self, job: Job) -> Result:
        """A client's work if all its rewards had the other sign."""
        return self._learn(job, poisoned=True)

    def _learn(self, job: Job, poisoned: bool = False) -> Result:
        tasks, start = self.shares[job.client], job.broadcast["theta"]
        if not tasks:
            raise UserError(Shareable("this client holds no tasks to train on"))
        trained = self.trainer.train(self, job.broadcast, tasks, job.seed, job.state, poisoned)
        now = self.trainer.policy.weights()
        update = {name: now[name] - start[name] for name in start}
        update |= {DIRECTION + name: array for name, array in trained.direction.items()}
        moments = trained.moments or None
        return Result(job.client, update, float(len(tasks)), moments, trained.metrics)

    # Evaluation

    def evaluate(
        self, states: Sequence[Tensors], owners: Sequence[Sequence[int]], round: int, seed: int
    ) -> Metrics:
        rows = [self.trainer.evaluate(state["theta"], self.eval_tasks, seed) for state in states]
        return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}

    def evaluate_clients(self, state: Tensors, seed: int, episodes: int) -> np.ndarray:
        """Success on (some of) every client's own tasks."""
        rates = []
        for share in self.shares:
            own = set(share)
            tasks = [task for task in self.world.tasks("train") if task.id in own]
            some = spaced(tasks, min(episodes, len(tasks)))
            rates.append(self.trainer.evaluate(state["theta"], some, seed)["eval/success"])
        return np.array(rates)

    def play_tasks(self, theta: Tensors, tasks: Sequence[Task], seed: int) -> Rollout:
        """Episodes of these tasks at the evaluation's temperature, with their transcripts."""
        return self.trainer.play(theta, [task.id for task in tasks], seed, transcripts=True)

    def save(self, theta: Tensors, out: Path) -> None:
        """The model with these weights as an ordinary folder."""
        from fedrl.llm.export import save

        settings = self.settings
        save(settings.model, settings.lora_rank, settings.lora_alpha, theta, out)

    def outline(self) -> tuple[Tensors, list[str]]:
        """The server's state in shapes alone, and what a client needs; no weights are read."""
        if not self.settings.model:
            raise UserError("algorithm.model is empty; name a model folder (`fedrl warmstart`)")
        try:
            from fedrl.algorithms.fedagent.memory_estimate import estimate_lines, estimate_memory
        except ModuleNotFoundError as error:
            raise missing_extra(error, f"algorithm.name = {self.settings.name!r}", "llm") from error
        estimate = estimate_memory(self.settings, len(self.eval_tasks))
        nothing = np.zeros((), np.float32)  # seen as if it were an array, without one's memory
        theta = {name: np.broadcast_to(nothing, shape) for name, shape in estimate.trained.items()}
        state = {"theta": theta, "previous": theta, "u": theta}
        return state, estimate_lines(estimate, self.settings)

    def warm_up(self) -> None:
        """In a worker, what is wrong with the model is said at once, not as a client's error."""
        assert self.trainer

    @property
    def trainer(self) -> LocalTrainer:
        """The model is loaded when it is first needed, in the process that needs it."""
        if self._trainer is None:
            try:
                from fedrl.algorithms.fedagent.local_trainer import LocalTrainer

                self._trainer = LocalTrainer(self.settings, self.world)
            except ModuleNotFoundError as error:
                raise missing_extra(
                    error, f"algorithm.name = {self.settings.name!r}", "llm"
                ) from error
        return self._trainer

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_trainer": None}


def build(
    settings: Settings,
    dealt: PartitionedWorld,
    rounds: int,
    client_env_ids: Sequence[Sequence[int]],
) -> FedAgent:
    return FedAgent(settings, dealt, rounds, client_env_ids)
