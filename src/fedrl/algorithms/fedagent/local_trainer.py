"""FedAgent's local epochs: what a client does with θ_t in one round.

    θ ← θ_t
    τ times    draw a batch of the client's own tasks
               rollout: play each G times with θ
               rewards: success or the world's score
               (groups without a signal replaced: `llm.rl.dynamic_sampling`)
               advantages within each task's group (`llm.rl.advantages`), or GAE with a critic
               passes of clipped policy gradients over the step samples (`llm.rl`)
                                          both are the method's to say otherwise (`LearningRule`)
    send θ − θ_t

Nothing is remembered from one call to the next: every call sets the weights first (`llm.actor`).
What a client keeps between its rounds, AdamW's moments and adapters of its own, goes in and comes
out.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedrl.algorithms.fedagent.local_optimizer import LearningRule, LocalOptimizer
from fedrl.algorithms.fedagent.settings import Settings
from fedrl.core import seeding
from fedrl.core.types import Json, Metrics, Tensors, UserError
from fedrl.envs.client_worlds import described
from fedrl.envs.text import Graded, Task, TextWorld
from fedrl.llm import lora
from fedrl.llm.actor import Actor
from fedrl.llm.generation.select import select_sampler
from fedrl.llm.learner.decoder import without_graphs
from fedrl.llm.model_setup import compile_layers, prepare_model
from fedrl.llm.model_types import LanguageModel, Tokenizer
from fedrl.llm.out_of_memory import Doing, explain_out_of_memory
from fedrl.llm.policy import SPREAD, Policy, choose_device, load
from fedrl.llm.prompts import single_turn
from fedrl.llm.prompts.prompt_format import PromptFormat, world_format
from fedrl.llm.rl import ppo
from fedrl.llm.rl.advantages import (
    negate_rewards,
    set_penalties,
    set_success_rewards,
    zero_advantage_share,
)
from fedrl.llm.rl.dynamic_sampling import sample_dynamically
from fedrl.llm.rollout import AgentLoop, Rollout, collect_rollout
from fedrl.llm.transcripts import kept_of, readable_episodes, record

if TYPE_CHECKING:
    import torch


class Trained(NamedTuple):
    """What a round gave beside the weights, which the model holds."""

    metrics: Metrics
    direction: Tensors  # the mean of the directions that were stepped; only with β < 1
    moments: Tensors  # what the optimiser remembers, where clients keep it


def adapters(settings: Settings) -> lora.Adapters:
    return lora.Adapters(
        settings.lora_rank, settings.lora_alpha, settings.lora_targets, settings.rslora,
        settings.personal_rank,
    )  # fmt: skip


def rollouts(settings: Settings) -> str:
    """Samplers with a copy of the weights cannot read those of 4 bits."""
    return "plain" if settings.four_bit else settings.rollouts


def trained_model(model: LanguageModel, settings: Settings) -> LanguageModel:
    """The model with what the settings add."""
    return prepare_model(
        model, adapters(settings), settings.estimator == "ppo", settings.save_memory
    )


def chosen_format(settings: Settings, world: TextWorld) -> PromptFormat[Any]:
    """How the agent is told its situation."""
    return world_format(
        settings.format, described(world), settings.thinking, settings.history, settings.template
    )


def require_template(format: PromptFormat[Any], tokenizer: Tokenizer) -> None:
    """Where the format cannot do without the model's own, before a run has a folder."""
    if isinstance(format, single_turn.SingleTurn) and format.chat:
        single_turn.require_template(tokenizer)


def advised(settings: Settings, episodes: int, doing: Doing) -> str:
    """What helps against full memory here, where so many episodes of an evaluation are played;
    `memory_advice` is asked when it happens."""
    from fedrl.algorithms.fedagent.memory_advice import advice

    return advice(settings, episodes, doing)


