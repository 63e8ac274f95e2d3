"""FedRLHF on ratings: feedback matters, stays where it is, and none of the known traps is there."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from support import realdata
from support.ratings import CLIENTS, WORLD, built, world

from fedrl.aggregation import mean as aggregate
from fedrl.algorithms.fedrlhf.ratings import metrics, rating_queries
from fedrl.algorithms.fedrlhf.ratings.algorithm import FedRLHF
from fedrl.algorithms.fedrlhf.ratings.client_data import user_states
from fedrl.cli import call
from fedrl.config.build import build_algorithm
from fedrl.config.loading import resolve
from fedrl.core import seeding
from fedrl.core.types import Job, Tensors, UserError
from fedrl.engines.in_process import InProcess
from fedrl.envs.movielens import world as movielens
from fedrl.envs.movielens.world import World
from fedrl.feedback import rating_network as network
from fedrl.feedback import reward_model
from fedrl.feedback.queries import Answer, FeedbackSource, Query
from fedrl.feedback.store import Folder, client_folder
from fedrl.report.plots import interval


def rounds(algorithm: FedRLHF, count: int = 3, seed: int = 0, start=None):
    """The server's state and the clients' after some rounds of the usual averaging."""
    first = algorithm.init(seeding.derive(seed, "init"))
    done, state, kept = start or (0, first, {})
    for number in range(done + 1, done + count + 1):
        jobs = [
            Job(c, state, kept.get(c), seeding.derive(seed, "local/0", number, c))
            for c in range(len(algorithm.client_env_ids))
        ]
        results = algorithm.local_many(jobs)
        mean = aggregate.weighted((result.update, result.weight) for result in results)
        state = algorithm.step(state, mean, number)
        kept = {result.client: result.state for result in results}
    return done + count, state, kept


def same(one: Tensors, other: Tensors) -> bool:
    return all(np.array_equal(one[name], other[name]) for name in one)


class Twisted:
    """A source whose answers are changed on their way."""

    def __init__(self, source: FeedbackSource, change) -> None:
        self.source, self.change = source, change

    def answers(self, questions: Sequence[Query], seed: int) -> list[Answer]:
        said = self.source.answers(questions, seed)
        return [Answer(a.question, v) for a, v in zip(said, self.change([a.value for a in said]))]


def twisted(algorithm: FedRLHF, change, only: int | None = None) -> FedRLHF:
    usual = algorithm.feedback_source

    def source(mine):
        person = usual(mine)
        return lambda user: Twisted(person(user), change) if only in (None, user) else person(user)

    algorithm.feedback_source = source
    return algorithm


# What feedback does


def test_without_weight_feedback_changes_nothing_to_the_bit():
    """λ = 0 is plain federated Q-learning on R0, also where the reward model knows something."""
    _, plain, _ = rounds(built(feedback="none"))
    _, weightless, _ = rounds(built(lam=(0.0,)))
    assert same(plain, weightless)
    _, weighty, kept = rounds(built(lam=(0.5,)))
    assert not same(plain, weighty)
    assert reward_model.predict(kept[0]["model"], *shaped(built(), 0)).std() > 0.05
    start = built().init(0)
    informed = built(lam=(0.0,)).local(Job(0, start, kept[0], 5))
    assert same(informed.update, built(feedback="none").local(Job(0, start, None, 5)).update)


def test_nobody_is_asked_whose_answers_have_no_weight():
    algorithm = built(client_env_ids=[[0, 1], [2], [3]], lam=(0.0, 1.0, 0.0, 0.5))
    ears = [Listening() for _ in range(CLIENTS)]
    algorithm.feedback_source = lambda mine: lambda user: ears[user]
    rounds(algorithm, 2)
    assert [len(ear.asked) > 20 for ear in ears] == [False, True, False, True]
    assert not ears[0].asked
    assert not ears[2].asked


def shaped(algorithm: FedRLHF, client: int):
    mine = algorithm.client_data[client]
    return algorithm.reward_model_sizes(mine), mine.train


def test_only_the_clients_with_a_weight_are_moved():
    """λ per client: in one round, who has 0 sends the very update of a run without feedback."""
    weights = (0.0, 1.0, 0.0, 2.0)
    some, none = built(lam=weights), built(feedback="none")
    start = some.init(3)
    for client, weight in enumerate(weights):
        a = some.local(Job(client, start, None, 7))
        b = none.local(Job(client, start, None, 7))
        assert same(a.update, b.update) == (weight == 0)


def test_the_reward_is_that_of_the_formula():
    algorithm = built(lam=(0.3, 0.6, 0.9, 1.2))
    result = algorithm.local(Job(2, algorithm.init(0), None, 1))
    mine, model = algorithm.client_data[2], result.state["model"]
    h = reward_model.predict(model, *shaped(algorithm, 2))
    paid = algorithm.rewards(mine, model)
    assert np.abs(h).max() > 0.05
    np.testing.assert_allclose(paid[:, 1], mine.appeal + 0.9 * h, rtol=1e-5)
    np.testing.assert_allclose(paid[:, 0], -paid[:, 1])


def unhelpful(found: World) -> World:
    """R0 says nothing: whatever is learned comes from feedback."""
    found.ratings = tuple(s._replace(appeal=np.zeros_like(s.appeal)) for s in found.ratings)
    return found


def fit_of_policies(algorithm: FedRLHF, seed: int) -> tuple[float, float]:
    """Mean rank correlation on held-out ratings: of the clients' own policies, of the global."""
    _, state, kept = rounds(algorithm, 8, seed)
    own, common = [], []
    for client in range(algorithm.world.clients):
        held = user_states(algorithm.world, client, "held")
        network = algorithm.personal_policy(state, kept[client], client)
        own.append(
            metrics.spearman(algorithm.probability_high(network, held.examples), held.rating)
        )
        common.append(
            metrics.spearman(algorithm.probability_high(state, held.examples), held.rating)
        )
    return float(np.nanmean(own)), float(np.nanmean(common))


