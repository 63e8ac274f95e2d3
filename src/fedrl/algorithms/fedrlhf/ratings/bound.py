"""FedRLHF's Theorem 4.1 beside a run: how far from the best it may be, with measured constants.

Paper: Theorem 4.1 and its proof (appendix B). K clients, τ local steps of size η = 1/(Lτ), T
rounds, a uniform mean; J = mean of the clients' J_k, which are paid R_k = R0_k + λ H_k. Then

    E[J(θ*) − J(θ_avg)] ≤ L/(μT) · (J(θ*) − J(θ_0))      transient
                        + 1/(2μK) · (G² + σ²)            noise
                        + L/μ · λ H_max                  feedback

if every J_k has L-Lipschitz gradients of norm at most G, a minibatch's gradient has variance at
most σ², |H_k| ≤ H_max, and 2μ (J(θ*) − J(θ)) ≤ ‖∇J(θ)‖² (the Polyak-Łojasiewicz condition).

Three remarks on the proof, which is about the mean of J(θ*) − J(θ_t) over t < T:

- It is carried to θ_avg without a reason; that would need a concave J. Rows have both gaps.
- With τ > 1 clients drift: they follow their own J_k, at points that θ_t has left. The proof drops
  that, so the bound can fail (many clients of two kinds, `test_fedrlhf_bound.py`). With

    drift = (τ − 1)(2τ − 1)/(12 μ τ²) · (G² + σ²)

  added it holds. For one round: smoothness, and ⟨∇J, ĝ⟩ = (‖∇J‖² + ‖ĝ‖² − ‖∇J − ĝ‖²)/2 for the
  mean ĝ of all gradients along the clients' ways. The mean update's second moment is at most
  ‖ĝ‖² + (G² + σ²)/K. Step i is taken within η i √(G² + σ²) of θ_t (root mean square), so
  ‖∇J − ĝ‖² is at most L²η²(G² + σ²) times the mean of i², i < τ.
- `feedback` is subtracted once per round although H_k is part of J_k. If H_k does not change, as
  here, it is not needed: `repaired` is transient + noise + drift.

The same inequality, without the Polyak-Łojasiewicz condition, bounds the mean of ‖∇J(θ_t)‖² over
t < T by 2μ times `repaired`, in which μ cancels: 2L/T · (J(θ*) − J(θ_0)) and so on. Where μ is tiny
and the bound of the gap says nothing, this one still does.

What is measured, and how well. J and ∇J are exact: a client's states and both actions are
enumerated; so is the variance σ². J(θ*) is what the best action in every state would earn, an upper
bound that no finite θ reaches. λ H_max is the clients' mean of λ_k max |H_k|. Estimates, from the
points that the run visited: L, the largest quotient ‖∇J_k(θ) − ∇J_k(θ')‖ / ‖θ − θ'‖ found (along
the steepest directions, by power iteration, and along the run), which is too low if anything; G and
σ, largest over θ_t and the ends of local work; μ, the smallest ‖∇J‖²/(2 (J(θ*) − J)) over θ_t. A
softmax policy has no global μ > 0, and relu no global L: the bound is one for this run, no promise.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedrl.aggregation import mean as aggregate
from fedrl.algorithms.fedrlhf.ratings.algorithm import PARTS, FedRLHF
from fedrl.algorithms.fedrlhf.ratings.client_data import ClientRatings
from fedrl.algorithms.fedrlhf.ratings.policy import expected_return, gradient_moments
from fedrl.core import seeding
from fedrl.core.types import Job, Tensors, UserError
from fedrl.feedback import rating_network as network
from fedrl.feedback import reward_model
from fedrl.feedback.rating_kernels import Rules, Single, Sizes

Floats = NDArray[np.float64]

NUDGE = 0.01
"""Length of the differences in power iteration: small beside θ, large beside float32's rounding."""
TURNS = 6
MARGIN = 1.25
"""When L turns out larger along a run than was assumed, the next one assumes this much more."""


class Constants(NamedTuple):
    """What the theorem knows of a run."""

    smoothness: float  # L
    pl: float  # μ
    gradient: float  # G
    noise: float  # σ
    start: float  # J(θ*) − J(θ_0)
    feedback: float  # λ H_max
    clients: int  # K
    steps: int  # τ

    @property
    def lr(self) -> float:
        """η of the theorem."""
        return 1 / (self.smoothness * self.steps)


class BoundRow(NamedTuple):
    """After T rounds: what was measured, and the theorem's terms."""

    round: int  # T
    gap: float  # J(θ*) − J(θ_t), mean over t < T: what is bounded
    averaged: float  # J(θ*) − J of the mean of θ_t, t < T
    now: float  # J(θ*) − J(θ_T)
    slope: float  # ‖∇J(θ_t)‖², mean over t < T
    slope_bound: float  # 2μ · repaired: of the slope, and free of μ
    transient: float
    noise: float
    feedback: float
    drift: float  # not in the paper

    @property
    def paper(self) -> float:
        return self.transient + self.noise + self.feedback

    @property
    def repaired(self) -> float:
        return self.transient + self.noise + self.drift


