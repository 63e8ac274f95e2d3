"""FedRLHF for texts: what feedback does and where it stays, in the small."""

from __future__ import annotations

import json
import pickle
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="models that write need the extra llm")
pytest.importorskip("transformers", reason="models that write need the extra llm")

from support.realdata import data
from support.review_runs import WORLD, make_model, recipe, train

from fedrl import cli
from fedrl.algorithms.fedrlhf.text import preference_queries
from fedrl.algorithms.fedrlhf.text import prompts as prompting
from fedrl.algorithms.fedrlhf.text.algorithm import FedRLHFText, Settings
from fedrl.algorithms.fedrlhf.text.prompts import Prompt
from fedrl.algorithms.fedrlhf.text.reward import TextReward, fluency, rewards_by_owner
from fedrl.api.people import private_folder
from fedrl.config.build import build_algorithm, build_world
from fedrl.config.flag_parsing import section, split_flags
from fedrl.config.loading import find_recipe, read_recipe, resolve
from fedrl.core import seeding, tree
from fedrl.core.types import Job, UserError
from fedrl.envs.imdb.world import Settings as WorldSettings
from fedrl.envs.imdb.world import World
from fedrl.feedback import effect, sentiment
from fedrl.feedback.store import Folder, client_folder
from fedrl.runs import train as runs
from fedrl.runs.run_dir import RunDir, read_checkpoint
from fedrl.runs.warmstart_reviews import Settings as Reading
from fedrl.runs.warmstart_reviews import warmstart

pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def model(tmp_path_factory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "reviews")


def built(model: Path, change=None, reviews: int = 40, **settings) -> FedRLHFText:
    """`change` alters the world before the method sees it."""
    config = recipe(model, algorithm=settings, world={"reviews": reviews})
    world = build_world(config)
    if change is not None:
        change(world)
    return FedRLHFText(config.algorithm, world, [[k] for k in range(world.clients)])


def last(path: Path):
    return read_checkpoint(RunDir(path).checkpoints()[0])[0]


def same(a, b) -> bool:
    return all(np.array_equal(a[name], b[name]) for name in a.keys() | b.keys())


def one_round(algorithm: FedRLHFText, client: int = 0, seed: int = 7):
    return algorithm.local(Job(client, algorithm.init(3), None, seed))


def flipped(client: int):
    def change(world) -> None:
        world.train = tuple(
            tuple(review._replace(label=1 - review.label) for review in mine)
            if k == client
            else mine
            for k, mine in enumerate(world.train)
        )

    return change


def reply(folder: Path, client: int, value: float) -> list[str]:
    """Answer everything that waits, and say which texts it was about."""
    private = Folder(client_folder(folder, client))
    waiting = private.pending()
    for question in waiting:
        private.answer(question.id, value)
    return [text for question in waiting for text in question.items]


# What feedback does


class Scores(dict[str, float]):
    """A reward model of texts, by heart."""

    def score(self, texts):
        return np.array([self[text] for text in texts])


def test_the_reward_is_that_of_the_formula():
    reward = TextReward(0.3, -2.0, Scores(a=0.9, b=0.1, c=0.5))
    paid = reward.rewards(["a", "b", "c"], np.array([-2.0, -3.0, -1.0]))
    np.testing.assert_allclose(paid.intrinsic, [1.0, np.exp(-1.0), 1.0])  # not above people's
    np.testing.assert_allclose(paid.reward, 0.3 * paid.sentiment + 0.7 * paid.intrinsic)
    likely = np.linspace(-8, 0, 50)
    intrinsic = fluency(likely, -2.0)
    assert (np.diff(intrinsic) >= 0).all()
    assert (intrinsic > 0).all()
    assert (intrinsic <= 1).all()


def test_texts_of_several_clients_are_judged_by_their_owners():
    rewards = {4: TextReward(1.0, 0.0, Scores(x=1.0, y=0.0)), 9: TextReward(0.0, -1.0, None)}
    likelihood = np.array([-1, -5, -2, -5.0])
    paid = rewards_by_owner(rewards, [9, 4, 9, 4], ["x", "x", "y", "y"], likelihood)
    np.testing.assert_allclose(paid.reward, [1, 1, np.exp(-1), 0])
    np.testing.assert_array_equal(np.isnan(paid.sentiment), [True, False, True, False])
    assert paid.means()["sentiment"] == 0.5


