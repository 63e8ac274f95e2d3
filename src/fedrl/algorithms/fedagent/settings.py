"""FedAgent's settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fedrl.aggregation import server_optimizers
from fedrl.core.limits import above_zero, at_least_one, not_negative
from fedrl.core.types import FilePath, ModelName, UserError, Word


@dataclass(frozen=True)
class Settings:
    """How a client learns, and what the server does with it."""

    # The method: fedagent, or one that is built on it.
    name: Word = "fedagent"
    # Model folder (`fedrl warmstart` writes one), GGUF file or Hugging Face id.
    model: ModelName = ""
    # Rank of LoRA's adapters: all that is then trained and sent. 0 trains the whole model.
    lora_rank: int = 0
    # Rank of adapters that each client keeps for itself, on top of the shared model or of shared
    # adapters (lora_rank): trained with the rest, never sent, never averaged. 0 is none.
    personal_rank: int = 0
    # Adapters count lora_alpha times over their rank; only read if there are some.
    lora_alpha: int = 32
    # Linear layers that get adapters, by the last part of their names (q_proj, v_proj) or more of
    # it; empty: all but the output.
    lora_targets: tuple[Word, ...] = ()
    # Rank-stabilised LoRA: adapters count lora_alpha times over the root of their rank.
    rslora: bool = False
    # Learning rate of adapters; 0 is lr.
    lora_lr: float = 0.0
    # Weights that are not trained in 4 bits (NF4, by the package bitsandbytes): a large model in an
    # eighth of the memory, and a model that is near the folder's, not the same. Needs lora_rank.
    four_bit: bool = False
    # How the agent is told its situation: compact (small models) or chat.
    format: Literal["compact", "chat"] = "compact"
    # Chat: answers carry their reasoning in <think> before the choice in <action>.
    thinking: bool = True
    # Turns before the present one that a prompt shows. -1 is the format's own: 2 in chat; all of
    # them in a compact prompt of any world and in conversations; in the compact household 1, in the
    # compact shop 0, whose prompts say what is known instead.
    history: int = -1
    # A text file with the prompt in words of one's own, and fields in braces: {goal}, {history},
    # {observation}, {commands}, {answer}; {prompt} in the world prompts. Empty: the format's words.
    template: FilePath = ""
    # τ: batches of tasks that a client plays and learns from in a round.
    local_epochs: int = 3
    # Tasks per batch, drawn with replacement from the client's own.
    tasks: int = 16
    # G: episodes of each task, compared with each other.
    group: int = 8
    # Dynamic sampling (DAPO): how often in an epoch tasks whose episodes all went alike, of which
    # nothing can be learned, are replaced by new ones; only the others are then learned from. 0 is
    # never.
    resample: int = 0
    # How an episode is judged within its group.
    estimator: Literal["grpo", "rloo", "gigpo", "ppo"] = "grpo"
    # γ: discount of an episode's rewards, by steps. Below 1 an episode that is won sooner went
    # better; in PPO it is GAE's.
    gamma: float = 1.0
    # γ of GiGPO's returns-to-go, which are compared from step to step; only read with gigpo.
    gigpo_gamma: float = 0.95
    # ω of GiGPO: what the comparison of steps counts beside that of episodes; only read with gigpo.
    gigpo_omega: float = 1.0
    # λ of PPO's generalised advantage estimates: 1 is the return less the value, 0 one step's
    # surprise; only read with ppo.
    gae_lambda: float = 1.0
    # How far a value may pay to move from what it was in a round's epoch; only read with ppo.
    value_clip: float = 0.5
    # Learning rate of PPO's value head; only read with estimator = "ppo".
    critic_lr: float = 1e-5
    # η: learning rate of AdamW, at its highest.
    lr: float = 1e-6
    # How the rate goes on over the run's rounds: constant, or along a line or a cosine to 0. All
    # rates follow it. A run that is resumed with more rounds goes on along the longer way.
    lr_schedule: Literal["constant", "linear", "cosine"] = "constant"
    # Rounds in which it rises to its highest.
    lr_warmup: int = 0
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
    # Passes over an epoch's samples. From the second on the clipped ratio is at work.
    ppo_epochs: int = 1
    # Whose log-probabilities a ratio starts from: those that the sampler noted as it answered, or
    # the learner's own, computed again before its first step (a forward pass more). The second also
    # reports how far the two are apart: train/sampler_gap.
    old_logprobs: Literal["sampler", "learner"] = "sampler"
    # Step samples per optimiser step.
    minibatch: int = 64
    # Step samples per forward pass: less memory, the same result. On a GPU, models of the Llama and
    # Qwen2 kinds are also cut by tokens.
    microbatch: int = 64
    # Tokens per forward pass, at most: less memory, the same result but for rounding. 0 is by the
    # model for these kinds (32,768 for small ones, 4,096 for large ones, which learn faster
    # with 16,384: 1.4 to 2.2 times on an H200) and no bound for others.
    pass_tokens: int = 0
    # What counts the same in a minibatch: every answer token, or every step sample.
    average: Literal["token", "sequence"] = "token"
    # Compute activations again on the way back instead of keeping them: less memory, more time.
    save_memory: bool = False
    # Compile the learner with torch.compile, for models other than the Llama and Qwen2 kinds, whose
    # layers are fused by hand on a GPU: a minute at first, then twice as fast.
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
    # Where clients' worlds differ (world.variants): how many of the evaluated tasks are also played
    # in each client's own, as eval/own_success, a mean over these worlds; in the household so many
    # new tasks in each client's scenes. 0 is none.
    eval_own: int = 0
    # How many of the evaluated tasks a client plays once it has trained, with its own weights and
    # the adapters that it keeps, before they are averaged: trained/success. Where clients differ in
    # their worlds also in its own, as trained/own_success: in its shop, or new tasks in its scenes.
    # 0 is none.
    eval_trained: int = 0
    # Which tasks are evaluated; none of them may be trained on.
    eval_split: Word = "unseen"
    # Further splits that every evaluation plays, each as eval/SPLIT_success: withheld scenes, or
    # unseen products, say. Of each as many tasks as eval_tasks says.
    eval_splits: tuple[Word, ...] = ()
    # β of FedSVRPG-M's anchored momentum, a share of the fresh gradient in (0, 1]; 1 is without.
    # Below 1 an answer's log-probability is a sum over its tokens, the ratio is not clipped, and
    # clip and average are not read.
    beta: float = 1.0
    # Largest importance weight between the last round's model and this one; only read if β < 1.
    weight_clip: float = 2.0
    # μ of FedProx: pulls a client towards the round's model.
    prox: float = 0.0
    # How the server moves along the clients' mean change: plain averaging is the paper's;
    # `momentum` keeps 0.9 of its velocity, `adam` has moments of 0.9 and 0.99.
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
            "answer_tokens", "prompt_tokens", "ppo_epochs",
        )  # fmt: skip
        if self.group == 1 and self.estimator != "ppo":
            raise UserError("algorithm.group is 1; an episode needs others to be compared with")
        not_negative(
            self, "algorithm.", "kl", "entropy", "prox", "weight_decay", "invalid_penalty",
            "eval_tasks", "eval_own", "eval_trained", "lora_rank", "personal_rank", "lora_lr",
            "gigpo_omega", "lr_warmup", "resample", "pass_tokens",
        )  # fmt: skip
        for key in ("gamma", "gigpo_gamma", "gae_lambda"):
            if not 0 <= getattr(self, key) <= 1:
                raise UserError(f"algorithm.{key} is {getattr(self, key)}; it lies in [0, 1]")
        self._check_adapters()
        if not 0 < self.beta <= 1:
            raise UserError(f"algorithm.beta is {self.beta}; it must lie in (0, 1]")
        if self.beta < 1 and (self.estimator == "ppo" or self.kl or self.prox or self.entropy):
            raise UserError(
                "algorithm.beta < 1 anchors the plain policy gradient: set kl, entropy and prox to "
                '0, and choose another estimator than "ppo"'
            )
        self._check_passes()
        if self.device == "spread" and self.estimator == "ppo":
            raise UserError(
                'algorithm.device is "spread", which estimator = "ppo" cannot train on: its critic '
                "reads the model on one device; choose another estimator"
            )
        above_zero(
            self, "algorithm.", "lr", "server_lr", "temperature", "clip", "max_grad_norm",
            "weight_clip", "lora_alpha", "value_clip",
        )  # fmt: skip
        if self.history < -1:
            raise UserError(
                f"algorithm.history is {self.history}; it is a number of turns, or -1 for the "
                "format's own"
            )

    def _check_passes(self) -> None:
        """What would not be read is a mistake."""
        if self.resample and self.estimator == "ppo":
            raise UserError(
                "algorithm.resample replaces groups of episodes that all went alike, and estimator "
                '"ppo" judges steps by a critic: set it to 0, or choose another estimator'
            )
        if self.beta < 1 and (self.ppo_epochs > 1 or self.old_logprobs == "learner"):
            raise UserError(
                f"algorithm.beta is {self.beta}: an anchored direction is stepped once, without a "
                'ratio; set algorithm.ppo_epochs = 1 and old_logprobs = "sampler"'
            )

    def _check_adapters(self) -> None:
        """What only adapters have is a mistake without them."""
        asked = {"lora_targets": self.lora_targets, "rslora": self.rslora, "lora_lr": self.lora_lr}
        for key, value in asked.items():
            if value and not (self.lora_rank or self.personal_rank):
                raise UserError(f"algorithm.{key} is for adapters: set algorithm.lora_rank, too")
        if self.four_bit and not self.lora_rank:
            raise UserError(
                "algorithm.four_bit is for weights that are not trained: set algorithm.lora_rank, "
                "too"
            )
        if self.personal_rank and self.beta < 1:
            raise UserError(
                f"algorithm.beta is {self.beta}, whose anchor is of what all clients share, and "
                "algorithm.personal_rank keeps a part from them: set one of them back"
            )
        if self.four_bit and self.rollouts in ("cuda", "vllm"):
            raise UserError(
                f'algorithm.rollouts is "{self.rollouts}", which reads whole weights, and '
                'algorithm.four_bit keeps them in 4 bits: use "auto"'
            )
