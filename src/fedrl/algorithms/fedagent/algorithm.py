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
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fedrl.aggregation import server_optimizers
from fedrl.core import tree
from fedrl.core.limits import above_zero, at_least_one, not_negative
from fedrl.core.registry import missing_extra
from fedrl.core.types import (
    SHARE,
    Job,
    Metrics,
    ModelName,
    Range,
    Result,
    Spec,
    Tensors,
    UserError,
    Word,
)
from fedrl.envs.text import PartitionedWorld, spaced

DIRECTION = "u."
"""Before a parameter's name: the mean of a client's anchored directions, sent if β < 1."""


@dataclass(frozen=True)
class Settings:
    """How a client learns, and what the server does with it."""

    name: Literal["fedagent"] = "fedagent"
    # Model folder (`fedrl warmstart` writes one), GGUF file or Hugging Face id.
    model: ModelName = ""
    # Rank of LoRA's adapters: all that is then trained and sent. 0 trains the whole model.
    lora_rank: int = 0
    # Adapters count lora_alpha / lora_rank times; only read if lora_rank is above 0.
    lora_alpha: int = 32
    # How the agent is told its situation: compact (small models) or chat.
    format: Literal["compact", "chat"] = "compact"
    # Chat: answers carry their reasoning in <think> before the choice in <action>.
    thinking: bool = True
    # τ: batches of tasks that a client plays and learns from in a round.
    local_epochs: int = 3
    # Tasks per batch, drawn with replacement from the client's own.
    tasks: int = 16
    # G: episodes of each task, compared with each other.
    group: int = 8
    # How an episode is judged within its group.
    estimator: Literal["grpo", "rloo", "gigpo", "ppo"] = "grpo"
    # Learning rate of PPO's value head; only read with estimator = "ppo".
    critic_lr: float = 1e-5
    # Learning rate of AdamW.
    lr: float = 1e-6
    # AdamW's moments and step count between a client's rounds: kept by the client (8 bytes for each
    # trained parameter, in memory and on its disk), or fresh in every round. auto: kept where every
    # client learns alone (centralized, local, independent), fresh where several share a model,
    # which jumps between two rounds of a client while its moments would not.
    optimizer_state: Literal["auto", "kept", "fresh"] = "auto"
    # Weight decay of AdamW.
    weight_decay: float = 0.01
    # Largest norm of a minibatch's gradient.
    clip_norm: float = 1.0
    # ε: how far the ratio of new to old probability may pay.
    clip: float = 0.2
    # Weight of the KL divergence to the model that the run began with.
    kl: float = 0.01
    # Weight of the policy's entropy.
    entropy: float = 0.001
    # Step samples per optimiser step.
    minibatch: int = 64
    # Step samples per forward pass: less memory, the same result.
    microbatch: int = 64
    # What counts the same in a minibatch: every answer token, or every step sample.
    average: Literal["token", "sequence"] = "token"
    # Compute activations again on the way back instead of keeping them: less memory, more time.
    save_memory: bool = False
    # Compile the learner with torch.compile: a minute at first, then twice as fast on a GPU.
    compile: bool = False
    # Every episode counts the same, however many steps it took; false: every token does. PPO judges
    # steps, not episodes, and does not read it.
    by_episode: bool = False
    # Sampling temperature in training.
    temperature: float = 1.0
    # Sampling temperature in evaluation.
    eval_temperature: float = 0.4
    # Longest answer, in tokens.
    answer_tokens: int = 512
    # Longest prompt, in tokens: history is cut first, then the observation.
    prompt_tokens: int = 2048
    # What an episode is paid for: success (1 if it is won), or the world's score, which in a shop
    # also pays for products that are nearly right.
    reward: Literal["success", "score"] = "success"
    # What an answer that is not well formed costs: so much off the advantage of its own step, after
    # episodes were compared. In standard deviations; with rloo in units of the reward.
    invalid_penalty: float = 0.0
    # Tasks per evaluation, spread evenly over the split; 0 is all of it.
    eval_tasks: int = 0
    # Which tasks are evaluated; none of them may be trained on.
    eval_split: Word = "unseen"
    # β of FedSVRPG-M's anchored momentum, a share of the fresh gradient in (0, 1]; 1 is without.
    # Below 1 an answer's log-probability is a sum over its tokens, the ratio is not clipped, and
    # clip and average are not read.
    beta: float = 1.0
    # Largest importance weight between the last round's model and this one; only read if β < 1.
    weight_cap: float = 2.0
    # μ of FedProx: pulls a client towards the round's model.
    prox: float = 0.0
    # How the server moves along the clients' mean change: plain averaging is the paper's.
    server_optimizer: server_optimizers.Name = "sgd"
    # The server's step along that mean; 1 is the average itself.
    server_lr: float = 1.0
    # Where the model runs: auto (a GPU if there is one, each worker its own), cpu, cuda, cuda:1,
    # spread (over all GPUs, for a model too large for one).
    device: Word = "auto"
    # What answers in rollouts: plain (any model), cuda (our engine, Llama and Qwen2 kinds), vllm
    # (where it is installed), or auto: cuda on a GPU for the models it knows, else plain.
    rollouts: Literal["auto", "plain", "cuda", "vllm"] = "auto"

    def __post_init__(self) -> None:
        at_least_one(
            self, "algorithm.", "local_epochs", "tasks", "group", "minibatch", "microbatch",
            "answer_tokens", "prompt_tokens",
        )  # fmt: skip
        if self.group == 1 and self.estimator != "ppo":
            raise UserError("algorithm.group is 1; an episode needs others to be compared with")
        not_negative(
            self, "algorithm.", "kl", "entropy", "prox", "weight_decay", "invalid_penalty",
            "eval_tasks", "lora_rank",
        )  # fmt: skip
        if not 0 < self.beta <= 1:
            raise UserError(f"algorithm.beta is {self.beta}; it must lie in (0, 1]")
        if self.beta < 1 and (self.estimator == "ppo" or self.kl or self.prox or self.entropy):
            raise UserError(
                "algorithm.beta < 1 anchors the plain policy gradient: set kl, entropy and prox to "
                '0, and choose another estimator than "ppo"'
            )
        if self.device == "spread" and self.estimator == "ppo":
            raise UserError(
                'algorithm.device is "spread", which estimator = "ppo" cannot train on: its critic '
                "reads the model on one device; choose another estimator"
            )
        above_zero(
            self, "algorithm.", "lr", "server_lr", "temperature", "clip", "clip_norm",
            "weight_cap", "lora_alpha",
        )  # fmt: skip