@pytest.mark.slow
def test_feedback_teaches_and_shuffled_feedback_does_not():
    """Among the same answers, it counts which is for which question: own and global policies.

    Shuffled answers still push a policy somewhere, so it is the mean over seeds that must be near
    0: its whole 95% interval lies within half of what true answers bring. (Asking whether 0 is in
    the interval would fail in 5% of all worlds.)
    """
    random = np.random.default_rng(0)
    found: dict[str, list[tuple[float, float]]] = {"told": [], "shuffled": [], "none": []}
    for seed in range(16):
        plain = unhelpful(world(seed, 8, users=60, movies=200, ratings=150))
        mixed = twisted(built(plain), lambda values: random.permutation(values).tolist())
        found["told"].append(fit_of_policies(built(plain), seed))
        found["shuffled"].append(fit_of_policies(mixed, seed))
        found["none"].append(fit_of_policies(built(plain, feedback="none"), seed))
    told, shuffled, none = (np.array(found[name]) for name in ("told", "shuffled", "none"))
    assert told.mean(0)[0] > 0.35
    assert told.mean(0)[1] > 0.18
    for policies in (0, 1):  # 95% intervals over seeds
        gain, half = interval((told - none)[:, policies])
        assert gain - half > 0.1
        left, half = interval((shuffled - none)[:, policies])
        assert abs(left) + half < gain / 2


def moved_by_flipping(client: int, seed: int) -> np.ndarray:
    """How far every client's own policy moves if this client's person says the opposite."""
    found = unhelpful(world(seed, 8, movies=250, ratings=120))
    flipped = twisted(built(found), lambda values: [-value for value in values], only=client)
    (_, state, kept), (_, after, turned) = rounds(built(found), 4, seed), rounds(flipped, 4, seed)
    apart = []
    for other in range(8):
        every = user_states(found, other, "all").examples
        before = flipped.probability_high(flipped.personal_policy(state, kept[other], other), every)
        now = flipped.probability_high(flipped.personal_policy(after, turned[other], other), every)
        apart.append(metrics.divergence(now, before))
    return np.array(apart)


