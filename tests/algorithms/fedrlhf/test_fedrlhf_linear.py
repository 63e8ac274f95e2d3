"""FedRLHF's linear policy: the mathematics of its federation, what it learns from and sends."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("numba", reason="FedRLHF needs the extra classic")

from support.ratings import world

from fedrl.aggregation import mean as aggregate
from fedrl.algorithms.fedrlhf.ratings.algorithm import build
from fedrl.algorithms.fedrlhf.ratings.bound import measure
from fedrl.algorithms.fedrlhf.ratings.client_data import MARK, shown_text
from fedrl.algorithms.fedrlhf.ratings.linear import LinearFedRLHF, popularity
from fedrl.algorithms.fedrlhf.ratings.rating_queries import ALIKE, half_stars
from fedrl.algorithms.fedrlhf.ratings.settings import Settings
from fedrl.clients.wrapped_algorithm import Wrapped
from fedrl.config.build import build_algorithm
from fedrl.config.loading import find_recipe, read_recipe, resolve
from fedrl.core import tree
from fedrl.core.types import Failure, Job, Tensors, UserError
from fedrl.core.update_refusal import refusal
from fedrl.datasets.movielens import Movie
from fedrl.envs.movielens.world import World
from fedrl.feedback import effect
from fedrl.feedback.queries import Answer, Query
from fedrl.feedback.store import Folder, client_folder
from fedrl.privacy import clipping
from fedrl.privacy.secure_aggregation import Terms
from fedrl.runs import train as runs
from fedrl.runs.run_dir import RunDir, read_checkpoint

LINEAR = {
    "policy": "linear", "users": "private", "rows": "holders", "optimizer": "sgd", "lr": 0.3,
    "preference_queries": 0, "ask_again": False, "local_epochs": 10, "rank": 2,
}  # fmt: skip


def linear(found: World | None = None, client_env_ids=(), **settings) -> LinearFedRLHF:
    found = found or world()
    held = client_env_ids or [[c] for c in range(found.clients)]
    algorithm = build(Settings(**(LINEAR | settings)), found, 1, held)
    assert isinstance(algorithm, LinearFedRLHF)
    return algorithm


def rounds(
    algorithm: LinearFedRLHF, count: int, clients=None
) -> tuple[Tensors, dict[int, Tensors]]:
    """The server's state and what clients keep, after so many rounds of these clients."""
    state, kept = algorithm.init(0), {}
    who = range(len(algorithm.client_env_ids)) if clients is None else clients
    for number in range(1, count + 1):
        sent = algorithm.broadcast(state, number)
        results = [algorithm.local(Job(c, sent, kept.get(c), 100 * number + c)) for c in who]
        mean = aggregate.mean([(r.update, r.weight) for r in results])
        state = algorithm.step_partial(
            state, mean, number, len(who) / len(algorithm.client_env_ids)
        )
        kept = {r.client: r.state for r in results}
    return state, kept


def trained(out: Path, *flags: str) -> Path:
    """A small run of the recipe."""
    size = ("--world.users", "30", "--world.movies", "60", "--world.ratings", "30",
            "--world.least", "10", "--out", str(out))  # fmt: skip
    config = resolve(read_recipe(find_recipe("fedrlhf/movielens")), (*size, *flags))
    run = runs.start(config)
    runs.train(config, run, build_algorithm(config))
    return run.path


def last(path: Path) -> Tensors:
    """The server's last state."""
    return tree.flatten(read_checkpoint(RunDir(path).checkpoints()[0])[0].states[0])


def test_answers_that_a_living_person_takes_back_leave_nothing_behind(tmp_path):
    """Their row is fitted to the answers that stand, from nothing: also where none does."""

    class Person:
        back = False

        def answers(self, queries, seed):
            return [] if self.back else [Answer(query.id, 1.0) for query in queries]

    person = Person()
    algorithm = linear(feedback="live", feedback_folder=str(tmp_path))
    algorithm.feedback_source = lambda data: lambda user: person
    sent = algorithm.broadcast(algorithm.init(0), 1)
    first = algorithm.local(Job(0, sent, None, 1))
    assert np.abs(first.state["personal"]["user"]).max() > 0.1
    again = algorithm.local(Job(0, sent, first.state, 2))
    person.back = True
    last_ = algorithm.local(Job(0, sent, again.state, 3))
    assert not last_.state["personal"]["user"].any()
    person.back = False
    once_more = algorithm.local(Job(0, sent, last_.state, 1))
    assert np.abs(once_more.state["personal"]["user"]).max() > 0.1


