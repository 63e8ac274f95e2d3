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
(`by_episode`), adapters that a client keeps for itself (`personal_rank`, `llm.lora`), and
FedSVRPG-M's anchored momentum carried over to language agents (`beta` < 1): the
server also broadcasts θ_{t-1} and its direction u, and the clients send the mean of their
directions, which becomes the next u.

A method of one's own is a subclass that says otherwise how episodes are judged (`advantage`) or
what a client's steps go down (`loss`); docs/extend/language_agents.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from fedrl.aggregation import server_optimizers
from fedrl.algorithms.fedagent import held_out
from fedrl.algorithms.fedagent.agent_model import OWN, AgentModel
from fedrl.algorithms.fedagent.settings import Settings
from fedrl.core import seeding, tree
from fedrl.core.limits import one_of
from fedrl.core.types import SHARE, Job, Metrics, Range, Result, Shareable, Spec, Tensors, UserError
from fedrl.envs.client_worlds import ClientWorlds, described
from fedrl.envs.text import PartitionedWorld, Task, spaced
from fedrl.llm.rl.lr_schedule import LearningRates

if TYPE_CHECKING:
    import torch

    from fedrl.algorithms.fedagent.local_trainer import LocalTrainer
    from fedrl.llm.rl.loss import TokenStep
    from fedrl.llm.rollout import Rollout

AgentSettings = Settings

DIRECTION = "u."
"""Before a parameter's name: the mean of a client's anchored directions, sent if β < 1."""


MOST_TASKS = 10_000_000
"""That a client may say it holds out."""

SHARES = (
    "train/success", "train/invalid", "train/no_think", "train/truncated", "train/no_act",
    "train/zero_advantage", "train/ratio_far", "train/weight_clipped", "held/success",
    "held/own_success", "trained/success", "trained/own_success",
)  # fmt: skip