@pytest.mark.slow
def test_a_flipped_person_moves_their_own_policy_and_hardly_the_others():
    apart = np.mean([moved_by_flipping(2, seed) for seed in range(3)], 0)
    others = np.delete(apart, 2)
    assert apart[2] > 0.15
    assert apart[2] > 10 * others.mean()
    assert apart[2] > 4 * others.max()


@pytest.mark.slow
def test_more_weight_more_personal_and_less_intrinsic():
    """The signs of theorem 5.2, means over seeds: P grows with λ, J⁰ falls."""
    scores, returns = [], []
    for lam in (0.0, 1.0, 3.0):
        found = []
        for seed in range(3):
            algorithm = built(world(seed), lam=(lam,))
            start = algorithm.init(seed)
            found += [algorithm.local(Job(c, start, None, seed)).metrics for c in range(CLIENTS)]
        scores.append(np.mean([one["personal/divergence"] for one in found]))
        returns.append(np.mean([one["personal/return"] for one in found]))
    assert scores[0] < scores[1] < scores[2]
    assert returns[0] > returns[2]


# The traps


def test_without_feedback_no_true_rating_is_ever_read():
    """Were the label the reward, other ratings would give another network."""
    _, state, _ = rounds(built(feedback="none"))
    other = world()
    other.ratings = tuple(
        shelf._replace(rating=np.random.default_rng(0).permutation(shelf.rating))
        for shelf in other.ratings
    )
    assert same(state, rounds(built(other, feedback="none"))[1])
    labels = {"reward": "labels", "feedback": "none"}
    assert not same(rounds(built(**labels))[1], rounds(built(other, **labels))[1])


def test_held_out_ratings_do_not_reach_training():
    """Other held-out stars, the same runs: nobody is asked about them, nothing learns from them."""
    other = world()
    shelves = []
    for shelf in other.ratings:
        rating = shelf.rating.copy()
        rating[shelf.held] = 5.5 - rating[shelf.held]
        shelves.append(shelf._replace(rating=rating))
    other.ratings = tuple(shelves)
    first, second = built(), built(other)
    one, two = rounds(first), rounds(second)
    assert same(one[1], two[1])
    everybody = [list(range(CLIENTS))]
    before, after = (a.evaluate([one[1]], everybody, 3, 0) for a in (first, second))
    assert before["eval/accuracy"] != after["eval/accuracy"]  # evaluated on just these
    assert before["eval/train_accuracy"] == after["eval/train_accuracy"]


def test_evaluation_counts_held_out_ratings_only():
    algorithm = built()
    state = rounds(algorithm, 1)[1]
    right = count = often = 0
    for shelf in algorithm.world.ratings:
        client = [s.user for s in algorithm.world.ratings].index(shelf.user)
        high = shelf.rating >= 4
        for row in shelf.held:
            one = user_states(algorithm.world, client, "all").examples
            chosen = (
                algorithm.probability_high(state, type(one)(*(c[row : row + 1] for c in one)))[0]
                > 0.5
            )
            right, count = right + (chosen == high[row]), count + 1
        often += (high[shelf.held] == (high[shelf.train].mean() > 0.5)).sum()
    found = algorithm.evaluate([state], [list(range(CLIENTS))], 1, 0)
    assert found["eval/accuracy"] == pytest.approx(right / count)
    assert found["eval/majority"] == pytest.approx(often / count)
    each = algorithm.evaluate_clients(state, 0, 1)
    held = [len(shelf.held) for shelf in algorithm.world.ratings]
    assert np.average(each, weights=held) == pytest.approx(right / count)


def test_scores_are_shown_in_stars():
    """Half is the edge between 3.5 and 4; a probability compared with stars would be too low."""
    shown = metrics.stars(np.array([0.0, 0.5, 1.0]))
    assert shown.tolist() == [0.5, 3.75, 5.0]
    p = np.linspace(0, 1, 101)
    assert (np.diff(metrics.stars(p)) > 0).all()
    assert ((p > 0.5) == (metrics.stars(p) > 3.75)).all()