def test_a_person_who_is_away_is_asked_about_some_films_until_there_are_guesses(tmp_path):
    """Scores that are all alike are no guesses; who can say nothing of them is asked about more."""
    found = world(ratings=100, movies=400)
    algorithm = linear(found, feedback="live", feedback_folder=str(tmp_path), rating_queries=100)
    folder = Folder(client_folder(tmp_path, 0))
    state, kept = algorithm.init(0), None

    def asked(seed: int, theta: Tensors = state) -> tuple[Tensors, list[Query]]:
        result = algorithm.local(Job(0, algorithm.broadcast(theta, 1), kept, seed))
        return result.state, folder.pending()

    for seed in range(3):
        kept, queries = asked(seed)
        assert len(queries) == ALIKE
        assert not any(query.guessed for query in queries)
    for query in queries[:5]:
        folder.answer(query.id, None)
    folder.answer(queries[5].id, 1)
    kept, queries = asked(3)
    assert len(queries) == ALIKE - 1
    folder.forget_all()
    kept, queries = asked(4)
    assert len(queries) == ALIKE
    moved = state | {"movie": state["movie"] + np.linspace(-2, 2, 400, dtype=np.float32)[:, None]}
    kept, queries = asked(5, moved)
    assert len(queries) > 40
    guesses = [query.scores[0] for query in queries if query.guessed]
    assert len(guesses) == len(queries) - ALIKE
    assert len(set(guesses)) > 2
    assert any((2 * guess) % 1 for guess in guesses)  # in tenths, where halves would look alike


def test_a_guess_that_moves_by_a_tenth_is_not_asked_again(tmp_path):
    found = world(ratings=100, movies=400)
    options = {"feedback": "live", "feedback_folder": str(tmp_path), "ask_again": True}
    algorithm = linear(found, rating_queries=100, **options)
    state, kept = algorithm.init(0), None
    for step in range(2):
        spread = np.linspace(-2, 2, 400, dtype=np.float32)[:, None] + np.float32(0.05 * step)
        moved = algorithm.broadcast(state | {"movie": state["movie"] + spread}, 1)
        kept = algorithm.local(Job(0, moved, kept, 1)).state
    asked = Folder(client_folder(tmp_path, 0)).pending()
    about = [(query.keys, half_stars(query.scores[0])) for query in asked]
    assert len(about) == len(set(about)) > 50


def asks_a_person(tmp_path):
    """One is asked about thirty of many movies; where the answers lie, and what moves scores."""
    options = {"feedback": "live", "feedback_folder": str(tmp_path), "rating_queries": 30}
    algorithm = linear(world(ratings=100, movies=400), **options)
    spread = np.linspace(-2, 2, 400, dtype=np.float32)[:, None]
    return algorithm, Folder(client_folder(tmp_path, 0)), spread


def test_guesses_from_before_a_deletion_are_made_anew_in_the_next_round(tmp_path):
    """Also where that round is begun twice: a run may be killed in it."""
    algorithm, folder, spread = asks_a_person(tmp_path)

    def asked(turned: int, kept: Tensors | None, seed: int) -> tuple[Tensors, dict[str, Query]]:
        state = algorithm.init(0)
        moved = algorithm.broadcast(state | {"movie": state["movie"] + turned * spread}, 1)
        kept = algorithm.local(Job(0, moved, kept, seed)).state
        return kept, {query.keys[0]: query for query in folder.pending()}

    kept, before = asked(1, None, 1)
    answered = next(iter(before.values()))
    folder.answer(answered.id, 1)
    folder.forget_all()
    assert all(query.stale for query in folder.pending())
    for _ in range(2):
        _, after = asked(-1, kept, 2)
        assert not any(query.stale for query in after.values())
        assert before.keys() - after.keys() == {answered.keys[0]}  # that is asked no more
        stars = np.array(
            [[some[key].scores[0] for key in before.keys() & after.keys()]
             for some in (before, after)]
        )  # fmt: skip
        assert np.corrcoef(stars)[0, 1] < -0.5
        assert len(folder.pending()) == len(after)