class Path(NamedTuple):
    """What a run went through: θ_0 … θ_T, and the means of θ_0 … θ_{t-1}, t from 1."""

    gaps: Floats  # [T + 1]
    slopes: Floats  # [T], ‖∇J(θ_t)‖², t < T
    averaged: Floats  # [T]


class Measured(NamedTuple):
    constants: Constants
    rows: list[BoundRow]


def bound(constants: Constants, path: Path) -> list[BoundRow]:
    """The theorem's terms beside the run, for every number of rounds T from 1."""
    moment = constants.gradient**2 + constants.noise**2
    steps, half = constants.steps, 1 / (2 * constants.pl)
    slow = constants.smoothness / constants.pl
    drift = (steps - 1) * (2 * steps - 1) / (6 * steps**2)
    return [
        BoundRow(
            round=t,
            gap=float(path.gaps[:t].mean()),
            averaged=float(path.averaged[t - 1]),
            now=float(path.gaps[t]),
            slope=float(path.slopes[:t].mean()),
            slope_bound=(
                2 * constants.smoothness * constants.start / t
                + moment * (1 / constants.clients + drift)
            ),
            transient=slow * constants.start / t,
            noise=half * moment / constants.clients,
            feedback=slow * constants.feedback,
            drift=half * drift * moment,
        )
        for t in range(1, len(path.gaps))
    ]


class Visit(NamedTuple):
    """J_k at one place, for a client."""

    value: float
    gradient: Single
    noise: float  # variance of a minibatch's gradient


class Objective(NamedTuple):
    """One client's J_k, of a vector of its own rows (`rating_network.pack`)."""

    client: int
    data: ClientRatings
    sizes: Sizes
    rewards: Single  # [n, 2]
    rules: Rules
    feedback: float  # λ_k max |H_k|

    def pack(self, theta: Tensors) -> Single:
        return network.pack(theta, self.data.users, self.data.movies)

    def at(self, vector: Single) -> tuple[float, Single]:
        """J_k and ∇J_k."""
        descent = np.zeros_like(vector)
        value = expected_return(
            vector, self.sizes, self.data.train, self.rewards, self.rules, descent
        )
        return value, -descent

    def visit(self, vector: Single) -> Visit:
        value, gradient = self.at(vector)
        moments = gradient_moments(vector, self.sizes, self.data.train, self.rewards, self.rules)
        noise = float(moments.mean() - _square(gradient)) / self.rules.batch
        return Visit(value, gradient, noise)

    def steepest(self, theta: Tensors, random: np.random.Generator) -> float:
        """The largest quotient of differences around θ that power iteration finds."""
        vector = self.pack(theta)
        towards, largest = random.normal(size=vector.size), 0.0
        for _ in range(TURNS):
            towards *= NUDGE / np.linalg.norm(towards)
            step = towards.astype(np.float32)
            there, back = (self.at(vector + sign * step)[1] for sign in (1, -1))
            towards = there.astype(np.float64) - back
            largest = max(largest, float(np.linalg.norm(towards)) / (2 * NUDGE))
            if not towards.any():
                break
        return largest


def _square(vector: Single) -> float:
    return float((vector.astype(np.float64) ** 2).sum())


def measure(algorithm: FedRLHF, rounds: int, seed: int) -> Measured:
    """Run the theorem's algorithm on this world, with η = 1/(Lτ), and put the bound beside it.

    Feedback is asked for once, about θ_0, and H_k stays as it is then: J is one function. L is
    found by running: where it grows along the way, a run with shorter steps takes its place.
    """
    constants, path, _ = walk(algorithm, rounds, seed)
    return Measured(constants, bound(constants, path))


def walk(
    algorithm: FedRLHF, rounds: int, seed: int, keep: Collection[int] = ()
) -> tuple[Constants, Path, Walk]:
    """The run behind `measure`; it keeps what these rounds began with."""
    _check(algorithm)
    start = algorithm.broadcast(algorithm.init(seeding.derive(seed, "init")), 1)
    clients = range(len(algorithm.client_env_ids))
    objectives = [_objective(algorithm, start, client, seed) for client in clients]
    steps, random = algorithm.settings.local_steps, seeding.generator(seed, "bound")
    smoothness = max(objective.steepest(start, random) for objective in objectives)
    while True:
        short = replace(algorithm.settings, lr=1 / (smoothness * steps))
        paced = FedRLHF(short, algorithm.world, algorithm.client_env_ids)
        way = Walk(paced, objectives, random, keep)
        path = way.run(start, rounds, seed)
        if way.smoothness <= smoothness:
            break
        smoothness = MARGIN * way.smoothness
    constants = Constants(
        smoothness=smoothness,
        pl=float((path.slopes / (2 * path.gaps[:-1])).min()),
        gradient=way.gradient,
        noise=way.noise**0.5,
        start=float(path.gaps[0]),
        feedback=float(np.mean([objective.feedback for objective in objectives])),
        clients=len(objectives),
        steps=steps,
    )
    return constants, path, way