class LocalTrainer:
    """Plays and learns as the settings say; `captures`: with CUDA graphs where these pay."""

    def __init__(self, settings: Settings, world: TextWorld, captures: bool = True) -> None:
        if not settings.model:
            raise UserError("algorithm.model is empty; name a model folder (`fedrl warmstart`)")
        self.settings = settings
        graded = isinstance(world, Graded) and world.graded
        self.pays_success = settings.reward == "success" or (
            settings.reward == "auto" and not graded
        )
        with explain_out_of_memory(doing="loading", advise=partial(advised, settings, 0)):
            self._load_models(settings, captures)
        format = chosen_format(settings, world)
        require_template(format, self.policy.tokenizer)
        self.loop = AgentLoop(
            world,
            format,
            self.policy.tokenizer,
            settings.answer_tokens,
            settings.prompt_tokens,
            rows=settings.tasks * settings.group,  # an evaluation takes no more room than training
        )

    def _load_models(self, settings: Settings, captures: bool) -> None:
        loaded = load(
            settings.model,
            choose_device(settings.device),
            settings.device == SPREAD,
            settings.four_bit,
        )
        self.critic: ppo.Critic | None = None
        if settings.estimator == "ppo":
            self.critic = ppo.Critic(
                settings.critic_lr, settings.value_clip, settings.gamma, settings.gae_lambda
            )
        model = trained_model(loaded.model, settings)
        policy = replace(loaded, model=model)
        self.reference: LanguageModel | None = None
        if settings.kl:  # shared adapters leave the model that the run began with as it was
            shared = settings.lora_rank
            self.reference = model if shared else copy.deepcopy(model).requires_grad_(False)
        self.previous = lora.copy_trained(model) if settings.beta < 1 else None
        if self.previous is not None:  # one model's graphs are counted
            without_graphs(self.previous)
        if not captures:
            without_graphs(model)
        longest = settings.prompt_tokens + settings.answer_tokens
        self.actor = Actor(policy, select_sampler(rollouts(settings), policy, longest))
        if settings.compile:  # after the copies, which must not call this model's body
            compile_layers(model)

    @property
    def policy(self) -> Policy:
        return self.actor.policy

    def train(
        self,
        rule: LearningRule,
        broadcast: Tensors,
        share: Sequence[str],
        seed: int,
        moments: Tensors | None = None,
        poisoned: bool = False,
        rate_shares: Sequence[float] = (),
    ) -> Trained:
        """τ epochs on these tasks, from the broadcast θ; the model then holds the result.

        `poisoned` gives every reward the other sign; `moments` are the optimiser's of an earlier
        round; `rate_shares` say of each epoch what the learning rate is of its highest.
        """
        settings = self.settings
        with explain_out_of_memory(self.policy.model, advise=partial(advised, settings, 0)):
            self.actor.load(broadcast["theta"])
            rng, generator = np.random.default_rng(seed), self.actor.generator(seed)
            optimizer = LocalOptimizer(self, rule, broadcast, generator, moments)

            def draw(count: int) -> list[str]:
                return [share[i] for i in rng.integers(len(share), size=count)]

            epochs = []
            for epoch in range(settings.local_epochs):
                scores: list[float] = []

                def play(tasks: Sequence[str], scores: list[float] = scores) -> Rollout:
                    return self._paid_rollout(tasks, generator, poisoned, scores)

                if settings.resample:
                    played, learned = sample_dynamically(
                        draw, play, rule.advantage, settings.tasks, settings.resample
                    )
                else:
                    played = learned = play(draw(settings.tasks))
                logged = optimizer.update(learned, rate_shares[epoch] if rate_shares else 1.0)
                if settings.resample:
                    logged["zero_advantage"] = zero_advantage_share(rule.advantage(played), played)
                epochs.append(epoch_metrics(played, scores, logged))
                self.actor.sync_sampler()
            return Trained(round_metrics(epochs), optimizer.direction(), optimizer.moments())

    def _paid_rollout(
        self,
        tasks: Sequence[str],
        generator: torch.Generator,
        poisoned: bool,
        scores: list[float],
    ) -> Rollout:
        """Episodes of these tasks with the rewards that are learned from; `scores` gets what the
        world paid."""
        settings = self.settings
        with explain_out_of_memory(doing="playing", advise=partial(advised, settings, 0)):
            rollout = collect_rollout(
                self.loop, self.actor.sampler, tasks, settings.temperature, generator,
                settings.group,
            )  # fmt: skip
        assert rollout.version == self.actor.version, "rollout made with other weights"
        rollout = rollout.scored_only()
        scores += rollout.returns
        if self.pays_success:
            set_success_rewards(rollout)
        set_penalties(rollout, settings.invalid_penalty)
        if poisoned:
            negate_rewards(rollout)
        return rollout

    def play(
        self,
        theta: Tensors,
        ids: Sequence[str],
        seed: int,
        transcripts: bool | Collection[int] = False,
        doing: Doing = "evaluating",
        apart: bool = False,
    ) -> Rollout:
        """One episode of each task at the evaluation's temperature, with transcripts of all or of
        these; `apart`: what is said in one does not depend on which others are played."""
        own = [seeding.derive(seed, task) for task in ids] if apart else None
        advise = partial(advised, self.settings, len(ids))
        with explain_out_of_memory(doing=doing, advise=advise):
            self.actor.load(theta)
            return collect_rollout(
                self.loop, self.actor.sampler, ids, self.settings.eval_temperature,
                self.actor.generator(seed), transcripts=transcripts, seeds=own,
            )  # fmt: skip

    def evaluate(
        self,
        theta: Tensors,
        tasks: Sequence[Task],
        seed: int,
        keep: Callable[[list[Json]], None] | None = None,
    ) -> Metrics:
        """How it does on these tasks; `keep` gets a few of the episodes to read."""
        kept = [] if keep is None else kept_of(len(tasks), seed)
        rollout = self.play(theta, [task.id for task in tasks], seed, kept)
        if keep is not None:
            keep([record(episode) for episode in readable_episodes(tasks, rollout, kept)])
        won = np.array(rollout.won, float)
        kinds = np.array([task.category for task in tasks])
        return {
            "eval/success": float(won.mean()),
            "eval/return": float(np.mean(rollout.returns)),
            "eval/steps": float(np.mean(rollout.lengths)),
            "eval/invalid": float(np.sum(rollout.invalid) / max(len(rollout.samples), 1)),
            "eval/truncated": float(np.mean(rollout.truncated)),
        } | {
            f"eval/success_{kind}": float(won[kinds == kind].mean()) for kind in sorted(set(kinds))
        }