def test_guesses_are_made_anew_once_something_new_was_learned_and_a_late_answer_counts(tmp_path):
    """Whoever looks at a guess meanwhile, or answers without a connection, is heard."""
    algorithm, folder, spread = asks_a_person(tmp_path)
    kept: Tensors | None = None

    def after_round(number: int, turned: int) -> tuple[float, dict[str, Query]]:
        nonlocal kept
        state = algorithm.init(0)
        moved = algorithm.broadcast(state | {"movie": state["movie"] + turned * spread}, 1)
        done = algorithm.local(Job(0, moved, kept, 1, number))
        kept = done.state
        return done.metrics["env/answers"], {query.keys[0]: query for query in folder.pending()}

    after_round(1, 1)
    heard, before = after_round(2, 1)
    assert heard == 0
    assert not any(query.stale for query in before.values())  # nothing new was learned
    shown = list(before.values())
    folder.answer(shown[0].id, 1)
    heard, same = after_round(3, 1)
    assert heard == 1
    waited = before.keys() & same.keys()
    assert all(same[key].stale == "learned" for key in waited)
    assert len(waited) > 20
    _, anew = after_round(4, -1)
    assert waited <= anew.keys()
    assert not any(query.stale for query in anew.values())
    stars = [[some[key].scores[0] for key in waited] for some in (before, anew)]
    assert np.corrcoef(np.array(stars))[0, 1] < -0.5
    late = next(query for query in shown[1:] if anew[query.keys[0]].id != query.id)
    assert folder.answer(late.id, -1)  # it was on the screen
    assert late.keys not in {query.keys for query in folder.pending()}
    assert after_round(5, -1)[0] == 1
    assert after_round(6, -1)[0] == 0
    assert {query.id for query, _ in folder.heard()} == {shown[0].id, late.id}


def test_what_fell_most_is_told_with_its_stars_before_anybody_answered(tmp_path):
    found = world(ratings=100, movies=400)
    algorithm = linear(found, feedback="live", feedback_folder=str(tmp_path), rating_queries=30)
    folder = Folder(client_folder(tmp_path, 0))
    spread = np.linspace(-2, 2, 400, dtype=np.float32)[:, None]
    kept: Tensors | None = None
    for number, turned in enumerate((1, -1)):
        state = algorithm.init(0)
        moved = algorithm.broadcast(state | {"movie": state["movie"] + turned * spread}, 1)
        kept = algorithm.local(Job(0, moved, kept, 1, number)).state
        if not number:
            first = effect.read(folder)
            folder.answer(folder.pending()[0].id, 1)
    told = effect.read(folder)
    assert told.first == first.with_answers
    assert (len(first.fell), len(told.fell)) == (0, 5)
    falls = [round(one.first - one.score, 2) for one in told.fell]
    assert falls == sorted(falls, reverse=True)
    assert min(falls) > 0
    assert max(effect.beginning(folder)) == first.with_answers[0].score
    assert {one.item for one in first.with_answers} & {one.item for one in told.fell}
    folder.forget_all()
    assert len(effect.beginning(folder)) == told.films  # it holds nothing of an answer


@pytest.mark.parametrize(
    "filed, shown",
    {
        "Shawshank Redemption, The (1994)": "The Shawshank Redemption (1994)",
        "Misérables, Les (1995)": "Les Misérables (1995)",
        "American in Paris, An (1951)": "An American in Paris (1951)",
        "City of Lost Children, The (Cité des enfants perdus, La) (1995)":
            "The City of Lost Children (Cité des enfants perdus, La) (1995)",
        "Cook, the Thief, The (1989)": "The Cook, the Thief (1989)",
        "Vitamins, A": "Vitamins, A",
        "Good, the Bad and the Ugly": "Good, the Bad and the Ugly",
    }.items(),
)  # fmt: skip
def test_a_film_is_called_as_people_call_it(filed, shown):
    assert shown_text(Movie(1, filed, ("Drama",))) == f"{shown}: Drama"