class FedAgent(AgentModel):
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
            "train/value_loss", "train/weight_mean", "train/weight_clipped", "train/sampler_gap",
            "env/steps", "env/episodes", "env/tokens", "held/success", "held/tasks",
            "held/own_success", "trained/success", "trained/own_success",
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
        self.settings, self.world, self.dealt = settings, dealt.world, dealt
        episodes = settings.local_epochs * settings.tasks * settings.group * (settings.resample + 1)
        self.ranges = dict.fromkeys(SHARES, SHARE) | {
            "env/episodes": Range(0, episodes, whole=True),
            "env/steps": Range(0, episodes * dealt.world.max_steps, whole=True),
            "env/tokens": Range(
                0, episodes * dealt.world.max_steps * settings.answer_tokens, whole=True
            ),
            "train/steps": Range(0, dealt.world.max_steps),
            "held/tasks": Range(0, MOST_TASKS, whole=True),
        }
        self.client_env_ids = client_env_ids
        self.shares = dealt.pools(client_env_ids)
        one_of("algorithm.eval_split", settings.eval_split, dealt.world.splits)
        held_out.check_own(settings, dealt.world)
        held_out.check_more_tasks(settings, dealt.world, dealt.own)
        if dealt.heaviest is None:
            trained = held_out.plain_names(dealt.world, self.shares)
            plain = described(dealt.world)
            for evaluated in (self.eval_tasks, *self.more_eval_tasks.values()):
                held_out.check_apart(plain, evaluated, trained, settings.model)
        if settings.lr_warmup >= rounds:
            raise UserError(
                f"algorithm.lr_warmup is {settings.lr_warmup}, and rounds is {rounds}: the rate "
                "would never be at its highest"
            )
        self.rates = LearningRates(
            settings.lr_schedule, rounds, settings.local_epochs, settings.lr_warmup
        )
        self.heaviest = dealt.heaviest or float(max(map(len, self.shares)))
        self._trainer: LocalTrainer | None = None

    # What a method of one's own may say otherwise

    def advantage(self, rollout: Rollout) -> np.ndarray:
        """How much better each step sample went than what it is compared with [samples].

        Not asked where a critic judges (estimator = "ppo"). Penalties of ill-formed answers come
        off afterwards.
        """
        from fedrl.llm.rl.advantages import ESTIMATORS, gigpo

        settings = self.settings
        if settings.estimator == "gigpo":
            return gigpo(
                rollout, settings.gigpo_gamma, settings.gigpo_omega, episode_gamma=settings.gamma
            )
        return ESTIMATORS[settings.estimator](rollout, gamma=settings.gamma)

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
        own = self._own_adapters(job)
        judged = self._judge_own(job, own) if self.dealt.held_out == "clients" else {}
        begin = job.broadcast | {"theta": start | own}
        shares = [self.rates.share(job.round, n) for n in range(self.settings.local_epochs)]
        trained = self.trainer.train(self, begin, tasks, job.seed, job.state, poisoned, shares)
        now = self.trainer.policy.weights()
        update = {name: now[name] - start[name] for name in start}
        update |= {DIRECTION + name: array for name, array in trained.direction.items()}
        kept = trained.moments | ({OWN: {name: now[name] for name in own}} if own else {})
        metrics = trained.metrics | judged | self._judge_trained(job, now)
        return Result(job.client, update, float(len(tasks)), kept or None, metrics)

    def _own_adapters(self, job: Job) -> Tensors:
        """What a client keeps for itself: as its last round left it, or new."""
        if not self.settings.personal_rank:
            return {}
        if job.state is not None and OWN in job.state:
            return dict(job.state[OWN])
        return self.trainer.actor.new_personal_adapters(seeding.derive(job.seed, OWN))

    def _judge_own(self, job: Job, own: Tensors) -> Metrics:
        """How the model that a client was sent does on what the client holds out, and how the
        client's own does, which it kept adapters for."""
        won = self.judge(job, {})
        if not len(won):
            return {}
        found = {"held/success": float(won.mean()), "held/tasks": float(len(won))}
        return found | ({"held/own_success": float(self.judge(job, own).mean())} if own else {})

    def _judge_trained(self, job: Job, theta: Tensors) -> Metrics:
        """How a client's model does before it is averaged, in the world that all are evaluated in
        and in the client's own, with the adapters that it keeps."""
        count = self.settings.eval_trained
        if not count:
            return {}
        public = [task.id for task in spaced(self.eval_tasks, min(count, len(self.eval_tasks)))]
        parts = self._own_parts(job, count)
        owned = [task for part in parts for task in part]
        seed = seeding.derive(job.seed, "trained")
        won = self.trainer.play(theta, public + owned, seed, doing="evaluating_trained").won
        found = {"trained/success": float(np.mean(won[: len(public)]))}
        if owned:
            found["trained/own_success"] = held_out.mean_over_worlds(won[len(public) :], parts)
        return found

    def _own_parts(self, job: Job, count: int) -> list[list[str]]:
        """So many held-out tasks of the worlds, or the scenes, that a client trains in; of more
        worlds than that one each in some, which the seed draws: even steps may meet one kind."""
        world, settings = self.world, self.settings
        if not isinstance(world, ClientWorlds):
            return [held_out.in_own_scenes(world, self.shares[job.client], count)]
        if not world.alike:
            return []
        owners = list(self.client_env_ids[job.client])
        if count < len(owners):
            draw = seeding.generator(job.seed, "own worlds")
            owners = [owners[i] for i in sorted(draw.choice(len(owners), count, replace=False))]
        each, more = divmod(count, len(owners))
        parts = []
        for n, owner in enumerate(owners):
            size = each + (n < more)
            parts += held_out.own_parts(world, [owner], settings, self.eval_tasks, size)
        return parts

    def judge(self, job: Job, own: Tensors | None = None) -> np.ndarray:
        """Of every task that a client holds out, whether the model that it was sent wins it [n],
        with the adapters that it keeps, or with those of `own`."""
        return self.judge_episodes(job, own)[1]

    def judge_episodes(self, job: Job, own: Tensors | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The same with what each episode was paid before it."""
        tasks = [task.id for task in self.own_held_out(job.client)]
        seed = seeding.derive(job.seed, "held out")
        if not tasks:
            return np.zeros(0), np.zeros(0)
        if own is None:
            own = (job.state or {}).get(OWN, {})
        theta = job.broadcast["theta"] | own
        played = self.trainer.play(theta, tasks, seed)
        return np.array(played.returns, float), np.array(played.won, float)

    # Evaluation

    def evaluate(
        self, states: Sequence[Tensors], owners: Sequence[Sequence[int]], round: int, seed: int
    ) -> Metrics:
        if self.dealt.held_out == "clients":  # they say it themselves
            return {}
        keeps = [self.keep_episodes, *[None] * (len(states) - 1)]  # of several states the first
        rows = [
            self.trainer.evaluate(state["theta"], self.eval_tasks, seed, keep)
            for state, keep in zip(states, keeps, strict=True)
        ]
        for split, tasks in self.more_eval_tasks.items():
            ids, own_seed = [task.id for task in tasks], seeding.derive(seed, split)
            for row, state in zip(rows, states, strict=True):
                won = self.trainer.play(state["theta"], ids, own_seed).won
                row[f"eval/{split}_success"] = float(np.mean(won))
        if self.settings.eval_own:
            for row, state, own in zip(rows, states, owners, strict=True):
                row["eval/own_success"] = self._own_success(state["theta"], own, seed)
        return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}

    def _own_success(self, theta: Tensors, owners: Sequence[int], seed: int) -> float:
        """In each of these clients' own worlds or scenes, and their mean."""
        count, world = self.settings.eval_own, self.world
        if isinstance(world, ClientWorlds):
            parts = held_out.own_parts(world, owners, self.settings, self.eval_tasks, count)
        else:
            shares = self.dealt.shares
            parts = [held_out.in_own_scenes(world, shares[k], count, k) for k in owners]
        ids = [task for part in parts for task in part]
        seed = seeding.derive(seed, "own worlds")
        won = self.trainer.play(theta, ids, seed, doing="evaluating_own").won
        return held_out.mean_over_worlds(won, parts)

    def evaluate_clients(self, state: Tensors, seed: int, episodes: int) -> np.ndarray:
        """Success on (some of) every client's own tasks: those that are held out, where it has a
        world or data of its own, else those that it trains on."""
        return self.evaluate_own(state, {}, seed, episodes)

    def evaluate_own(
        self, state: Tensors, kept: Mapping[int, Tensors], seed: int, episodes: int
    ) -> np.ndarray:
        """The same of the shared model with each client's own adapters."""
        found = self.measure_clients(state, kept, seed, episodes)
        return np.array([row.get("eval/success", np.nan) for row in found])

    def measure_clients(
        self, state: Tensors, kept: Mapping[int, Tensors], seed: int, episodes: int
    ) -> list[Metrics]:
        """All that is told of them; nothing of a client that holds nothing out."""
        rows = []
        for client, share in enumerate(self.shares):
            if isinstance(self.world, ClientWorlds):
                tasks = self.own_held_out(client)
            else:
                own = set(share)
                tasks = [task for task in self.world.tasks("train") if task.id in own]
            some = spaced(tasks, min(episodes, len(tasks)))
            theta = self.own_theta(state, kept.get(client, {})) or state["theta"]
            found = self.trainer.evaluate(theta, some, seed) if some else {}
            rows.append({**found, "tasks": float(len(some))})
        return rows

    def play_tasks(self, theta: Tensors, tasks: Sequence[Task], seed: int) -> Rollout:
        """Episodes of these tasks at the evaluation's temperature, with their transcripts; by the
        seed of each task, so that it does not matter in which parts they are played."""
        ids = [task.id for task in tasks]
        return self.trainer.play(
            theta, ids, seed, transcripts=True, doing="playing_parts", apart=True
        )


def build(
    settings: Settings,
    dealt: PartitionedWorld,
    rounds: int,
    client_env_ids: Sequence[Sequence[int]],
) -> FedAgent:
    return FedAgent(settings, dealt, rounds, client_env_ids)