def test_without_weight_feedback_changes_nothing_to_the_bit(model, tmp_path, monkeypatch):
    """λ = 0 is reinforcement learning on R0 alone: nothing is fitted, and nobody is asked."""
    unheard = one_round(built(model, lam=(0.0,)))
    weighty = one_round(built(model, lam=(0.5,)))
    assert not same(unheard.update, weighty.update)
    assert unheard.metrics["train/reward"] == unheard.metrics["train/intrinsic"]
    assert "train/sentiment" not in unheard.metrics

    def fail(*_, **__):
        raise AssertionError("a sentiment model was fitted")

    monkeypatch.setattr(sentiment, "fit", fail)
    folder = tmp_path / "people"
    for more in (
        {"change": flipped(0)},
        {"sentiment": str(tmp_path / "no classifier")},
        {"feedback": "live", "feedback_folder": str(folder)},
        {"feedback": "logged", "feedback_folder": str(folder)},
    ):
        assert same(one_round(built(model, lam=(0.0,), **more)).update, unheard.update)
    assert not folder.exists()
    found = built(model, lam=(0.0,)).evaluate([built(model).init(3)], [range(3)], 0, 0)
    assert found["eval/reward"] == found["eval/intrinsic"]
    assert "eval/sentiment" not in found


def test_only_the_clients_with_a_weight_are_moved(model):
    some, none = built(model, lam=(0.0, 0.8, 0.0)), built(model, lam=(0.0,))
    for client, weight in enumerate(some.weights):
        updates = [one_round(algorithm, client).update for algorithm in (some, none)]
        assert same(*updates) == (weight == 0)


def test_flipping_one_clients_labels_moves_its_rewards_and_no_others(model):
    usual, twisted = built(model), built(model, flipped(1))
    state = usual.init(0)
    a, b = (x.evaluate([state], [range(3)], 0, 0) for x in (usual, twisted))
    for client in range(3):
        name = f"eval/sentiment_client{client}"
        assert (a[name] == b[name]) == (client != 1)
        assert a[f"eval/intrinsic_client{client}"] == b[f"eval/intrinsic_client{client}"]
    assert a["eval/sentiment_client1"] == pytest.approx(1 - b["eval/sentiment_client1"], abs=0.02)
    for client in range(3):
        updates = [one_round(x, client).update for x in (usual, twisted)]
        assert same(*updates) == (client != 1)


def own_policies(algorithm: FedRLHFText, rounds: int = 2) -> list:
    """Every client's θ after its training in the last of some averaged rounds."""
    state, own = algorithm.init(3), []
    for number in range(1, rounds + 1):
        start = state["theta"]
        results = [algorithm.local(Job(k, state, None, 10 * number + k)) for k in range(3)]
        own = [{name: start[name] + r.update[name] for name in start} for r in results]
        mean = {name: np.mean([r.update[name] for r in results], 0) for name in start}
        state = algorithm.step(state, mean, number)
    return own


def test_flipping_one_clients_labels_moves_its_own_policy_most(model):
    """The others' are moved, too, but only by a third of it, through the mean of the round before.

    How far: KL on texts from each client's held-out prompts.
    """
    settings = {"lam": (1.0,), "lr": 1e-3, "batches": 4, "batch": 16, "minibatch": 16}
    usual, twisted = built(model, **settings), built(model, flipped(1), **settings)
    apart = []
    for client, (before, after) in enumerate(zip(own_policies(usual), own_policies(twisted))):
        usual.trainer.actor.load(before)
        apart.append(usual.trainer.divergence(usual.complete_eval_prompts(client).samples, after))
    assert min(apart) > 0
    assert apart[1] > 2 * max(apart[0], apart[2])