def test_the_best_films_are_told_with_how_many_share_their_score(tmp_path):
    """Nobody has answered: all do. Somebody has: not all."""
    algorithm = linear(feedback="live", feedback_folder=str(tmp_path))
    folder = Folder(client_folder(tmp_path, 0))
    sent, kept = algorithm.broadcast(algorithm.init(0), 1), None
    kept = algorithm.local(Job(0, sent, kept, 1)).state
    for value, query in zip((1, -1) * 3, folder.pending()):
        folder.answer(query.id, value)
    algorithm.local(Job(0, sent, kept, 2))
    found = effect.read(folder)
    assert found.films > 10
    assert {one.sharing for one in (*found.first, *found.without)} == {found.films}
    assert all(1 <= one.sharing < found.films for one in found.with_answers)


def test_stars_that_all_questions_of_a_person_show_are_no_guess(tmp_path):
    """The model likes one film a little more, which was not asked about: nobody sees that."""
    found = world(ratings=100, movies=400)
    algorithm = linear(found, feedback="live", feedback_folder=str(tmp_path), rating_queries=10)
    folder = Folder(client_folder(tmp_path, 0))
    state, kept = algorithm.init(0), None
    own = algorithm.client_data[0].movies[algorithm.client_data[0].train.movie]
    moved = state | {"movie": state["movie"].copy()}
    moved["movie"][own[0]] += 2
    seen = set()
    for seed in range(40):
        kept = algorithm.local(Job(0, algorithm.broadcast(moved, 1), kept, seed)).state
        queries = folder.pending()
        guesses = {query.scores[0] for query in queries if query.guessed}
        alike = len({query.scores[0] for query in queries}) == 1
        assert not (alike and guesses)
        assert len(queries) <= ALIKE or not alike
        seen.add(alike)
        if guesses:
            break
    assert seen == {True, False}  # and once the film is drawn there are guesses


# The mathematics


def test_a_round_of_all_clients_is_the_round_of_one_that_has_all_their_answers():
    """To rounding, in people's rows and in movies': whoever holds a row is counted."""
    settings = {"noise": 0.0, "rating_queries": 1000, "movie_decay": 5.0}
    apart, pooled = linear(**settings), linear(client_env_ids=[[0, 1, 2, 3]], **settings)
    start = apart.init(3)
    start["watched"] = rounds(apart, 1)[0]["watched"]
    counted = start | {"held": rounds(apart, 1)[0]["held"]}
    results = [apart.local(Job(c, apart.broadcast(counted, 2), None, c)) for c in range(4)]
    one = pooled.local(Job(0, pooled.broadcast(start, 2), None, 0))
    rows = np.concatenate([r.state["personal"]["user"] for r in results])
    np.testing.assert_allclose(rows, one.state["personal"]["user"], atol=1e-5)
    assert np.abs(rows).max() > 0.1
    both = [
        algorithm.step(state, aggregate.mean([(r.update, 1.0) for r in found]), 2)
        for algorithm, state, found in ((apart, counted, results), (pooled, start, [one]))
    ]
    np.testing.assert_allclose(both[0]["movie"], both[1]["movie"], atol=1e-5)
    assert np.abs(both[0]["movie"] - start["movie"]).max() > 0.01


def test_a_federation_of_one_client_is_centralized_training_to_the_bit(tmp_path: Path):
    one, other = (
        last(trained(tmp_path / kind, "--rounds", "3", "--federation.clients", "1",
                     "--federation.kind", kind))
        for kind in ("federated", "centralized")
    )  # fmt: skip
    assert one.keys() == other.keys()
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name])


def test_sums_of_marks_are_counts_to_the_last_one():
    found = world()
    algorithm = linear(found, rating_queries=5)
    state, kept = rounds(algorithm, 2)
    people = np.zeros(len(found.movies))
    for user in found.ratings:
        people[user.movie[user.train]] += 1
    np.testing.assert_array_equal(state["watched"], people)
    holders = np.zeros(len(found.movies))
    for client, data in enumerate(algorithm.client_data):
        asked = kept[client]["answers"]["first"]
        holders[np.unique(data.movies[data.train.movie[asked]])] += 1
    np.testing.assert_array_equal(state["held"], holders)
    assert holders.sum() < people.sum()


def test_half_of_the_clients_stand_for_all_in_the_sums():
    algorithm = linear()
    state, _ = rounds(algorithm, 1, clients=[0, 1])
    both = sum(
        np.bincount(data.movies[data.train.movie], minlength=len(state["watched"]))
        for data in algorithm.client_data[:2]
    )
    np.testing.assert_allclose(state["watched"], 0.5 * 2 * both)


