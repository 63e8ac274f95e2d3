"""What can be set of FedRLHF on ratings (`fedrlhf`), and which settings contradict each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fedrl.core.limits import above_zero, at_least_one, not_negative
from fedrl.core.types import FilePath, UserError


@dataclass(frozen=True)
class Settings:
    """How a client learns, and from what."""

    name: Literal["fedrlhf"] = "fedrlhf"
    # What predicts: the paper's network, which acts and is paid R0 and feedback, or a linear model
    # of what people like (biases, genres, low-rank factors), which is fitted to their answers.
    policy: Literal["network", "linear"] = "network"
    # Factors per user and per movie of the linear policy; 0 for none.
    rank: int = 0
    # Weight decay of a person's own row of the linear policy,
    decay: float = 18.0
    # and of each movie's row and of the weights that all share.
    movie_decay: float = 8.0
    # Steps per round of what all share of the linear policy, after `local_epochs` of people's rows.
    movie_epochs: int = 1
    # Numbers per user and per movie.
    embedding: int = 50
    # Units of the two hidden layers.
    hidden: tuple[int, ...] = (100, 50)
    # How a client learns: values of its actions, or REINFORCE, which the theorems are about.
    method: Literal["q-learning", "policy-gradient"] = "q-learning"
    # Passes over the client's movies per round.
    local_epochs: int = 5
    # τ: steps per round on movies drawn with replacement, instead of passes; 0 for passes.
    local_steps: int = 0
    # Movies per step.
    batch: int = 8
    # Plain steps (sgd) are for policy-gradient and for the linear policy.
    optimizer: Literal["adam", "sgd"] = "adam"
    # Adam's moments and step count between a client's rounds: kept by the client, or fresh in every
    # round. auto: kept where every client learns alone (centralized, local, independent), fresh
    # where several share a network.
    optimizer_state: Literal["auto", "kept", "fresh"] = "auto"
    # Size of a step, η.
    lr: float = 0.001
    # T of the policy softmax(outputs / T).
    temperature: float = 1.0
    # Where the rows of users are: in the network that all share and the server knows (the paper's),
    # or private: a client keeps those of its own users, and sends rows of movies and layers alone.
    # Somebody whom a network has no row of has a row of zeros. Clients that bring ratings of their
    # own need private rows.
    users: Literal["shared", "private"] = "shared"
    # Whom a row of embeddings is averaged over: all clients of the round, those without ratings of
    # that movie (of that user) too, whose change of it is 0 (the paper's); or its holders alone.
    rows: Literal["all", "holders"] = "all"
    # Whether the network that is evaluated is the mean of θ_0 … θ_{T-1} instead of θ_T.
    average: bool = False
    # What an action is paid: R0 and feedback (shaped), or the true label, for comparison.
    reward: Literal["shaped", "labels"] = "shaped"
    # λ: weight of the feedback beside R0; one for all clients, or one for each.
    lam: tuple[float, ...] = (1.0,)
    # Who answers: a simulated person, a file of answers, a person (`fedrl feedback`), or nobody.
    feedback: Literal["simulated", "logged", "live", "none"] = "simulated"
    # Answers to replay, "{client}" standing for the client's number; only read if logged.
    feedback_file: FilePath = ""
    # Where clients' private folders are, for people to answer in; only read if live.
    feedback_folder: FilePath = ""
    # When a client asks its person: once a round, about its movies and the network that it was
    # sent, or before every step, about the movies of that step and its own network by then (the
    # paper's Algorithm 1).
    ask: Literal["round", "step"] = "round"
    # Movies whose scores a client asks about at a time, all of them if it has fewer,
    rating_queries: int = 100
    # and pairs of movies to compare. With a living person, ask less.
    preference_queries: int = 100
    # Queries that a person is asked in a whole run, at most; 0: as many as the rounds ask.
    most_queries: int = 0
    # Whether a movie whose score has changed may be asked about again.
    ask_again: bool = True
    # Standard deviation of a simulated person's ratings around the true ones, in stars.
    noise: float = 0.5
    # Passes of the reward model over all answers so far, in a round.
    reward_epochs: int = 20
    # Its step size.
    reward_lr: float = 0.01

    def __post_init__(self) -> None:
        at_least_one(
            self,
            "algorithm.",
            "embedding",
            "local_epochs",
            "movie_epochs",
            "batch",
            "reward_epochs",
        )
        not_negative(
            self, "algorithm.", "rank", "decay", "movie_decay", "local_steps", "rating_queries",
            "preference_queries", "most_queries", "noise",
        )  # fmt: skip
        above_zero(self, "algorithm.", "lr", "temperature", "reward_lr")
        if self.policy == "linear":
            self._check_linear()
        elif self.optimizer == "sgd" and self.method != "policy-gradient":
            raise UserError(
                'algorithm.optimizer is "sgd", which Q-learning does not use: set '
                'method = "policy-gradient", policy = "linear" or optimizer = "adam"'
            )
        if len(self.hidden) != 2 or min(self.hidden) < 1:
            raise UserError(
                f"algorithm.hidden is {list(self.hidden)}; name the units of two layers, above 0"
            )
        if not self.lam or min(self.lam) < 0:
            raise UserError(
                f"algorithm.lam is {list(self.lam)}; name one or one per client, none below 0"
            )
        for feedback, key in (("logged", "feedback_file"), ("live", "feedback_folder")):
            if self.feedback == feedback and not getattr(self, key):
                example = "private" if feedback == "live" else "answers-{client}.jsonl"
                raise UserError(
                    f'algorithm.{key} is empty, but algorithm.feedback is "{feedback}": name one, '
                    f"as in --algorithm.{key} {example}"
                )
        if self.feedback_folder and self.feedback != "live":
            raise UserError(
                f"algorithm.feedback_folder is {self.feedback_folder!r}, where people answer, but "
                f'algorithm.feedback is "{self.feedback}": set it to "live", or name no folder'
            )
        if self.reward == "labels" and self.feedback != "none":
            raise UserError(
                'algorithm.reward is "labels", which nobody is asked about: set feedback = "none"'
            )

    def _check_linear(self) -> None:
        """It has people's rows at home and learns from answers alone."""
        for key, needed in (
            ("users", "private"), ("optimizer", "sgd"), ("reward", "shaped"),
            ("method", "q-learning"),
            ("ask", "round"), ("local_steps", 0), ("average", False),
        ):  # fmt: skip
            if (value := getattr(self, key)) != needed:
                raise UserError(
                    f"algorithm.{key} is {value!r}, but the linear policy needs {needed!r}"
                )
        if self.feedback == "none":
            raise UserError(
                'algorithm.feedback is "none", and the linear policy learns from answers alone'
            )