def test_sentiment_is_learned_from_labels_and_not_from_shuffled_ones(tmp_path):
    """Global models after three rounds, judged by models of true labels on held-out prompts."""
    model = make_model(tmp_path / "model", steps=200)
    settings = {
        "batches": 8, "batch": 32, "minibatch": 32, "lr": 3e-3, "kl": 0.0, "lam": (1.0,),
        "eval_prompts": 8, "eval_completions": 8, "answer_tokens": 32, "reviews": 500,
    }  # fmt: skip

    def shuffled(world) -> None:
        random = np.random.default_rng(5)
        world.train = tuple(
            tuple(
                review._replace(label=int(label))
                for review, label in zip(mine, random.permutation([r.label for r in mine]))
            )
            for mine in world.train
        )

    truth = built(model, **settings)
    found = {}
    for name, change in (("told", None), ("shuffled", shuffled)):
        algorithm = built(model, change, **settings)
        state = algorithm.init(0)
        before = truth.evaluate([state], [range(3)], 0, 0)["eval/sentiment"]
        for number in range(3):
            results = [algorithm.local(Job(k, state, None, 10 * number + k)) for k in range(3)]
            mean = {n: np.mean([r.update[n] for r in results], 0) for n in results[0].update}
            state = algorithm.step(state, mean, number)
        found[name] = truth.evaluate([state], [range(3)], 0, 0)["eval/sentiment"] - before
    assert found["told"] > 0.15
    assert found["shuffled"] < found["told"] / 2


# Held out


def test_evaluation_is_on_held_out_prompts_that_never_change(model):
    algorithm, again = built(model), built(model, lam=(0.1,), batches=5)
    held = [{review.id for review in mine} for mine in algorithm.world.held]
    for client, mine in enumerate(algorithm.eval_prompts):
        assert {one.id for one in mine} <= held[client]
        assert all(2 <= one.length <= 8 for one in mine)
        assert mine == again.eval_prompts[client]
    some = zip(prompting.prompt_batches(algorithm.world, [0, 1], 16, (2, 8), 0), range(5))
    trained = [one.id for batch, _ in some for one in batch]
    assert not set(trained) & set().union(*held)
    assert len(set(trained[:64])) == 64  # all 64 reviews of the two clients before any again
    state = algorithm.init(0)
    found = [algorithm.evaluate([state], [range(3)], n, seed) for n, seed in ((0, 1), (4, 2))]
    assert found[0] == found[1]


def test_a_client_with_its_own_reviews_alone_draws_all_of_them_in_turn(model):
    """By hand: one stream of orders, cut into batches, and lengths from the same generator."""
    world = built(model).world
    random = seeding.generator(5, "prompts")
    order: list[int] = []
    drawn = prompting.prompt_batches(world, [1], 24, (2, 8), 5)
    for _ in range(4):  # 32 reviews: orders begin in the middle of a batch
        while len(order) < 24:
            order += random.permutation(len(world.train[1])).tolist()
        lengths = random.integers(2, 9, 24).tolist()
        mine = [world.train[1][i] for i in order[:24]]
        assert next(drawn) == [
            Prompt(1, review.id, review.text, length) for review, length in zip(mine, lengths)
        ]
        order = order[24:]


def test_a_review_in_two_places_is_refused(model):
    def leak(world) -> None:
        world.train = ((*world.train[0], *world.held[1]), *world.train[1:])

    with pytest.raises(UserError, match="both trained on and evaluated"):
        built(model, leak)


def test_a_model_that_has_read_a_clients_review_is_refused(model):
    with pytest.raises(UserError, match=r"warm start has read .* world\.public"):
        build_algorithm(recipe(model, world={"public": 0, "reviews": 5000}))


# Federations


def test_a_resumed_run_equals_an_undisturbed_one(model, tmp_path):
    whole = train(recipe(model, rounds=3), tmp_path / "a")
    half = train(recipe(model, rounds=1), tmp_path / "b")
    config, directory = runs.resume(half, ["--rounds", "3"])
    runs.train(config, directory, build_algorithm(config))
    assert same(last(whole).states[0]["theta"], last(half).states[0]["theta"])
    assert (whole / "metrics.jsonl").read_bytes() == (half / "metrics.jsonl").read_bytes()


def test_one_client_federated_equals_centralized_to_the_bit(model, tmp_path):
    one = {"clients": 1}
    ours = train(recipe(model, federation=one), tmp_path / "a")
    theirs = train(recipe(model, federation=one | {"kind": "centralized"}), tmp_path / "b")
    assert same(last(ours).states[0]["theta"], last(theirs).states[0]["theta"])


