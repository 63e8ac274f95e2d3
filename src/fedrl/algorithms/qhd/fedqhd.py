"""FedQHD: hyperdimensional Q-learning across clients, agreed upon in closed form.

Paper: "FedQHD: Closed-Form Function-Space Federated Reinforcement Learning", Algorithms 1 and 2.

    shared encoder   clients send W_i, the server averages: exact consensus in function space
    own encoders     clients send their Q-values on m common anchor states, the server averages
                     them to a teacher, and each client compiles it into its own features by ridge
    corrections      (ours) the same exchange, but a client compiles how the teacher differs from
                     what it said: W ← W + compiled(teacher - XW). With m ≥ D anchors and λ → 0 that
                     is the same; with fewer, W keeps what no anchor sees instead of losing it
    truncated        (a baseline) own encoders, but W_i cut to the smallest D, averaged, padded

Between two exchanges a client plays `episodes` ε-greedy episodes, with TD updates from its replay
(`episodes`). Its replay, its ε and its random numbers stay with it. Independent and Oracle are
the same learner in another federation: a client that gets back exactly what it sent has nothing to
compile, and a centralized client plays the episodes of all the clients it stands for. Clients count
the same, as in the paper's experiments; with `aggregate.name = "weighted"`, π_i is a client's share
of the round's steps.

`eval/return` is that of the server's state: the readout that all share, or what each client would
compile (pad) from it. With own encoders that is not what a client holds before it agrees, and never
what one holds that learns alone, because the server's state has its values on the anchors only. So
such clients also report `train/greedy`: the return, without exploration, of the readout that they
have learned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from fedrl.algorithms.qhd import anchors as anchoring
from fedrl.algorithms.qhd import encoders as rff
from fedrl.algorithms.qhd import episodes
from fedrl.algorithms.qhd import td_kernels as kernels
from fedrl.algorithms.qhd.q_learning import (
    REPORTS,
    FederatedQLearner,
    Practice,
    remembers_a_batch,
    round_report,
)
from fedrl.algorithms.qhd.q_learning_kernels import Rules
from fedrl.algorithms.qhd.ridge import Compiler
from fedrl.core import seeding
from fedrl.core.limits import above_zero, at_least_one, not_negative
from fedrl.core.policies import FourierPolicy
from fedrl.core.types import FilePath, Job, Metrics, Result, Spec, Tensors, UserError
from fedrl.envs.interfaces import DiscreteWorld


@dataclass(frozen=True)
class Settings(Practice):
    """How clients see states, learn, and agree."""

    name: Literal["fedqhd", "truncate-qhd"] = "fedqhd"
    # Whether all clients use one encoder, or each its own, with other features and bandwidth.
    encoders: Literal["shared", "own"] = "shared"
    # How clients with own encoders agree: by values on anchors (the paper's), by corrections to
    # them (what no anchor sees stays as it was learned), or by readouts cut to the smallest.
    agree: Literal["values", "corrections", "truncate"] = "values"
    # D: features of the shared encoder.
    features: int = 10_000
    # D_i of own encoders, given to the clients in turn.
    sizes: tuple[int, ...] = (500, 1000, 2000, 5000, 10_000)
    # σ of the shared encoder, σ0 of own ones.
    bandwidth: float = 0.5
    # Own encoders draw σ_i uniformly within this share of σ0, on either side.
    bandwidth_spread: float = 0.5
    # Complex features exp(i(ω·s + b)) instead of cos(ω·s + b).
    complex: bool = False
    # m: states on which clients with own encoders agree.
    anchors: int = anchoring.DEFAULT
    # Where they come from: random play, uniform draws of plausible states, or `anchor_file`.
    anchor_source: anchoring.Source = "rollouts"
    # A .npy or .csv file of states as the world shows them, one per row; its rows are m.
    anchor_file: FilePath = ""
    # λ of the ridge that compiles the teacher.
    ridge: float = 1e-3
    # η: TD errors are summed over a batch.
    lr: float = 0.1
    # Transitions per TD update.
    batch: int = 16

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least_one(self, "algorithm.", "features", "batch")
        remembers_a_batch(self.replay, self.batch)
        if self.name == "truncate-qhd" and self.agree != "truncate":
            raise UserError(
                f'algorithm.agree is "{self.agree}", but truncate-qhd is what cuts readouts: set '
                'algorithm.name = "fedqhd"'
            )
        if not self.sizes or min(self.sizes) < 1:
            raise UserError(f"algorithm.sizes is {list(self.sizes)}; name at least one D, above 0")
        above_zero(self, "algorithm.", "bandwidth", "lr")
        not_negative(self, "algorithm.", "ridge")
        if not 0 <= self.bandwidth_spread < 1:
            raise UserError(
                f"algorithm.bandwidth_spread is {self.bandwidth_spread}; it must lie in [0, 1)"
            )
        if self.agree != "values" and self.encoders == "shared":
            raise UserError(
                f'algorithm.agree = "{self.agree}" is for own encoders: '
                'set algorithm.encoders = "own"'
            )
        by_values = self.encoders == "own" and self.agree != "truncate"
        anchoring.check(self.anchors, self.anchor_source, self.anchor_file, by_values)


class Client(NamedTuple):
    """What follows from a client's number and the run's seed: its encoder, in two forms."""

    encoder: rff.Encoder
    blocks: kernels.Blocks


class FedQHD(FederatedQLearner):
    """See the module's docstring."""

    settings: Settings
    reports = REPORTS | {"train/greedy"}

    def __init__(
        self, settings: Settings, world: DiscreteWorld, client_env_ids: Sequence[Sequence[int]]
    ) -> None:
        super().__init__(settings, world, client_env_ids)
        self.own = settings.encoders == "own"
        self.by_values = self.own and settings.agree != "truncate"
        self._clients: dict[tuple[int, int], Client] = {}
        self._compilers: dict[tuple[int, int, bytes], Compiler] = {}

    @property
    def rules(self) -> Rules:
        s = self.settings
        return s.rules(s.lr, s.batch, self.world.limit, self.sign)

    # The server

    def init(self, seed: int) -> Tensors:
        s, actions = self.settings, self.world.actions
        state: Tensors = {"seed": np.array([seed % 2**62], np.int64)}
        if self.by_values:
            anchors = anchoring.draw(self.world, s.anchors, s.anchor_source, s.anchor_file, seed)
            teacher = np.zeros((len(anchors), actions), np.float32)
            return state | {"anchors": anchors, "teacher": teacher}
        lanes = (2 if s.complex else 1) * (self.smallest if self.own else s.features)
        return state | {"readout": np.zeros((actions, lanes), np.float32)}

    def declare(self, broadcast: Tensors) -> dict[str, Spec]:
        """Values on the anchors, or a readout; never anything of a trajectory."""
        name = "teacher" if self.by_values else "readout"
        return {name: Spec(broadcast[name].shape, "float32")}

    def step(self, state: Tensors, mean: Tensors, round: int) -> Tensors:
        return state | {name: value.astype(np.float32) for name, value in mean.items()}

    # A client

    def local(self, job: Job) -> Result:
        client = self.client(job.client, job.broadcast)
        learner, kept = self._restore(job, client)
        self._receive(job, client, learner, kept)
        own = self.client_env_ids[job.client]
        count, world = self.settings.episodes * len(own), self.world.of_clients(own)
        returns, lengths = episodes.run_episodes(
            world, count, client.blocks, learner, self.rules, job.seed
        )
        recent, metrics = round_report(job, returns, lengths, self.settings.recent)
        if self.own:
            seed = seeding.derive(job.seed, "greedy")  # other starts than the training's
            metrics["train/greedy"] = self._greedy(world, client, learner.online, seed)
        sent = self._sent(job.broadcast, client, learner)
        state = {**learner._asdict(), "returns": recent, "sent": sent}
        name = "teacher" if self.by_values else "readout"
        return Result(job.client, {name: sent}, metrics["env/steps"], state, metrics)

    def client(self, number: int, sent: Tensors) -> Client:
        """Drawn from the run's seed, so that a restart finds the same encoder."""
        s, seed = self.settings, int(sent["seed"][0])
        key = (seed, number if self.own else -1)
        if key not in self._clients:
            size = s.sizes[number % len(s.sizes)] if self.own else s.features
            drawn = seeding.derive(seed, "encoder", number if self.own else 0)
            sigma = self.bandwidth(number, sent)
            encoder = rff.draw(self.world.dimension, size, sigma, drawn, s.complex)
            self._clients[key] = Client(encoder, kernels.blocks(rff.lanes(encoder)))
        return self._clients[key]

    @property
    def smallest(self) -> int:
        """min D_i over the clients that there are; a list of sizes may be longer."""
        sizes = self.settings.sizes
        return min(sizes[: self.world.clients])

    def bandwidth(self, number: int, sent: Tensors) -> float:
        """σ_i, which only the draw of a client's encoder needs."""
        s = self.settings
        if not self.own:
            return s.bandwidth
        share = seeding.generator(int(sent["seed"][0]), "bandwidth", number).uniform(-1, 1)
        return s.bandwidth * (1 + s.bandwidth_spread * share)

    def _restore(self, job: Job, client: Client) -> tuple[kernels.Learner, Tensors]:
        """The learner as it was left, and what the client kept beside it."""
        if job.state is not None:
            arrays = {name: np.array(job.state[name]) for name in kernels.Learner._fields}
            return kernels.Learner(**arrays), job.state
        learner = kernels.fresh(
            self.world.actions, self._lanes(client), self.world.dimension, self.settings.replay,
            job.seed % 2**63, self.settings.epsilon,
        )  # fmt: skip
        return learner, {"sent": None}

    def _receive(self, job: Job, client: Client, learner: kernels.Learner, kept: Tensors) -> None:
        """W ← what the server says; nothing if that is exactly what this client said itself."""
        got = job.broadcast["teacher" if self.by_values else "readout"]
        if kept["sent"] is not None and np.array_equal(got, kept["sent"]):
            return
        if self.settings.agree == "corrections" and kept["sent"] is not None:
            compiler = self._compiler(job.client, job.broadcast, client)
            learner.online[:] += rff.pack(client.encoder, compiler.compile(got - kept["sent"]))
        else:
            learner.online[:] = self.readout(job.client, job.broadcast)
        if self.settings.sync_on_receipt:
            learner.target[:] = learner.online

    def readout(self, number: int, sent: Tensors) -> np.ndarray:
        """The server's word as rows [|A|, lanes] of a client's encoder."""
        client = self.client(number, sent)
        if self.by_values:
            readout = self._compiler(number, sent, client).compile(sent["teacher"])
            return rff.pack(client.encoder, readout)
        if not self.own:
            return np.asarray(sent["readout"])
        rows = np.zeros((self.world.actions, self._lanes(client)), np.float32)
        for own, common in zip(self._parts(rows), self._parts(sent["readout"]), strict=True):
            own[:, : common.shape[1]] = common
        return rows

    def _compiler(self, number: int, sent: Tensors, client: Client) -> Compiler:
        """Factored once: the anchors do not change."""
        key = (int(sent["seed"][0]), number, sent["anchors"].tobytes())
        if key not in self._compilers:
            states = self.world.scaling(sent["anchors"])
            self._compilers[key] = Compiler(rff.design(client.encoder, states), self.settings.ridge)
        return self._compilers[key]

    def _sent(self, sent: Tensors, client: Client, learner: kernels.Learner) -> np.ndarray:
        """What leaves the client: its values on the anchors, or its (cut) readout."""
        if self.by_values:
            readout = rff.unpack(client.encoder, learner.online)
            states = self.world.scaling(sent["anchors"])
            return rff.values(client.encoder, readout, states).astype(np.float32)
        if not self.own:
            return learner.online.copy()
        return np.hstack([part[:, : self.smallest] for part in self._parts(learner.online)])

    def _lanes(self, client: Client) -> int:
        return client.encoder.features * (2 if self.settings.complex else 1)

    def _parts(self, rows: np.ndarray) -> list[np.ndarray]:
        """Views of the cosine lanes and, if complex, of the sine lanes: [|A|, D] each."""
        return np.split(rows, 2, axis=1) if self.settings.complex else [rows]

    def policy(self, state: Tensors, client: int | None = None) -> FourierPolicy:
        """The readout that all share; of own encoders, what this client would compile from it."""
        if self.own and client is None:
            raise UserError("every client has an encoder of its own: say whose policy (--client 0)")
        number = client or 0
        return self._policy(self.client(number, state), self.readout(number, state))

    def own_policy(self, kept: Tensors, state: Tensors, client: int) -> FourierPolicy:
        """What the client had learned when its last round ended."""
        return self._policy(self.client(client, state), kept["online"])

    def _policy(self, client: Client, rows: np.ndarray) -> FourierPolicy:
        omega, phase, scale = rff.lanes(client.encoder)
        return FourierPolicy(omega, phase, np.array(rows), scale, self.world.scaling)

    # Evaluation

    def evaluate(
        self, states: Sequence[Tensors], owners: Sequence[Sequence[int]], round: int, seed: int
    ) -> Metrics:
        """Greedy episodes with what each client would hold; all of them hold the same if shared."""
        returns = [
            self._received(client, state, seed, [client] if self.own else self.world.own)
            for state, clients in zip(states, owners, strict=True)
            for client in (clients if self.own else clients[:1])
        ]
        return {"eval/return": float(np.mean(returns))}

    def evaluate_clients(self, state: Tensors, seed: int, episodes: int) -> np.ndarray:
        clients = range(self.world.clients)
        return np.array([self._received(c, state, seed, [c], episodes) for c in clients])

    def _received(
        self, number: int, state: Tensors, seed: int, places: Sequence[int], count: int = 0
    ) -> float:
        """What a client would hold, played in the environments of the clients `places`."""
        rows, world = self.readout(number, state), self.world.of_clients(places)
        return self._greedy(world, self.client(number, state), rows, seed, count)

    def _greedy(
        self, world: DiscreteWorld, client: Client, rows: np.ndarray, seed: int, count: int = 0
    ) -> float:
        """Mean return of a readout, rows [|A|, lanes], without exploration."""
        count = count or self.settings.eval_episodes
        return float(episodes.evaluate(world, count, client.blocks, rows, seed).mean())


def build(
    settings: Settings, world: DiscreteWorld, rounds: int, client_env_ids: Sequence[Sequence[int]]
) -> FedQHD:
    return FedQHD(settings, world, client_env_ids)