class Listening:
    """Writes down what is asked, and who knows the answers."""

    def __init__(self) -> None:
        self.asked: list[Query] = []

    def answers(self, questions: Sequence[Query], seed: int) -> list[Answer]:
        self.asked += questions
        return []


def test_questions_are_about_the_clients_own_training_movies_by_their_ids():
    algorithm = built()
    ears = [Listening() for _ in range(CLIENTS)]
    algorithm.feedback_source = lambda mine: lambda user: ears[user]
    rounds(algorithm, 2)
    by_id = {str(movie.id): movie for movie in algorithm.world.movies}
    for shelf, ear in zip(algorithm.world.ratings, ears):
        trained = {str(algorithm.world.movies[m].id) for m in shelf.movie[shelf.train]}
        assert {key for question in ear.asked for key in question.keys} <= trained
        for question in ear.asked:
            for key, item in zip(question.keys, question.items):
                assert item == f"{by_id[key].title}: {', '.join(by_id[key].genres)}"
            assert all(0.5 <= score <= 5 for score in question.scores)
        kinds = [question.kind for question in ear.asked]
        assert kinds.count("rate") > 10 < kinds.count("compare")
        assert all(len(set(question.keys)) == len(question.keys) for question in ear.asked)


def test_answers_reach_the_movie_they_were_about():
    """A person who likes two movies, by id: the reward model likes these and no other."""
    algorithm = built(rating_queries=1000, preference_queries=0, reward_epochs=60)
    mine = algorithm.client_data[1]
    liked = {mine.key(3), mine.key(8)}

    class Fan:
        def answers(self, questions, seed):
            return [Answer(q.id, 1.0 if q.keys[0] in liked else -1.0) for q in questions]

    algorithm.feedback_source = lambda mine: lambda user: Fan()
    result = algorithm.local(Job(1, algorithm.init(0), None, 0))
    h = reward_model.predict(result.state["model"], *shaped(algorithm, 1))
    assert {mine.key(int(i)) for i in np.argsort(-h)[:2]} == liked


# What a client remembers, and what leaves it


def test_unanswered_questions_are_asked_again():
    algorithm = built(rating_queries=5, preference_queries=5)
    late = Listening()
    algorithm.feedback_source = lambda mine: lambda user: late
    start = algorithm.init(0)
    first = algorithm.local(Job(0, start, None, 1))
    asked = {question.id for question in late.asked}
    assert len(asked) == 10
    assert first.metrics["env/answers"] == 0

    class Now:
        def answers(self, questions, seed):
            return [Answer(q.id, 1.0) for q in questions if q.id in asked]

    algorithm.feedback_source = lambda mine: lambda user: Now()
    second = algorithm.local(Job(0, start, first.state, 2))
    assert second.metrics["env/answers"] == 10
    memory = rating_queries.restore(second.state["answers"])
    assert len(memory.answered) == 10
    again = algorithm.local(Job(0, start, second.state, 2))
    assert again.metrics["env/answers"] == 0