def test_a_centralized_client_learns_from_everybody_by_their_own_weights(model):
    config = recipe(model, federation={"kind": "centralized"}, algorithm={"lam": (0.0, 0.5, 1.0)})
    algorithm = build_algorithm(config)
    drawn = prompting.prompt_batches(algorithm.world, algorithm.client_env_ids[0], 20, (2, 8), 0)
    batches = [next(drawn) for _ in range(6)]
    assert [{one.owner for one in batch} for batch in batches] == [{0}, {1}, {2}] * 2
    assert all(len(batch) == 20 for batch in batches)
    result = one_round(algorithm)
    assert result.weight == 96
    assert set(result.metrics) <= algorithm.reports
    found = algorithm.evaluate([algorithm.init(0)], [[0, 1, 2]], 0, 0)
    clients = [found[f"eval/reward_client{k}"] for k in range(3)]
    assert found["eval/reward"] == pytest.approx(np.mean(clients))
    np.testing.assert_allclose(algorithm.evaluate_clients(algorithm.init(0), 5, 9), clients)
    assert found["eval/reward_client2"] == found["eval/sentiment_client2"]


def test_personal_numbers_are_of_the_clients_own_policy(model):
    algorithm = built(model, lr=1e-2)
    state = algorithm.init(0)
    result = algorithm.local(Job(1, state, None, 0))
    own = {"theta": {n: state["theta"][n] + result.update[n] for n in result.update}}
    found = algorithm.evaluate([own], [[1]], 0, 0)
    for name in ("reward", "sentiment", "intrinsic", "repeated"):
        assert result.metrics[f"personal/{name}"] == pytest.approx(found[f"eval/{name}"], abs=1e-5)
    assert result.metrics["personal/divergence"] > 0


def test_another_process_makes_its_own_models(model):
    algorithm = built(model)
    result = one_round(algorithm)
    packed = pickle.dumps(algorithm)
    assert len(packed) < 1_000_000  # neither the model nor the clients' sentiment models
    assert same(one_round(pickle.loads(packed)).update, result.update)


# A person


def test_a_person_is_asked_about_pairs_and_teaches_the_next_round(model, tmp_path):
    folder = tmp_path / "people"
    live = {
        "feedback": "live",
        "feedback_folder": str(folder),
        "preference_queries": 6,
        "lam": (0.0, 1.0, 0),
    }
    algorithm = built(model, **live)
    first = one_round(algorithm, 1)
    assert first.metrics["train/answers"] == 0
    assert first.metrics["train/sentiment"] == 0.5  # nothing is known yet
    private = Folder(client_folder(folder, 1))
    waiting = private.pending()
    assert 1 <= len(waiting) <= 6
    for question in waiting:
        a, b = question.items
        assert question.kind == "compare"
        assert a != b
        assert a.split()[:2] == b.split()[:2]  # of the same prompt
        assert question.prompt  # which a person sees apart
        assert a.startswith(question.prompt)
        assert b.startswith(question.prompt)
    one_round(algorithm, 0)
    assert not client_folder(folder, 0).exists()
    reply(folder, 1, 1.0)
    second = one_round(built(model, **live), 1)
    assert second.metrics["train/answers"] == len(waiting)
    assert second.metrics["train/sentiment"] != 0.5
    assert not same(first.update, second.update)
    liked, other = waiting[0].items[1], waiting[0].items[0]
    felt = algorithm.rewards.of(1).model.score([liked, other])
    assert felt[0] > 0.5 > felt[1]
    shown = effect.read(private)  # how it goes on as it came, and after it has learned here
    assert (shown.kind, shown.answers) == ("texts", len(waiting))
    for came, learned in zip(shown.without, shown.with_answers, strict=True):
        assert came.prompt == learned.prompt
        assert came.item.startswith(came.prompt)
    assert shown.without != shown.with_answers

    logged = built(model, **live | {"feedback": "logged"})
    before = len(private.view().queries)
    replayed = one_round(logged, 1)
    assert same(replayed.update, second.update)
    assert len(private.view().queries) == before  # a log is not asked anything


def test_the_command_finds_where_people_answer(model, tmp_path):
    folder = tmp_path / "people"
    live = {"feedback": "live", "feedback_folder": str(folder), "preference_queries": 2}
    path = train(recipe(model, rounds=1, algorithm=live), tmp_path / "runs")
    assert private_folder(path, 2) == folder
    assert Folder(client_folder(folder, 2)).pending()
    with pytest.raises(UserError, match="--client is 3"):
        private_folder(path, 3)


