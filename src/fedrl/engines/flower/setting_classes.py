"""Whose business every setting of a recipe is on a node: a list, so that a new one is thought of.

    free      the method's and the world's: any value of its type, within the limits on numbers
    governed  the node's policy has a say: files, models, code, addresses, attacks, privacy, names
    local     of the driver's machine, or of the owner's own settings: a node makes nothing of it

`tests/engines/flower/test_setting_classes.py` walks all settings of all methods and worlds and asks
for each to be here; what is governed is refused by `policy_check.py`, which knows by a field's type
what a text names. `fedrl flower approve` shows a recipe in these parts.
"""

from __future__ import annotations

from typing import Literal

Class = Literal["free", "governed", "local"]

LOCAL = frozenset(
    """
    engine connection workers out eval_every checkpoint_every track
    federation.retries federation.deadline
    partition.folder partition.digests flower.wait flower.patience
    aggregate.name aggregate.trim aggregate.byzantine aggregate.keep aggregate.bound
    aggregate.alpha aggregate.batch aggregate.sigma aggregate.delta
    async_buffer.staleness async_buffer.times async_buffer.spread async_buffer.jitter
    world.digest borrowed
    """.split()
)
GOVERNED = frozenset(
    """
    packages agree algorithm.name world.name
    federation.clients federation.cohort federation.kind federation.quorum async_buffer.size
    partition.labels
    privacy.clip privacy.noise privacy.where privacy.delta privacy.epsilon privacy.secure
    privacy.threshold privacy.reports privacy.seeded
    attack.clients attack.share attack.kind attack.strength faults.clients faults.kind faults.rate
    algorithm.anchor_file algorithm.feedback_file algorithm.feedback_folder algorithm.model
    algorithm.sentiment algorithm.template algorithm.lam algorithm.client_steps
    world.arguments world.attributes world.environment world.id world.ids world.kwargs
    world.reward world.serve world.source world.tools world.url world.wrappers world.threads
    """.split()
)
FREE = frozenset(
    """
    name seed rounds federation.client
    partition.strategy partition.size partition.held_out partition.omega partition.anchor
    partition.xi partition.overlap partition.fewest partition.most partition.divergence
    partition.fallback partition.unlabelled flower.precision flower.piece_mb flower.warm
    """.split()
)
METHOD = frozenset(
    """
    adaptive_factor adaptive_offset agree anchor_source anchors answer_tokens ask ask_again
    average bandwidth bandwidth_spread batch batches beta by_episode clip compile complex
    critic_lr decay device direction_clip distill_lr distill_steps double embedding encoders
    entropy episodes epsilon epsilon_decay epsilon_floor epsilon_steps estimator
    eval_completions eval_episodes eval_own eval_prompts eval_split eval_splits eval_tasks
    eval_temperature eval_trained
    features feedback floor format four_bit gae_lambda gamma gigpo_gamma gigpo_omega
    gradient_steps group hidden history huber initial_trajectories intrinsic invalid_penalty kl
    learning_starts local_epochs local_steps local_steps_spread log_std lora_alpha lora_lr
    lora_rank lora_targets losses lr lr_schedule lr_warmup max_grad_norm mean_over_steps method
    microbatch minibatch most_queries movie_decay movie_epochs mu noise old_logprobs optimizer
    optimizer_state owners_per_batch pass_tokens personal_rank policy ppo_epochs preference_queries
    prompt_tokens prox rank rating_queries recent replay resample return_scale reward
    reward_epochs reward_lr ridge rollouts rows rslora samples save_memory server_lr
    server_optimizer server_trajectories sizes standardize sync_episodes sync_on_receipt
    sync_steps tasks temperature thinking train_every trajectories users value_clip weight_clip
    weight_decay
    """.split()
)
"""Free ones of `[algorithm]`."""
WORLD = frozenset(
    """
    action action_bounds actions answer catalogue_seed category commands density divergence
    faithful family first_seed force_spread games gamma generation goal goal_seed goals
    gravity_spread held_out horizon initial initial_spread kappa keep kernel least length_spread
    lookalikes max_steps movies noise noise_spread observation order_seed patience products
    prompt public ratings renew reranked reviews scale scaled seen shift shops shortest
    simulator size split split_seed states subset success tagger task test train unseen
    unseen_products users validation variants weights win withheld
    """.split()
)
"""Free ones of `[world]`."""


def class_of(key: str) -> Class | None:
    """None for one that nobody has thought of: of a package from outside, or a new one."""
    table, _, name = key.partition(".")
    if key in GOVERNED:
        return "governed"
    if key in LOCAL:
        return "local"
    free = {"algorithm": METHOD, "world": WORLD}.get(table)
    return "free" if key in FREE or (free is not None and name in free) else None
