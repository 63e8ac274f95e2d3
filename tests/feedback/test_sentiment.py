"""The private sentiment model, a person's preferences about texts, and a classifier's place."""

from __future__ import annotations

import math
import pickle
import zlib

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.sparse import csr_array
from support import realdata

from fedrl.core.types import UserError
from fedrl.envs.imdb.world import Review, Settings, World
from fedrl.feedback import preference_model, sentiment
from fedrl.feedback.sentiment import accuracy, fit

TEXTS = ["Good, good film!", "bad film", "A good one: it's not bad."]


def labelled(reviews: tuple[Review, ...]) -> tuple[list[str], list[int]]:
    return [review.text for review in reviews], [review.label for review in reviews]


@pytest.fixture(scope="module")
def made() -> World:
    return World(Settings(reviews=1000), 3, 0)


# Features


def test_tfidf_as_by_hand():
    """Three texts, their words and pairs counted on paper; buckets only rename the columns."""
    by_hand = [
        {"good": 2, "film": 1, "good good": 1, "good film": 1},
        {"bad": 1, "film": 1, "bad film": 1},
        {"a": 1, "good": 1, "one": 1, "it's": 1, "not": 1, "bad": 1, "a good": 1, "good one": 1,
         "one it's": 1, "it's not": 1, "not bad": 1},
    ]  # fmt: skip
    having = {term: sum(term in text for text in by_hand) for text in by_hand for term in text}
    counted = sentiment.counts([sentiment.words(text) for text in TEXTS])
    rows = sentiment.tfidf(counted, sentiment.inverse_frequency(counted))
    for i, text in enumerate(by_hand):
        x = {
            term: (1 + math.log(count)) * (1 + math.log(4 / (1 + having[term])))
            for term, count in text.items()
        }
        length = math.sqrt(sum(value**2 for value in x.values()))
        expected = sorted(value / length for value in x.values())
        np.testing.assert_allclose(np.sort(rows[[i]].data), expected, rtol=1e-6)
    shared = [set(rows[[i]].indices.tolist()) for i in range(3)]
    assert [len(shared[a] & shared[b]) for a, b in ((0, 1), (0, 2), (1, 2))] == [1, 1, 1]


def test_words_have_the_same_numbers_everywhere():
    """Python's own hash differs from process to process; a resumed run would not be the same."""
    expected = [zlib.crc32(word.encode()) for word in ("good", "it's", "naïve", "10")]
    assert sentiment.words("Good -- it's naïve_10").tolist() == expected


def test_pairs_do_not_cross_texts_and_their_order_counts():
    def columns(*texts: str) -> set[int]:
        return set(sentiment.counts([sentiment.words(text) for text in texts]).indices.tolist())

    assert columns("not", "bad") < columns("not bad")
    assert columns("not bad") != columns("bad not")


def test_pieces_lose_nothing_and_are_even():
    for length in (0, 1, 39, 59, 61, 100, 399):
        text = np.arange(length, dtype=np.uint64)
        parts = list(sentiment.pieces(text))
        assert np.array_equal(np.concatenate(parts), text)
        sizes = [len(part) for part in parts]
        assert max(sizes) - min(sizes) <= 1
        assert length < 60 or 30 <= min(sizes) <= max(sizes) <= 60


# Logistic regression


def random_rows(count: int = 40, columns: int = 12, seed: int = 0) -> tuple[csr_array, np.ndarray]:
    random = np.random.default_rng(seed)
    dense = random.standard_normal((count, columns)) * (random.random((count, columns)) < 0.4)
    row, column = np.nonzero(dense)
    return csr_array((dense[row, column], (row, column)), shape=(count, sentiment.BUCKETS)), dense


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("penalty", [0.01, 1.0])
def test_the_solution_is_that_of_a_dense_solver(monkeypatch, bias, penalty):
    monkeypatch.setattr(sentiment, "TOLERANCE", 1e-9)
    rows, dense = random_rows()
    target = np.random.default_rng(1).choice([0.0, 0.5, 1.0], len(dense))

    def objective(theta: np.ndarray) -> float:
        p = 1 / (1 + np.exp(-(dense @ theta[:-1] + bias * theta[-1])))
        entropy = -(target * np.log(p) + (1 - target) * np.log(1 - p)).sum()
        return entropy + penalty / 2 * (theta**2).sum()

    expected = minimize(objective, np.zeros(13), tol=1e-10).x
    weights, b = sentiment.logistic(rows, target, penalty, bias)
    np.testing.assert_allclose(weights[:12], expected[:12], atol=2e-5)
    assert b == pytest.approx(expected[12], abs=2e-5)
    assert not weights[12:].any()
    assert bias or b == 0