def test_ones_own_watching_is_no_popularity():
    """A movie that nobody else watches looks the same where it is trained on and where held out."""
    algorithm = linear()
    state, _ = rounds(algorithm, 1)
    for data in algorithm.client_data:
        found = algorithm.states(state, data).features[:, -1]
        others = state["watched"][data.movies[data.train.movie]] - 1
        np.testing.assert_array_equal(found == 0, others == 0)
    assert popularity(state["watched"], np.arange(120)).max() == pytest.approx(1)


def test_movies_that_nobody_was_asked_about_keep_their_rows():
    algorithm = linear(most_queries=3)
    state, kept = rounds(algorithm, 2)
    asked = np.unique(np.concatenate([
        data.movies[data.train.movie[kept[c]["answers"]["first"]]]
        for c, data in enumerate(algorithm.client_data)
    ]))  # fmt: skip
    others = np.setdiff1d(np.arange(len(state["movie"])), asked)
    np.testing.assert_array_equal(state["movie"][others], algorithm.init(0)["movie"][others])


def test_it_learns_what_people_like():
    """Generated ratings have biases and tastes: far above a coin, and above the majority."""
    found = world(clients=20, users=60)
    algorithm = linear(found, rank=0, noise=0.0)
    state, kept = rounds(algorithm, 8)
    right = count = 0
    for client, data in enumerate(algorithm.client_data):
        policy = algorithm.personal_policy(algorithm.broadcast(state, 9), kept[client], client)
        hits = algorithm.evaluation().correct(data, policy)
        right, count = right + hits.sum(), count + len(hits)
    assert right / count > 0.68  # 76% here, a standard error of 3 points; the majority has 62%


# What it learns from


def test_stars_that_nobody_was_asked_about_change_nothing():
    """To the bit, in what is sent and in what is kept: answers are all that it learns from."""
    plain, other = world(), world()
    settings = {"most_queries": 6, "rating_queries": 4, "preference_queries": 1}
    first = linear(plain, **settings)
    state, kept = rounds(first, 3)
    changed = []
    for client, user in enumerate(other.ratings):
        queries = kept[client]["answers"]
        asked = np.concatenate([queries["first"], queries["second"]])
        unasked = np.setdiff1d(np.arange(len(user.train)), asked)
        stars = user.rating.copy()
        stars[user.held] = 5.5 - stars[user.held]
        stars[user.train[unasked]] = 5.5 - stars[user.train[unasked]]
        assert len(unasked) > 2
        changed.append(user._replace(rating=stars))
    other.ratings = tuple(changed)
    again, kept_again = rounds(linear(other, **settings), 3)
    for name, array in tree.flatten(state).items():
        np.testing.assert_array_equal(array, tree.flatten(again)[name])
    for client in kept:
        for name, array in tree.flatten(kept[client]).items():
            np.testing.assert_array_equal(array, tree.flatten(kept_again[client])[name])


def test_a_movie_is_asked_about_once_and_a_person_for_so_many_answers():
    _, kept = rounds(linear(rating_queries=8), 6)
    for held in kept.values():
        first = held["answers"]["first"]
        assert len(np.unique(first)) == len(first)
    algorithm = linear(rating_queries=8, most_queries=11)
    _, kept = rounds(algorithm, 6)
    known = [len(data.appeal) for data in algorithm.client_data]
    assert [int(held["heard"][0]) for held in kept.values()] == [min(n, 11) for n in known]
    assert max(known) > 20


def test_the_opposite_teaches_the_opposite():
    algorithm = linear(noise=0.0)
    start = algorithm.init(0)
    meant, turned = (play(Job(0, start, None, 1)) for play in (algorithm.local, algorithm.poisoned))
    ours, theirs = (r.state["personal"]["user"][0, 0] for r in (meant, turned))
    assert np.sign(ours) == -np.sign(theirs)


# What leaves a client