def epoch_metrics(rollout: Rollout, scores: Sequence[float], learned: dict[str, float]) -> Metrics:
    """What a client reports of an epoch: means and counts, nothing of a single episode."""
    answers = max(len(rollout.samples), 1)
    acted = {sample.episode for sample in rollout.samples if sample.command}
    return {
        "train/success": float(np.mean(rollout.won)),
        "train/return": float(np.mean(scores)),
        "train/steps": float(np.mean(rollout.lengths)),
        "train/invalid": float(np.sum(rollout.invalid)) / answers,
        "train/no_think": sum(bool(s.command) and not s.valid for s in rollout.samples) / answers,
        "train/truncated": float(np.mean(rollout.truncated)),
        "train/no_act": 1 - len(acted) / len(rollout.won),
        "env/steps": float(len(rollout.samples)),
        "env/episodes": float(len(rollout.won)),
        "env/tokens": float(rollout.tokens),
    } | {f"train/{name}": float(value) for name, value in learned.items()}


def round_metrics(epochs: Sequence[Metrics]) -> Metrics:
    """Means over the epochs; of `env/`, which counts, sums."""
    columns = {name: [epoch[name] for epoch in epochs] for name in epochs[0]}
    return {
        name: float(sum(column) if name.startswith("env/") else np.mean(column))
        for name, column in columns.items()
    }
