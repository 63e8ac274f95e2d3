"""The search engine against a plain BM25, against the recorded original, and against abuse."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrl.core.types import UserError
from fedrl.envs.webshop import search, search_terms
from fedrl.envs.webshop.generate import generate
from fedrl.envs.webshop.product import indexed_text
from fedrl.envs.webshop.search import Index, coded_length, length_code

COLLECTION = {
    "d": "red shoes and red laces",
    "b": "blue shoes",
    "c": "blue shoes",
    "a": "a green hat with a very long description of nothing that anybody would look for",
}


def build(texts: dict[str, str], **options: float) -> Index:
    return Index.build(list(texts), list(texts.values()), **options)


def by_hand(query: str, texts: list[str], k1: float, b: float) -> list[float]:
    """BM25 in double precision, straight from its formula."""
    documents = [search_terms.terms(text) for text in texts]
    lengths = [len(document) for document in documents]
    held = sum(length > 0 for length in lengths)
    mean = sum(lengths) / held
    scores = []
    for document, length in zip(documents, lengths):
        known = int(coded_length(length_code(np.array(length))))
        score = 0.0
        for word, times in Counter(search_terms.terms(query)).items():
            df = sum(word in other for other in documents)
            f = document.count(word)
            idf = math.log(1 + (held - df + 0.5) / (df + 0.5))
            score += times * idf * f / (f + k1 * (1 - b + b * known / mean))
        scores.append(score)
    return scores


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Don't stop: the T.V. cost 12,000.50 dollars", ["don't", "stop", "the", "t.v", "cost",
                                                        "12,000.50", "dollars"]),
        (
            "size:x-large 5ft 3:4 a.5 wi-fi",
            ["size:x", "large", "5ft", "3", "4", "a", "5", "wi", "fi"],
        ),
        ("under_score __ _a_ 1,.2", ["under_score", "_a_", "1", "2"]),
        ("naïve café’s ½ 360º", ["naïve", "café’s", "360º"]),
        ("日本 ひら カタカナ 한국어", ["日", "本", "ひ", "ら", "カタカナ", "한국어"]),
        ("ok👨‍💼go 👍🏽❤️ ™ #️⃣ # 🇫🇷🇩🇪", ["ok", "👨‍💼", "go", "👍🏽", "❤️", "™", "#️⃣", "🇫🇷", "🇩🇪"]),
        ("", []),
        ("-- !? ", []),
    ],
)  # fmt: skip
def test_words(text: str, found: list[str]) -> None:
    assert search_terms.words(text) == found


@given(st.text(alphabet="abz09_.,:;'\" -é", max_size=40))
def test_plain_and_unicode_words_agree(text: str) -> None:
    ascii_only = text.encode("ascii", "ignore").decode()
    assert search_terms.words(ascii_only + " é") == [*search_terms.words(ascii_only), "é"]
    assert search_terms._unicode_words(ascii_only) == search_terms.words(ascii_only)


def test_words_are_cut_where_lucene_cuts_them() -> None:
    assert [len(word) for word in search_terms.words("x" * 600)] == [255, 255, 90]


def test_terms_lose_possessives_stop_words_and_endings() -> None:
    assert search_terms.terms("The women’s and men's running shoes") == [
        "women",
        "men",
        "run",
        "shoe",
    ]
    assert search_terms.terms("It's the not") == []


def test_length_bytes() -> None:
    assert length_code(np.arange(40)).tolist() == list(range(40))
    lengths = np.arange(20_000)
    codes = length_code(lengths)
    assert (np.diff(codes) >= 0).all()
    assert codes.max() < 256
    known = coded_length(codes)
    assert (known <= lengths).all()
    assert (lengths - known <= np.maximum(lengths - 24, 0) / 8).all()
    assert (length_code(known) == codes).all()


def test_scores_are_bm25() -> None:
    rng = np.random.default_rng(0)
    vocabulary = [f"word{number}" for number in range(40)]
    texts = {
        f"id{number:03}": " ".join(rng.choice(vocabulary, size=rng.integers(0, 120)).tolist())
        for number in range(60)
    }
    index = build(texts, k1=1.3, b=0.7)
    query = "word1 word2 word2 word39 unknown"
    expected = by_hand(query, list(texts.values()), 1.3, 0.7)
    np.testing.assert_allclose(index.scores(query), expected, rtol=2e-6, atol=1e-6)
    ranked = index.search(query, 60)
    assert [round(expected[place], 4) for place in ranked] == sorted(
        (round(score, 4) for score in expected if score > 0), reverse=True
    )


def test_ties_come_by_id_and_only_matches_are_found() -> None:
    index = build(COLLECTION)
    assert [list(COLLECTION)[place] for place in index.search("blue shoe")] == ["b", "c", "d"]
    assert index.search("blue shoes", 1) == [1]


@pytest.mark.parametrize(
    "query", ["", "the of and", "zebra", "!!", "_", "\x00", "日本", "x" * 10_000]
)
def test_queries_without_a_known_word_find_nothing(query: str) -> None:
    assert build(COLLECTION).search(query) == []


@given(st.text(max_size=200), st.integers(-1, 60))
def test_any_query_is_answered(query: str, k: int) -> None:
    found = build(COLLECTION).search(query, k)
    assert len(found) == len(set(found)) <= max(k, 0)


def test_long_queries() -> None:
    assert build(COLLECTION).search("red " * 2500) == [0]
    assert build(COLLECTION).search("_" * 10_000) == []


def test_a_repeated_word_counts_twice() -> None:
    index = build({"a": "red hat", "b": "blue hat"})
    assert index.search("red blue blue")[0] == 1
    assert index.search("red red blue")[0] == 0


def test_empty_collections() -> None:
    assert build({}).search("red") == []
    assert build({"a": "", "b": "the"}).search("red the") == []


def test_texts_must_match_ids() -> None:
    with pytest.raises(ValueError, match="fewer"):
        Index.build(["a", "b"], ["red"])
    with pytest.raises(ValueError, match="more"):
        Index.build(["a"], ["red", "blue"])


def test_other_weights_share_the_postings() -> None:
    products = generate(200)
    ids = [product.asin for product in products]
    index = Index.build(ids, map(indexed_text, products))
    other = index.reweighted(2.0, 0.9)
    assert other.docs is index.docs
    fresh = Index.build(ids, map(indexed_text, products), k1=2.0, b=0.9)
    for product in products[:20]:
        assert other.search(product.title) == fresh.search(product.title)
    assert index.reweighted(index.k1, index.b).search("black bag") == index.search("black bag")


@pytest.mark.parametrize(("k1", "b"), [(0.0, 0.4), (-1.0, 0.4), (0.9, 1.1), (0.9, -0.1)])
def test_weights_out_of_range(k1: float, b: float) -> None:
    with pytest.raises(UserError, match="k1 is"):
        build(COLLECTION, k1=k1, b=b)


def test_saved_and_loaded(tmp_path: Path) -> None:
    products = generate(100)
    index = Index.build([product.asin for product in products], map(indexed_text, products))
    index.save(tmp_path / "index")
    loaded = Index.load(tmp_path / "index")
    for product in products[:20]:
        for mine, theirs in zip(index.ranked(product.title), loaded.ranked(product.title)):
            np.testing.assert_array_equal(mine, theirs)
    with pytest.raises(UserError, match="holds no search index"):
        Index.load(tmp_path)


def test_chunks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    products = generate(150)
    ids = [product.asin for product in products]
    whole = Index.build(ids, map(indexed_text, products))
    monkeypatch.setattr(search, "CHUNK", 7)
    pieces = Index.build(ids, map(indexed_text, products))
    assert whole.terms == pieces.terms
    np.testing.assert_array_equal(whole.docs, pieces.docs)
    np.testing.assert_array_equal(whole.codes, pieces.codes)


@pytest.mark.slow
def test_the_compiled_scan_gives_the_same_answers() -> None:
    kernel = pytest.importorskip("fedrl.envs.webshop.search_kernel", reason="needs numba")
    products = generate(20_000)  # several windows
    index = Index.build([product.asin for product in products], map(indexed_text, products))
    queries = [product.instruction or product.title for product in products[:80]]
    queries += [product.description for product in products[:10]] + ["black", "size size color"]
    for query in queries:
        for k in (1, 10, 50):
            found = index._query(query)
            for plain, compiled in zip(index._best(found, k), kernel.best(index, found, k)):
                np.testing.assert_array_equal(plain, compiled)


@pytest.mark.slow
def test_the_compiled_scan_can_find_everything() -> None:
    kernel = pytest.importorskip("fedrl.envs.webshop.search_kernel", reason="needs numba")
    index = build(COLLECTION)
    found = index._query("blue red shoes")
    for plain, compiled in zip(index._best(found, 9), kernel.best(index, found, 9)):
        np.testing.assert_array_equal(plain, compiled)


@pytest.mark.slow
def test_a_large_index_uses_the_compiled_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba", reason="needs numba")
    products = generate(300)
    index = Index.build([product.asin for product in products], map(indexed_text, products))
    plain = [index.search(product.title) for product in products[:30]]
    monkeypatch.setattr(search, "LARGE", 100)
    assert [index.search(product.title) for product in products[:30]] == plain
