"""FedAgent's settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fedrl.aggregation import server_optimizers
from fedrl.core.limits import above_zero, at_least_one, not_negative
from fedrl.core.types import ModelName, UserError, Word


@dataclass(frozen=True)
class Settings:
    """How a client learns, and what the server does with it."""

    # The method: fedagent, or one that is built on it.
    name: Word = "fedagent"
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
    max_grad_norm: float = 1.0
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
    # also pays for products that are nearly right. auto: success, and the score where rewards are
    # numbers of one's own (`prompts`).
    reward: Literal["auto", "success", "score"] = "auto"
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
    weight_clip: float = 2.0
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
            self, "algorithm.", "lr", "server_lr", "temperature", "clip", "max_grad_norm",
            "weight_clip", "lora_alpha",
        )  # fmt: skip