SHARES = (
    "train/success", "train/invalid", "train/no_think", "train/truncated", "train/no_act",
    "train/zero_advantage", "train/ratio_far", "train/weight_capped",
)  # fmt: skip


class FedAgent:
    """See the module's docstring. The model on `self` is a workbench: calls set its weights."""

    initial_exchange = False
    reports = frozenset(
        {
            "train/success", "train/return", "train/steps", "train/invalid", "train/no_think",
            "train/truncated", "train/no_act", "train/zero_advantage", "train/loss",
            "train/entropy", "train/ratio_far", "train/kl", "train/drift", "train/gradient_norm",
            "train/value_loss", "train/weight_mean", "train/weight_capped",
            "env/steps", "env/episodes", "env/tokens",
        }
    )  # fmt: skip

    def __init__(
        self, settings: Settings, dealt: PartitionedWorld, client_env_ids: Sequence[Sequence[int]]
    ) -> None:
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
        tasks = dealt.world.tasks(settings.eval_split)
        self.eval_tasks = spaced(tasks, min(settings.eval_tasks or len(tasks), len(tasks)))
        if not self.eval_tasks:
            raise UserError(f"algorithm.eval_split: {settings.eval_split!r} has no tasks")
        evaluated = {task.id for task in self.eval_tasks}
        trained = {task for share in self.shares for task in share}
        if shared := evaluated & trained:
            raise UserError(f"task {min(shared)} is both trained on and evaluated")
        known = shown(settings.model)
        for what, ids in (("evaluated", evaluated), ("a client's", trained)):
            if shared := known & ids:
                raise UserError(
                    f"algorithm.model: its warm start was shown task {min(shared)}, which is {what}"
                    " here; choose the world's splits (world.public, …) as the warm start did"
                )
        self.heaviest = float(max(map(len, self.shares)))
        self._bench: Any = None

    # The server

    def init(self, seed: int) -> Tensors:
        theta = self.bench.first(seed)
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
        start = job.broadcast["theta"]
        anchor = None
        if self.settings.beta < 1:
            anchor = (job.broadcast["previous"], job.broadcast["u"])
        found = self.bench.train(
            start, self.shares[job.client], job.seed, anchor, poisoned, job.state
        )
        now = self.bench.policy.weights()
        update = {name: now[name] - start[name] for name in start}
        update |= {DIRECTION + name: array for name, array in found.direction.items()}
        weight = float(len(self.shares[job.client]))
        return Result(job.client, update, weight, found.moments or None, found.metrics)

    # Evaluation

    def evaluate(
        self, states: Sequence[Tensors], owners: Sequence[Sequence[int]], round: int, seed: int
    ) -> Metrics:
        found = [self.bench.evaluate(state["theta"], self.eval_tasks, seed) for state in states]
        return {name: float(np.mean([f[name] for f in found])) for name in found[0]}

    def evaluate_clients(self, state: Tensors, seed: int, episodes: int) -> np.ndarray:
        """Success on (some of) every client's own tasks."""
        rates = []
        for share in self.shares:
            own = set(share)
            tasks = [task for task in self.world.tasks("train") if task.id in own]
            some = spaced(tasks, min(episodes, len(tasks)))
            rates.append(self.bench.evaluate(state["theta"], some, seed)["eval/success"])
        return np.array(rates)

    def play_tasks(self, theta: Tensors, tasks: Sequence[Any], seed: int) -> Any:
        """Episodes of these tasks at the evaluation's temperature, with their transcripts."""
        return self.bench.play(theta, [task.id for task in tasks], seed, transcripts=True)

    def save(self, theta: Tensors, out: Path) -> None:
        """The model with these weights as an ordinary folder."""
        from fedrl.llm.export import save

        save(self.settings, theta, out)

    def outline(self) -> tuple[Tensors, list[str]]:
        """The server's state in shapes alone, and what a client needs; no weights are read."""
        if not self.settings.model:
            raise UserError("algorithm.model is empty; name a model folder (`fedrl warmstart`)")
        try:
            from fedrl.algorithms.fedagent import memory
        except ModuleNotFoundError as error:
            raise missing_extra(error, 'algorithm.name = "fedagent"', "llm") from error
        found = memory.plan(self.settings, len(self.eval_tasks))
        nothing = np.zeros((), np.float32)  # seen as if it were an array, without one's memory
        theta = {name: np.broadcast_to(nothing, shape) for name, shape in found.trained.items()}
        state = {"theta": theta, "previous": theta, "u": theta}
        return state, memory.lines(found, self.settings)

    def warm_up(self) -> None:
        """In a worker, what is wrong with the model is said at once, not as a client's error."""
        assert self.bench

    @property
    def bench(self) -> Any:
        """The model is loaded when it is first needed, in the process that needs it."""
        if self._bench is None:
            try:
                from fedrl.algorithms.fedagent.local_trainer import Bench

                self._bench = Bench(self.settings, self.world)
            except ModuleNotFoundError as error:
                raise missing_extra(error, 'algorithm.name = "fedagent"', "llm") from error
        return self._bench

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_bench": None}


def shown(model: str) -> set[str]:
    """The tasks of a warm start, which its folder remembers."""
    record = Path(model) / "warmstart.json"
    return (
        set(json.loads(record.read_text(encoding="utf-8"))["tasks"]) if record.is_file() else set()
    )


def build(
    settings: Settings,
    dealt: PartitionedWorld,
    rounds: int,
    client_env_ids: Sequence[Sequence[int]],
) -> FedAgent:
    return FedAgent(settings, dealt, client_env_ids)