def test_a_living_person_may_take_answers_back_rounds_later(tmp_path):
    """What was learned from them is gone, too: the reward model is one of those that stand."""
    algorithm = built(
        rating_queries=5, preference_queries=5, feedback="live", feedback_folder=str(tmp_path)
    )
    algorithm.feedback_source = lambda mine: lambda user: person
    said: dict[str, float] = {}

    class Person:
        def answers(self, questions, seed):
            if seed == seeding.derive(1, "answers", client=0):  # the first round
                said.update({q.id: 1.0 for q in questions})
            return [Answer(q.id, said[q.id]) for q in questions if q.id in said]

    person = Person()
    start = algorithm.init(0)
    first = algorithm.local(Job(0, start, None, 1))
    count = int(first.metrics["env/answers"])
    assert count > 8
    gone, changed = list(said)[:2]
    del said[gone]
    said[changed] = -1.0
    memory, model = algorithm.learn_feedback(Job(0, start, first.state, 2))
    assert sorted(memory.answered.values()) == [-1.0] + [1.0] * (count - 2)
    assert len(memory.waiting) > 0  # it may be answered again
    shape, train = shaped(algorithm, 0)
    fresh = reward_model.init(shape, seeding.derive(2, "reward_model"))
    heard = rating_queries.answer_arrays(memory)
    np.testing.assert_array_equal(
        model, reward_model.fit(fresh, shape, train, heard, 20, algorithm.settings.reward_lr, 2)
    )
    second = algorithm.local(Job(0, start, first.state, 2))
    said.clear()
    memory, model = algorithm.learn_feedback(Job(0, start, second.state, 3))
    assert not memory.answered
    assert not reward_model.predict(model, shape, train).any()


def test_a_living_persons_answers_are_not_in_the_clients_state(tmp_path):
    """However many questions wait beside them, those that were answered are not forgotten."""
    algorithm = built(
        world(ratings=100, movies=400),
        rating_queries=1000, preference_queries=400, feedback="live", feedback_folder=str(tmp_path),
    )  # fmt: skip
    told: dict[str, float] = {}

    class Person:
        def answers(self, questions, seed):
            told.update({q.id: 0.5 for q in questions[-20:] if not told})
            return [Answer(q.id, told[q.id]) for q in questions if q.id in told]

    person = Person()
    algorithm.feedback_source = lambda mine: lambda user: person
    state = None
    for seed in range(1, 4):
        result = algorithm.local(Job(0, algorithm.init(0), state, seed))
        state = result.state
        assert set(state) == {"personal", "answers", "heard"}
        assert np.isnan(state["answers"]["value"]).all()
        assert state["heard"].tolist() == [20]
        assert len(state["answers"]["value"]) == 20 + rating_queries.WAITING


@pytest.mark.slow
def test_resumed_equals_undisturbed():
    whole = rounds(built(), 3)
    resumed = rounds(built(), 1, start=rounds(built(), 2))
    assert same(whole[1], resumed[1])
    for client in range(CLIENTS):
        assert same(whole[2][client]["personal"], resumed[2][client]["personal"])
        assert np.array_equal(whole[2][client]["model"], resumed[2][client]["model"])


def test_together_as_one_by_one():
    algorithm = built()
    start = algorithm.init(0)
    jobs = [Job(c, start, None, c) for c in range(CLIENTS)]
    for one, many in zip(map(algorithm.local, jobs), algorithm.local_many(jobs)):
        assert same(one.update, many.update)
        assert one.metrics == many.metrics


def test_one_client_alone_is_the_centralized_one():
    """The same user as a federation of one and as the only one in the pool."""
    found = world(clients=1)
    alone, pooled = built(found), built(found, [[0]])
    assert same(rounds(alone)[1], rounds(pooled)[1])


def test_a_centralized_client_holds_everybodys_ratings():
    found = world()
    algorithm = built(found, [list(range(CLIENTS))], lam=(0.1, 0.2, 0.3, 0.4))
    (mine,) = algorithm.client_data
    sizes = [len(shelf.train) for shelf in found.ratings]
    assert len(mine.appeal) == sum(sizes)
    np.testing.assert_allclose(mine.weight, np.repeat([0.1, 0.2, 0.3, 0.4], sizes), rtol=1e-6)
    for place in (0, sizes[0], sum(sizes) - 1):
        user = mine.train.user[place]
        shelf = found.ratings[user]
        row = place - sum(sizes[:user])
        assert mine.key(place) == str(found.movies[shelf.movie[shelf.train][row]].id)
    result = algorithm.local(Job(0, algorithm.init(0), None, 0))
    assert result.metrics["personal/held_out"] == sum(len(shelf.held) for shelf in found.ratings)


