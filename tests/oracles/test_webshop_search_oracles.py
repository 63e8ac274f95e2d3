"""The search beside its oracles: NLTK's stemmer, and what the original's Lucene found."""

from __future__ import annotations

import gzip
import json
import lzma

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.realdata import data, parity

from fedrl.envs.webshop import search_terms
from fedrl.envs.webshop.generate import generate
from fedrl.envs.webshop.product import indexed_text
from fedrl.envs.webshop.search import Index

pytestmark = pytest.mark.slow


def oracle() -> object:
    stemmer = pytest.importorskip("nltk.stem", reason="nltk is the oracle of the stemmer")
    return stemmer.PorterStemmer(mode="MARTIN_EXTENSIONS")


def test_stems_equal_nltks_on_generated_words() -> None:
    stem = oracle().stem
    found = {
        word for product in generate(500) for word in search_terms.words(indexed_text(product))
    }
    assert [word for word in found if search_terms.stem(word) != stem(word)] == []


@given(st.text(alphabet="abcdegilmnorstuvyz1", min_size=1, max_size=6),
       st.sampled_from("ational izer ousness iveness ization ing ed eed sses ies logi bli ement "
                       "ion y ll e ical ness ful ative".split()))  # fmt: skip
@settings(max_examples=400)
def test_stems_equal_nltks_on_made_up_words(start: str, end: str) -> None:
    assert search_terms.stem(start + end) == oracle().stem(start + end)


@pytest.mark.realdata
def test_stems_equal_nltks_on_real_words() -> None:
    stem = oracle().stem
    found: set[str] = set()
    for name in ("documents_1k.jsonl.gz", "human_goals.json.gz"):
        with gzip.open(data("webshop") / name, "rt", encoding="utf-8") as file:
            found.update(search_terms.words(file.read()))
    assert len(found) > 10_000
    assert [word for word in found if search_terms.stem(word) != stem(word)] == []


@pytest.mark.realdata
def test_the_originals_results() -> None:
    with gzip.open(data("webshop") / "documents_1k.jsonl.gz", "rt", encoding="utf-8") as lines:
        documents = [json.loads(line) for line in lines]
    ids = [document["id"] for document in documents]
    index = Index.build(ids, (document["contents"] for document in documents))
    with lzma.open(parity() / "webshop_search.jsonl.xz", "rt", encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    assert len(records) >= 300
    for record in records:
        places, scores = index.ranked(record["query"])
        assert [ids[place] for place in places] == record["asins"]
        # Recorded with 4 decimals; each further document of a tie is lowered by a millionth.
        np.testing.assert_allclose(scores, record["scores"], atol=1.1e-4)