# The model


@pytest.mark.slow
def test_held_out_reviews_are_mostly_right(made):
    for train, held in zip(made.train, made.held):
        model = fit(*labelled(train))
        texts, labels = labelled(held)
        assert 0.86 <= accuracy(model, texts, labels) < 1
        short = [" ".join(text.split()[-32:]) for text in texts]
        assert accuracy(model, short, labels) > 0.75
        low, high = np.quantile(model.score(short), [0.1, 0.9])
        assert low < 0.25 < 0.75 < high
        opening = [" ".join(text.split()[:6]) for text in texts]
        assert accuracy(model, opening, labels) < 0.62


@pytest.mark.slow
def test_wrong_labels_teach_the_opposite_and_shuffled_ones_nothing(made):
    texts, labels = labelled(made.train[0])
    held = labelled(made.held[0])
    flipped = fit(texts, [1 - label for label in labels])
    np.testing.assert_allclose(
        flipped.score(held[0]), 1 - fit(texts, labels).score(held[0]), atol=1e-4
    )
    shuffled = fit(texts, np.random.default_rng(0).permutation(labels).tolist())
    assert 0.3 < accuracy(shuffled, *held) < 0.7


@pytest.mark.slow
def test_order_does_not_matter(made):
    texts, labels = labelled(made.train[0][:100])
    order = np.random.default_rng(0).permutation(len(texts))
    one, other = fit(texts, labels), fit([texts[i] for i in order], [labels[i] for i in order])
    np.testing.assert_allclose(other.weights, one.weights, atol=1e-6)
    judged = one.score(texts)
    np.testing.assert_allclose(one.score([texts[i] for i in order]), judged[order], rtol=1e-12)
    np.testing.assert_allclose([one.score([text])[0] for text in texts], judged, rtol=1e-12)


def test_degenerate_inputs():
    nothing = fit([], [])
    assert nothing.score(["good", ""]).tolist() == [0.5, 0.5]
    assert nothing.score([]).shape == (0,)
    praise = fit(TEXTS, [1, 1, 1])
    assert (praise.score([*TEXTS, "", "…"]) > 0.5).all()
    copy = pickle.loads(pickle.dumps(praise))
    assert np.array_equal(copy.score(TEXTS), praise.score(TEXTS))


# A person's answers

LIKED = ["a happy dog", "the happy cat sleeps", "so happy today", "happy people and a dog"]
OTHER = ["a sad dog", "the sad cat sleeps", "so sad today", "sad people and a dog"]


def compared(sign: float = 1.0) -> list[tuple[tuple[str, ...], float]]:
    """The happy one is better, now first, now second."""
    pairs = [((b, a), sign) for a, b in zip(LIKED, OTHER)]
    return [((p[1], p[0]), -v) if i % 2 else (p, v) for i, (p, v) in enumerate(pairs)]


def test_consistent_answers_are_recovered_and_carry_over():
    for answers in (
        compared(),
        [((text,), 1.0) for text in LIKED] + [((text,), -1.0) for text in OTHER],
    ):
        model = preference_model.fit(answers)
        assert model.score(LIKED).min() > 0.6
        assert model.score(OTHER).max() < 0.4
        happy, sad = model.score(["one happy bird", "one sad bird"])
        assert happy > 0.55
        assert sad < 0.45


def test_flipped_answers_flip_the_liking():
    told, opposite = (preference_model.fit(compared(sign)) for sign in (1.0, -1.0))
    texts = [*LIKED, *OTHER, "one happy bird"]
    np.testing.assert_allclose(opposite.score(texts), 1 - told.score(texts), atol=1e-5)


def test_nothing_known_is_a_half():
    assert preference_model.fit([]).score(["a", "b c", ""]).tolist() == [0.5] * 3
    model = preference_model.fit(compared())
    assert model.score(["entirely unheard words", ""]).tolist() == [0.5, 0.5]