@pytest.mark.slow
@pytest.mark.parametrize("change", [{}, {"method": "policy-gradient"}, {"local_steps": 7}])
def test_rounds_of_one_who_learns_alone_are_one_unbroken_run(monkeypatch, change):
    """Adam goes on where it was, as one that nobody rebuilds between rounds would."""
    kept = rounds(built(world(), [[0, 1, 2, 3]], optimizer_state="kept", **change))
    anew = rounds(built(world(), [[0, 1, 2, 3]], optimizer_state="fresh", **change))
    made: list[network.AdamMemory] = []
    original = network.adam_memory

    def once(state, size):
        made.append(made[0] if made else original(None, size))
        return made[0]

    monkeypatch.setattr(network, "adam_memory", once)
    unbroken = rounds(built(world(), [[0, 1, 2, 3]], optimizer_state="fresh", **change))
    assert same(kept[1], unbroken[1])
    assert not same(kept[1], anew[1])
    assert kept[2][0]["steps"] == made[0].steps > 7
    assert "moments" not in anew[2][0]


@pytest.mark.parametrize(
    ("federation", "expected"),
    [
        ({"kind": "centralized"}, "kept"),
        ({"kind": "local", "client": 2}, "kept"),
        ({"kind": "independent"}, "kept"),
        ({"clients": 1}, "kept"),
        ({}, "fresh"),
    ],
)
def test_who_learns_alone_keeps_adams_moments(federation, expected):
    names = {"algorithm": {"name": "fedrlhf"}, "world": {"name": "movielens"}}
    config = resolve({**names, "federation": federation})
    assert build_algorithm(config).settings.optimizer_state == expected


TITLE, VALUE = "Zanzibar Canary", 0.7234375
"""A movie that only client 0 rated, and an answer that only it was given."""