def test_answers_of_another_run_must_be_there(model, tmp_path):
    """Where a client computes: another machine does not have its folder."""
    algorithm = built(model, feedback="logged", feedback_folder=str(tmp_path), lam=(0.0, 0.5, 1.0))
    state = algorithm.init(0)
    assert algorithm.local(Job(0, state, None, 0)).update  # it needs none
    with pytest.raises(UserError, match="has no client-0001"):
        algorithm.local(Job(1, state, None, 0))
    with pytest.raises(UserError, match="has no client-0001"):
        algorithm.evaluate([state], [range(3)], 0, 0)
    assert not list(tmp_path.iterdir())
    Folder(client_folder(tmp_path, 1))
    assert algorithm.local(Job(1, state, None, 0)).metrics["train/answers"] == 0


def test_questions_are_named_by_their_texts():
    asked = preference_queries.preference_queries(
        ["a", "b", "c", "c", "a", "b"], [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    )
    assert [one.items for one in asked] == [("a", "b"), ("a", "b")]
    assert asked[0].id == asked[1].id
    assert asked[0].id != preference_queries.preference_queries(["b", "a"], [0, 0])[0].id
    assert asked[0].scores == (0.1, 0.2)


# What leaves a client


def test_no_review_text_or_answer_is_in_an_update_a_metric_or_a_file(model, tmp_path):
    folder = tmp_path / "people"
    live = {"feedback": "live", "feedback_folder": str(folder), "preference_queries": 4}
    config = recipe(model, rounds=1, algorithm=live)
    path = train(config, tmp_path / "runs")
    said = [text for client in range(3) for text in reply(folder, client, 0.8125)]
    config, directory = runs.resume(path, ["--rounds", "2"])
    runs.train(config, directory, build_algorithm(config))
    assert json.loads((path / "metrics.jsonl").read_text().splitlines()[-1])["train/answers"] > 0
    world = build_world(config)
    secrets = [review.text[:30] for part in (*world.train, *world.held) for review in part]
    secrets += [" ".join(text.split()[-5:]) for text in said] + ["0.8125"]
    assert len(said) > 10
    for file in path.rglob("*"):
        if file.is_file():
            data = file.read_bytes()
            assert not [secret for secret in secrets if secret.encode() in data], file
    result = build_algorithm(config).local(Job(0, last(path).states[0], None, 1))
    assert result.state is None
    assert all(leaf.dtype == np.float32 for _, leaf in tree.leaves(result.update))
    assert all(isinstance(value, float) for value in result.metrics.values())
    assert set(result.metrics) <= FedRLHFText.reports


# The recipe


def commands() -> list[list[str]]:
    text = find_recipe("fedrlhf/imdb").read_text().replace("#   fedrl", "fedrl")
    return [shlex.split(one) for one in re.findall(r"^fedrl .*", text.replace("\\\n#", ""), re.M)]


@pytest.mark.parametrize("words", commands(), ids=lambda words: " ".join(words[1:])[:60])
def test_every_command_in_the_recipe_can_be_typed(words):
    if words[1:3] == ["run", "fedrlhf/imdb"]:
        assert resolve(read_recipe(find_recipe(words[2])), words[3:]).rounds in (1, 5)
    elif words[1] == "warmstart":
        flags = [pair for pair in split_flags(words[3:]) if pair[0] != "out"]
        assert section(Reading, [pair for pair in flags if "." not in pair[0]], "").steps == 400
        theirs = [f"--{key}={value}" for key, value in flags if "." in key]
        ours = resolve(read_recipe(find_recipe("fedrlhf/imdb")))
        assert resolve({"world": {"name": words[2]}}, theirs).world == ours.world
    else:
        assert words[1] in ("feedback", "run")


def test_the_setting_is_the_papers():
    config = resolve(read_recipe(find_recipe("fedrlhf/imdb")))
    text = config.algorithm
    assert (config.rounds, config.federation.clients) == (5, 5)
    assert text.lam == (0.1, 0.3, 0.5, 0.7, 0.9)
    assert (text.batch, text.prompt_tokens, text.answer_tokens) == (16, (2, 8), 32)
    assert (text.eval_prompts, text.temperature, Settings().lr) == (30, 1.0, 1e-5)
    assert (config.world.held_out, config.world.shortest) == (0.2, 200)


@pytest.mark.realdata
def test_genuine_reviews_are_read_and_written_on(tmp_path):
    genuine = {"source": str(data("imdb")), "reviews": 40, "public": 100}
    known = World(WorldSettings(**genuine), 0, 0)
    how = Reading(steps=4, width=32, layers=1, batch=8, vocabulary=400)
    model = warmstart(known, how, tmp_path / "model")
    algorithm = build_algorithm(recipe(model, world=genuine))
    found = one_round(algorithm, 2).metrics
    assert 0 < found["train/sentiment"] < 1
    assert 0 < found["train/intrinsic"] <= 1
    prompt = algorithm.eval_prompts[0][0]
    tokens = algorithm.prompt_tokens([prompt])
    text = algorithm.trainer.policy.tokenizer.batch_decode(tokens)[0]
    assert prompt.text.startswith(text)  # pieces of words: capitals, marks and spaces stay


# Mistakes


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"prompt_tokens": (0, 8)}, r"prompt_tokens is \[0, 8\]"),
        ({"prompt_tokens": (8, 2)}, "shortest and the longest"),
        ({"prompt_tokens": (4,)}, "shortest and the longest"),
        ({"lam": (1.5,)}, "from 0 to 1"),
        ({"lam": (-0.1,)}, "from 0 to 1"),
        ({"lam": ()}, "algorithm.lam"),
        ({"batches": 0}, "algorithm.batches is 0"),
        ({"batch": 1}, "algorithm.batch is 1"),
        ({"lr": 0.0}, "algorithm.lr is 0.0; it must be above 0"),
        ({"feedback": "live"}, "feedback_folder is empty.*_folder private"),
        ({"feedback_folder": "people"}, 'but algorithm.feedback is "sentiment": set it to "live"'),
        ({"feedback": "logged"}, "feedback_folder is empty"),
        ({"sentiment": ""}, "algorithm.sentiment is empty"),
        ({"device": "spread"}, "spread"),
    ],
)
def test_impossible_settings_are_one_line(settings, message):
    with pytest.raises(UserError, match=message) as error:
        Settings(**settings)
    assert "\n" not in str(error.value)