def test_the_same_pulls_together():
    said = [(("good film", "bad film"), -1.0)]
    apart = preference_model.fit(said).score(["good film", "bad film"])
    near = preference_model.fit(said + [(("good film", "bad film"), 0.0)] * 3).score(
        ["good film", "bad film"]
    )
    assert 0 < near[0] - near[1] < apart[0] - apart[1]


def test_a_rating_and_a_comparison_speak_of_one_liking():
    said = [(("warm",), 1.0), (("warm", "kind"), 1.0)]
    warm, kind = preference_model.fit(said).score(["warm", "kind"])
    assert 0.5 < warm < kind


# A Hugging Face classifier


@pytest.fixture
def folder(tmp_path):
    pytest.importorskip("torch", reason="classifiers need torch (fedrl[llm])")
    transformers = pytest.importorskip("transformers", reason="classifiers need transformers")
    import torch

    from fedrl.llm.builtin_tokenizers import entity_tokenizer

    tokenizer = entity_tokenizer(["the good film was bad"])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = transformers.DistilBertForSequenceClassification(
            transformers.DistilBertConfig(
                vocab_size=len(tokenizer), dim=8, hidden_dim=16, n_layers=1, n_heads=2,
                max_position_embeddings=16, num_labels=3, pad_token_id=0, initializer_range=0.5,
                id2label={0: "Negative", 1: "Neutral", 2: "Positive"},
            )
        )  # fmt: skip
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    return tmp_path


def test_a_classifier_gives_the_probability_of_positive(folder):
    import torch
    from transformers import AutoModelForSequenceClassification

    from fedrl.feedback.hf_sentiment import load

    found = load(str(folder), "cpu")
    texts = ["the good film", "bad", "the film was good the film was bad " * 20] * 30
    judged = found.score(texts)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    for text, p in zip(texts[:3], judged):
        ids = found.tokenizer(text, return_tensors="pt")["input_ids"][:, :16]
        with torch.no_grad():
            expected = torch.softmax(model(ids).logits, -1)[0, 2]
        assert p == pytest.approx(float(expected), abs=1e-5)
    np.testing.assert_allclose(judged, np.tile(judged[:3], 30), atol=1e-5)
    assert found.score([]).shape == (0,)


def test_what_is_no_classifier_is_told(folder, tmp_path):
    from support.tiny_model import tiny

    from fedrl.feedback.hf_sentiment import load

    config = (folder / "config.json").read_text()
    (folder / "config.json").write_text(config.replace('"Positive"', '"Joy"'))
    with pytest.raises(UserError, match="has the labels Negative, Neutral, Joy"):
        load(str(folder), "cpu")
    (folder / "config.json").write_text(config)
    (folder / "model.safetensors").write_bytes(b"broken")
    with pytest.raises(UserError, match=r"algorithm\.sentiment is .* cannot be loaded"):
        load(str(folder), "cpu")
    for path in folder.glob("tokenizer*"):
        path.unlink()
    with pytest.raises(UserError, match="has no tokenizer"):
        load(str(folder), "cpu")
    (folder / "config.json").unlink()
    with pytest.raises(UserError, match=r"no model folder \(it has no config\.json\)"):
        load(str(folder), "cpu")
    with pytest.raises(UserError, match="there is no folder"):
        load(str(folder / "nothing"), "cpu")
    with pytest.raises(UserError, match="is a file"):
        load(str(folder / "model.safetensors"), "cpu")
    writer = tmp_path / "writer"
    tiny(30).save_pretrained(writer)
    (writer / "tokenizer.json").write_text("{}")
    with pytest.raises(UserError, match="is no text classifier but LlamaForCausalLM"):
        load(str(writer), "cpu")


# Genuine reviews


@pytest.mark.realdata
@pytest.mark.slow
def test_a_client_of_the_genuine_reviews():
    realdata.data("imdb")
    made = World(Settings(source="imdb", reviews=10_000), 1, 0)
    model = fit(*labelled(made.train[0]))
    texts, labels = labelled(made.held[0])
    assert 0.86 <= accuracy(model, texts, labels) <= 0.92
    short = [" ".join(text.split()[:40]) for text in texts]
    assert accuracy(model, short, labels) > 0.70
    p = model.score(short)
    for low in np.arange(0, 1, 0.2):  # probabilities are true ones
        there = (p >= low) & (p < low + 0.2)
        assert np.mean(np.array(labels)[there]) == pytest.approx(p[there].mean(), abs=0.1)