def everything(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_titles_and_answers_never_leave_their_client(tmp_path, monkeypatch, capsys):
    """Planted in client 0: in no message, log or server's state, though it learns from them."""
    plain = world(clients=3)
    place = int(plain.ratings[0].movie[plain.ratings[0].train[0]])
    usual = movielens.generate

    def planted(*arguments):
        made = usual(*arguments)
        movies = list(made.movies)
        movies[place] = movies[place]._replace(title=TITLE)
        return made._replace(movies=tuple(movies))

    monkeypatch.setattr(movielens, "generate", planted)
    sent: list[Tensors] = []
    local = FedRLHF.local
    monkeypatch.setattr(
        FedRLHF, "local", lambda self, job: [r := local(self, job), sent.append(r.update)][0]
    )
    asked: list[Query] = []

    class Fan:
        def answers(self, questions, seed):
            asked.extend(questions)
            return [Answer(q.id, VALUE) for q in questions]

    monkeypatch.setattr(FedRLHF, "feedback_source", lambda self, mine: lambda user: Fan())
    size = [word for key in ("users", "movies", "ratings", "least")
            for word in (f"--world.{key}", str(getattr(WORLD, key)))]  # fmt: skip
    assert call(["run", "fedrlhf/movielens_paper", "--rounds", "2", "--out", str(tmp_path),
                 "--federation.clients", "3", "--algorithm.rating_queries", "100",
                 *size]) == 0  # fmt: skip
    assert any(TITLE in item for question in asked for item in question.items)  # it was there
    output = "".join(capsys.readouterr()).encode()
    canaries = [TITLE.encode(), str(VALUE).encode(), np.float64(VALUE).tobytes(),
                np.float32(VALUE).tobytes()]  # fmt: skip
    files = everything(tmp_path)
    checkpoints = [name for name in files if name.endswith(".safetensors")]
    assert checkpoints
    for name, data in files.items():
        assert TITLE.encode() not in data
        if name not in checkpoints:
            assert not any(canary in data for canary in canaries), name
    assert not any(canary in output for canary in canaries)
    for update in sent:
        assert set(update) == {"user", "movie", "layers"}
        assert all(not (np.abs(array) == np.float32(VALUE)).any() for array in update.values())
    # A checkpoint stands for the clients' own disks too: what is the server's part is clean.
    for name in checkpoints:
        tensors = load_file(name)
        for key, array in tensors.items():
            if key.startswith("state/"):
                assert not any(canary in array.tobytes() for canary in canaries[2:])


def test_a_living_persons_answers_stay_in_their_folder(tmp_path, monkeypatch):
    """Given between two rounds and learned from; not in the run's folder, checkpoints included."""
    sent: list[Tensors] = []
    local = FedRLHF.local
    monkeypatch.setattr(
        FedRLHF, "local", lambda self, job: [r := local(self, job), sent.append(r.update)][0]
    )
    people, out = tmp_path / "people", tmp_path / "runs"
    size = [word for key in ("users", "movies", "ratings", "least")
            for word in (f"--world.{key}", str(getattr(WORLD, key)))]  # fmt: skip
    live = ["--algorithm.feedback", "live", "--algorithm.feedback_folder", str(people)]
    assert call(["run", "fedrlhf/movielens_paper", "--rounds", "1", "--out", str(out),
                 "--federation.clients", "2", *size, *live]) == 0  # fmt: skip
    (run,) = out.glob("*/*")
    folder = Folder(client_folder(people, 1))
    for question in folder.pending()[:40]:
        assert folder.answer(question.id, VALUE)
    assert call(["run", "--resume", str(run), "--rounds", "3"]) == 0
    told = [json.loads(line) for line in (run / "clients.jsonl").read_text().splitlines()]
    assert [line["env/answers"] for line in told if line["client"] == 1] == [0, 40, 0]
    canaries = [str(VALUE).encode(), np.float64(VALUE).tobytes(), np.float32(VALUE).tobytes()]
    files = everything(run)
    assert any(name.endswith(".safetensors") for name in files)
    for name, data in files.items():
        assert not any(canary in data for canary in canaries), name
    for update in sent:
        assert all(not (np.abs(array) == np.float32(VALUE)).any() for array in update.values())


def test_what_goes_up_is_the_network_alone():
    algorithm = built()
    sent = algorithm.broadcast(algorithm.init(0), 1)
    result = algorithm.local(Job(0, sent, None, 0))
    assert set(algorithm.declare(sent)) == set(result.update) == {"user", "movie", "layers"}
    assert set(result.metrics) <= algorithm.reports
    assert result.weight == len(algorithm.client_data[0].appeal)


def test_live_and_logged_people_are_heard(tmp_path):
    """The same answers, by a person's folder and by a file, teach the same."""
    live = built(
        feedback="live",
        feedback_folder=str(tmp_path / "people"),
        rating_queries=4,
        preference_queries=4,
    )
    start = live.init(0)
    first = live.local(Job(1, start, None, 0))
    folder = Folder(client_folder(tmp_path / "people", 1))
    values = {}
    for number, question in enumerate(folder.pending()):
        values[question.id] = (-1.0, 1.0, 0.0)[number % 3]
        folder.answer(question.id, values[question.id])
    assert len(values) == 8
    second = live.local(Job(1, start, first.state, 1))
    assert second.metrics["env/answers"] == 8
    for client in range(CLIENTS):
        said = values if client == 1 else {}
        lines = (json.dumps({"question": q, "value": v}) + "\n" for q, v in said.items())
        (tmp_path / f"log-{client}.jsonl").write_text("".join(lines))
    logged = built(
        feedback="logged",
        feedback_file=str(tmp_path / "log-{client}.jsonl"),
        rating_queries=4,
        preference_queries=4,
    )
    replayed = logged.local(Job(1, start, first.state, 1))
    assert same(second.update, replayed.update)


def test_files_of_answers_are_read_where_their_client_computes(tmp_path):
    """A machine of a deployment has its own client's, and no other."""
    files = str(tmp_path / "{client}.jsonl")
    (tmp_path / "1.jsonl").write_text("")
    algorithm = built(feedback="logged", feedback_file=files)
    algorithm.warm_up()
    start = algorithm.init(0)
    assert algorithm.local(Job(1, start, None, 0)).metrics["env/answers"] == 0
    (other,) = InProcess(algorithm).run([Job(0, start, None, 0)])
    assert "cannot read the answers in" in other.reason
    built(world(clients=1), feedback="logged", feedback_file=str(tmp_path / "1.jsonl"))


# Scores


def test_spearman_is_the_correlation_of_ranks():
    """Of mean ranks where values are equal; nothing is said of a side that is constant."""
    random = np.random.default_rng(0)
    for _ in range(5):
        a, b = random.integers(0, 5, 30).astype(float), random.random(30)
        ranks = [[(x > one).mean() + (x >= one).mean() for one in x] for x in (-a, -b)]
        assert metrics.spearman(a, b) == pytest.approx(np.corrcoef(*ranks)[0, 1])
    assert np.isnan(metrics.spearman(np.ones(3), np.arange(3.0)))
    assert np.isnan(metrics.spearman(np.arange(3.0), np.ones(3)))


def test_personalization_is_measured_on_all_movies_and_on_the_held_out_ones():
    algorithm = built()
    sent = algorithm.init(0)
    result = algorithm.local(Job(2, sent, None, 0))
    own = algorithm.personal_policy(sent, result.state, 2)
    for name, part in (("divergence", "all"), ("divergence_held", "held")):
        some = user_states(algorithm.world, 2, part).examples
        apart = metrics.divergence(
            algorithm.probability_high(own, some), algorithm.probability_high(sent, some)
        )
        assert result.metrics[f"personal/{name}"] == apart > 0


def test_divergence_and_intrinsic_return_by_enumeration():
    own, common, appeal = np.array([0.9, 0.2]), np.array([0.5, 0.2]), np.array([1.0, -0.5])
    expected = (0.9 * np.log(0.9 / 0.5) + 0.1 * np.log(0.1 / 0.5)) / 2
    assert metrics.divergence(own, common) == pytest.approx(expected)
    assert metrics.divergence(own, own) == 0
    # Expected reward by actions: 0.9·1 + 0.1·(−1), and 0.2·(−0.5) + 0.8·0.5.
    assert metrics.expected_intrinsic(own, appeal) == pytest.approx((0.8 + 0.3) / 2)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"lam": (-1.0,)}, "algorithm.lam is"),
        ({"lam": ()}, "algorithm.lam is"),
        ({"lam": (1.0, 2.0)}, "algorithm.lam has 2 weights"),
        ({"hidden": (10,)}, "algorithm.hidden is"),
        ({"temperature": 0.0}, "algorithm.temperature is"),
        ({"noise": -1.0}, "algorithm.noise is"),
        ({"feedback": "logged"}, "algorithm.feedback_file is empty"),
        ({"feedback": "logged", "feedback_file": "no"}, "feedback_file is 'no', the same for 4"),
        ({"feedback": "live"}, "algorithm.feedback_folder is empty.*_folder private"),
        ({"feedback_folder": "people"}, 'but algorithm.feedback is "simulated": set it to "live"'),
        ({"reward": "labels"}, 'set feedback = "none"'),
    ],
)
def test_mistakes_name_their_key(wrong, said):
    with pytest.raises(UserError, match=said):
        built(**wrong)


@pytest.mark.slow
@pytest.mark.realdata
def test_honest_accuracy_on_genuine_ratings_is_no_training_accuracy():
    """Ten users: supervised, the network knows what it trained on far better than the rest."""
    realdata.data("movielens")
    found = World(movielens.Settings(source="movielens"), 10, 0)
    algorithm = built(found, reward="labels", feedback="none")
    state = rounds(algorithm, 5)[1]
    got = algorithm.evaluate([state], [list(range(10))], 5, 0)
    assert got["eval/train_accuracy"] > 0.77
    assert got["eval/accuracy"] < 0.72
    assert 0.6 < got["eval/majority"] < 0.8