def test_settings_that_do_not_fit_the_world_are_one_line(model):
    with pytest.raises(UserError, match="has 2 weights; name one, or one for each of the 3"):
        built(model, lam=(0.1, 0.2))
    with pytest.raises(UserError, match="eval_prompts is 30, but client 0 holds out only 8"):
        built(model, eval_prompts=30)
    with pytest.raises(UserError, match="model is empty"):
        build_algorithm(recipe("")).init(0)
    algorithm = built(model, sentiment="./nowhere")
    state = algorithm.init(0)
    with pytest.raises(UserError, match=r"algorithm\.sentiment"):
        algorithm.evaluate([state], [range(3)], 0, 0)


def test_reading_needs_public_reviews(tmp_path, fedrl):
    words = ("warmstart", "imdb", "--out", "model", "--world.reviews", str(WORLD["reviews"]))
    done = fedrl(*words, check=False)
    assert done.returncode != 0
    assert "--world.public" in done.stderr
    assert not (tmp_path / "model").exists()


def test_a_run_exports_its_model_as_an_ordinary_folder(model, tmp_path, capsys):
    from transformers import AutoModelForCausalLM

    path = train(recipe(model, rounds=1), tmp_path / "runs")
    out = tmp_path / "mine"
    assert cli.call(["export", str(path), "--out", str(out)]) == 0
    assert "round 1" in capsys.readouterr().out
    theta = last(path).states[0]["theta"]
    saved = dict(AutoModelForCausalLM.from_pretrained(out).named_parameters())
    assert set(saved) == {name for name in theta if not name.startswith("value.")}
    for name, weights in saved.items():
        np.testing.assert_array_equal(weights.detach().numpy(), theta[name])
    again = build_algorithm(recipe(out))  # the next run's algorithm.model
    assert same(
        {n: w for n, w in again.init(0)["theta"].items() if n in saved},
        {n: theta[n] for n in saved},
    )