def _check(algorithm: FedRLHF) -> None:
    settings = algorithm.settings
    for key, value, needed in (
        ("policy", settings.policy, "network"),
        ("method", settings.method, "policy-gradient"),
        ("optimizer", settings.optimizer, "sgd"),
        ("users", settings.users, "shared"),
        ("rows", settings.rows, "all"),
    ):
        if value != needed:
            raise UserError(
                f'algorithm.{key} is "{value}"; the theorem is about {key} = "{needed}"'
            )
    if settings.local_steps < 1:
        raise UserError("algorithm.local_steps is 0; the theorem's τ must be at least 1")
    if settings.feedback == "live":
        raise UserError('algorithm.feedback is "live"; the bound is measured without waiting')


def _objective(algorithm: FedRLHF, start: Tensors, client: int, seed: int) -> Objective:
    """A client's objective after its person was asked about θ_0."""
    data, settings = algorithm.client_data[client], algorithm.settings
    job = Job(client, start, None, seeding.derive(seed, "ask", 0, client))
    _, model = algorithm.learn_feedback(job)
    sizes = algorithm.sizes._replace(users=len(data.users), movies=len(data.movies))
    rules = Rules(settings.batch, settings.lr, temperature=settings.temperature)
    feedback = reward_model.predict(model, algorithm.reward_model_sizes(data), data.train)
    heard = settings.reward == "shaped" and settings.feedback != "none"
    largest = float(np.abs(data.weight * feedback).max()) if heard else 0.0
    return Objective(client, data, sizes, algorithm.rewards(data, model), rules, largest)


class Walk:
    """A run of the theorem's algorithm; the constants are the largest that it came by."""

    def __init__(
        self,
        algorithm: FedRLHF,
        objectives: Sequence[Objective],
        random: np.random.Generator,
        keep: Collection[int] = (),
    ) -> None:
        self.algorithm, self.objectives, self.random = algorithm, objectives, random
        self.keep, self.kept = keep, dict[int, Tensors]()
        self.smoothness = self.gradient = self.noise = 0.0
        self.best = float(np.mean([objective.rewards.max(1).mean() for objective in objectives]))

    def run(self, start: Tensors, rounds: int, seed: int) -> Path:
        theta, mean = start, start
        gaps, slopes, averaged = [], [], []
        for number in range(1, rounds + 1):
            if number in self.keep:
                self.kept[number] = theta
            visits = [self._see(objective, theta) for objective in self.objectives]
            gaps.append(self.best - float(np.mean([visit.value for visit in visits])))
            slopes.append(self._slope(theta, visits))
            mean = {p: mean[p] + (theta[p] - mean[p]) / np.float32(number) for p in PARTS}
            averaged.append(self.gap(mean))
            updates = []
            for objective, visit in zip(self.objectives, visits, strict=True):
                client = objective.client
                job = Job(client, theta, None, seeding.derive(seed, "local", number, client))
                updates.append((self._locally(job, objective, visit), 1.0))
            theta = self.algorithm.step(theta, aggregate.weighted(updates), number)
        gaps.append(self.gap(theta))
        return Path(np.array(gaps), np.array(slopes), np.array(averaged))

    def _see(self, objective: Objective, theta: Tensors) -> Visit:
        """J_k at a broadcast θ, and how much it bends there."""
        self.smoothness = max(self.smoothness, objective.steepest(theta, self.random))
        return self._note(objective.visit(objective.pack(theta)))

    def _note(self, visit: Visit) -> Visit:
        self.gradient = max(self.gradient, _square(visit.gradient) ** 0.5)
        self.noise = max(self.noise, visit.noise)
        return visit

    def _locally(self, job: Job, objective: Objective, before: Visit) -> Tensors:
        """The client's τ steps; its change of θ."""
        here = self.stepped(job, objective)
        vector, start = objective.pack(here), objective.pack(job.broadcast)
        after = self._note(objective.visit(vector))
        way = _square(vector - start)
        if way > NUDGE**2:  # of a shorter way rounding would be a part
            bend = _square(after.gradient - before.gradient) / way
            self.smoothness = max(self.smoothness, bend**0.5)
        return {name: here[name] - job.broadcast[name] for name in PARTS}

    def stepped(self, job: Job, objective: Objective) -> Tensors:
        """θ^k after the client's τ steps."""
        own, _, _ = self.algorithm.improve(job, objective.data, objective.rewards)
        return self.algorithm.personal_policy(job.broadcast, {"personal": own}, job.client)

    def gap(self, theta: Tensors) -> float:
        """J(θ*) − J(θ)."""
        values = [objective.at(objective.pack(theta))[0] for objective in self.objectives]
        return self.best - float(np.mean(values))

    def _slope(self, theta: Tensors, visits: Sequence[Visit]) -> float:
        """‖∇J‖²: the clients' gradients, each on its own rows, added up in the whole network."""
        total = {name: np.zeros(theta[name].shape) for name in PARTS}
        for objective, visit in zip(self.objectives, visits, strict=True):
            parts = network.unpack(visit.gradient, objective.sizes)
            total["user"][objective.data.users] += parts["user"]
            total["movie"][objective.data.movies] += parts["movie"]
            total["layers"] += parts["layers"]
        return sum(float((part**2).sum()) for part in total.values()) / len(visits) ** 2