def test_what_goes_up_is_declared_and_has_no_row_of_a_person():
    algorithm = linear()
    start = algorithm.broadcast(algorithm.init(0), 1)
    result = algorithm.local(Job(0, start, None, 0))
    assert refusal(result, algorithm.declare(start), algorithm.reports) is None
    names = set(tree.flatten(result.update))
    assert (
        names == {"movie", "layers", "held/movie", "watched/movie"} == set(algorithm.declare(start))
    )
    assert algorithm.counts == {"held/movie", "watched/movie"}
    own = result.state["personal"]["user"]
    assert np.abs(own).max() > 0.05
    for array in tree.flatten(result.update).values():
        assert not np.isin(own[own != 0], array).any()
    plain = linear(rows="all")
    told = plain.local(Job(0, plain.broadcast(plain.init(0), 1), None, 0))
    assert set(told.update) == {"movie", "layers"}
    assert not plain.counts


def test_a_plain_sum_shows_a_server_what_a_client_watches():
    """Why counts are for secure sums: without one, marks and changed rows say it."""
    algorithm = linear()
    result = algorithm.local(Job(0, algorithm.broadcast(algorithm.init(0), 1), None, 0))
    own = algorithm.client_data[0].movies
    np.testing.assert_array_equal(np.flatnonzero(result.update["watched"]["movie"]), own)
    assert set(np.flatnonzero(result.update["movie"].any(1))) <= set(own.tolist())
    assert set(np.unique(result.update["watched"]["movie"])) == {0, np.float32(MARK)}


def test_nothing_but_a_masked_vector_leaves_a_client_of_a_secure_sum(tmp_path: Path, monkeypatch):
    """Over nodes whose every message is seen: neither a change, a mark, a row nor its vector."""
    pytest.importorskip("flwr", reason="needs the extra flower")
    pytest.importorskip("cryptography", reason="secure aggregation needs the extra privacy")
    from support.secure_nodes import SecretNet, turned

    monkeypatch.setattr("fedrl.engines.flower.node_calls.POLL_SECONDS", 0.005)
    algorithm = linear(world(clients=5), rating_queries=10)
    net = SecretNet(algorithm, tmp_path, clip=50.0)
    start = algorithm.broadcast(algorithm.init(0), 1)
    asked = [turned(Job(c, start, None, 0), 1) for c in range(5)]
    found = list(net.engine(piece_mb=1.0).run(asked))
    assert not [one.reason for one in found if isinstance(one, Failure)]
    plain = [algorithm.local(job) for job in asked]
    mean = aggregate.mean([(r.update, 1.0) for r in plain])
    for name, array in tree.flatten(found[0].update).items():
        np.testing.assert_allclose(array, tree.flatten(mean)[name], atol=1e-5)
    counts = np.round(5 * found[0].update["watched"]["movie"] / MARK)
    np.testing.assert_array_equal(counts, 5 * mean["watched"]["movie"] / MARK)
    masked = [seen for seen in net.answers_seen if seen.step == "mask"]
    assert len(masked) == 5
    for seen in masked:
        vector = net.terms.quantised(
            np.concatenate([
                np.ravel(array).astype(np.float64)
                for _, array in sorted(tree.flatten(plain[seen.client].update).items())
            ]),
            lambda n: np.zeros(n),
        )  # fmt: skip
        (sent,) = [a for a in seen.tensors.values() if np.size(a) == len(vector)]
        assert (np.asarray(sent).view(np.uint32) == vector.view(np.uint32)).mean() < 0.01
    for seen in net.answers_seen:
        for result in plain:
            for array in (*tree.flatten(result.update).values(), result.state["personal"]["user"]):
                assert np.asarray(array, np.float32).tobytes() not in seen.raw
        sizes = {np.size(array) for array in seen.tensors.values()}
        assert seen.step == "mask" or max(sizes, default=0) < len(start["watched"])


def test_on_nodes_rows_and_counts_need_a_secure_sum():
    """Counts or none: the rows that change are those of movies that somebody was asked about."""
    recipe = {**read_recipe(find_recipe("fedrlhf/movielens")), "rounds": 1}
    apart = ("--engine", "flower", "--connection", "test")
    for more in ((), ("--algorithm.rows", "all")):
        with pytest.raises(UserError, match=r"privacy\.secure"):
            build_algorithm(resolve(recipe, (*apart, *more)))
    build_algorithm(resolve(recipe, (*apart, "--privacy.secure", "true", "--privacy.clip", "50")))


@pytest.mark.parametrize("clip", [50.0, 0.1])
def test_counts_are_exact_in_a_secure_sum_of_many(clip):
    """With 610 clients a grid of no round numbers cut them; a short clip shortened them."""
    pytest.importorskip("cryptography", reason="secure aggregation needs the extra privacy")
    algorithm = linear(world(clients=5), rating_queries=10)
    start = algorithm.broadcast(algorithm.init(0), 1)
    form = clipping.layout(Wrapped(algorithm), start)
    terms = Terms(610, 400, clip, 0.0)
    plain = [algorithm.local(Job(c, start, None, 0)).update for c in range(5)]
    if clip < 1:
        assert all(clipping.length(form.vector(one)) > clip for one in plain)
    vectors = clipping.vectors([(one, 1.0) for one in plain] * 122, clip, form)
    words = [terms.quantised(one, np.zeros) for one in vectors]
    total = np.sum(words, axis=0, dtype=np.uint32)
    found = form.update(terms.mean(total, 610))
    for name in ("held", "watched"):
        counts = 122 * sum(one[name]["movie"].astype(np.float64) for one in plain) / MARK
        np.testing.assert_array_equal(np.round(610 * found[name]["movie"] / MARK), counts)
        np.testing.assert_allclose(610 * found[name]["movie"] / MARK, counts, rtol=1e-6)


# A run


def test_organisations_with_users_of_their_own_share_movies_and_no_user(tmp_path: Path):
    """Clients with several people each: counts are of people, marks of clients."""
    pytest.importorskip("flwr", reason="the organisations' helpers need the extra flower")
    from support import own_ratings

    own_ratings.organisations(tmp_path)
    more = {key: LINEAR[key] for key in ("policy", "optimizer", "rows", "ask_again", "lr")}
    config = own_ratings.recipe(tmp_path, tmp_path / "out", algorithm=more,
                                aggregate={"name": "mean"})  # fmt: skip
    algorithm = build_algorithm(config)
    assert isinstance(algorithm, LinearFedRLHF)
    state, kept = rounds(algorithm, 2)
    people = [len(data.people) for data in algorithm.client_data]
    assert max(people) > 1
    assert [len(kept[c]["personal"]["user"]) for c in range(len(people))] == people
    assert state["watched"].max() > len(people) >= state["held"].max()
    assert set(algorithm.evaluate([state], [[0, 1, 2]], 2, 0)) <= {
        "eval/accuracy", "eval/majority", "eval/return", "eval/spearman"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"users": "shared"}, "algorithm.users"),
        ({"optimizer": "adam"}, "algorithm.optimizer"),
        ({"reward": "labels", "feedback": "none"}, "algorithm.reward"),
        ({"feedback": "none"}, "learns from answers alone"),
        ({"method": "policy-gradient"}, "algorithm.method"),
        ({"local_steps": 3}, "algorithm.local_steps"),
        ({"rank": -1}, "algorithm.rank"),
        ({"most_queries": -1}, "algorithm.most_queries"),
    ],
)
def test_settings_that_contradict_it_are_refused(wrong, words):
    with pytest.raises(UserError, match=words) as found:
        Settings(**(LINEAR | wrong))
    assert "\n" not in str(found.value)


def test_the_theorem_is_about_the_network():
    with pytest.raises(UserError, match="policy"):
        measure(linear(), rounds=1, seed=0)


@pytest.mark.slow
def test_the_recipe_runs_with_secure_sums_and_resumes_to_the_same_numbers(tmp_path: Path):
    pytest.importorskip("cryptography", reason="secure aggregation needs the extra privacy")
    four = ("--federation.clients", "4")
    whole = trained(tmp_path / "a", *four, "--rounds", "3")
    half = trained(tmp_path / "b", *four, "--rounds", "2")
    config, run = runs.resume(half, ["--rounds", "3"])
    runs.train(config, run, build_algorithm(config))
    for name, array in last(whole).items():
        np.testing.assert_array_equal(array, last(half)[name])
    masked = ("--privacy.secure", "true", "--privacy.clip", "50")
    secret = trained(tmp_path / "c", *four, "--rounds", "3", *masked)
    for name, array in last(whole).items():
        np.testing.assert_allclose(last(secret)[name], array, atol=0.05)
    np.testing.assert_array_equal(last(secret)["watched"], last(whole)["watched"])
