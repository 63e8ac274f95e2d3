"""The world of movie reviews: whose a review is, what is public, and the generated ones."""

from __future__ import annotations

import dataclasses
import gzip
import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import realdata

from fedrl.core.types import UserError
from fedrl.envs.imdb import generate as imdb_generate
from fedrl.envs.imdb.world import Settings, World, check_apart, clean

SMALL = Settings(reviews=12, public=8)


def world(clients: int = 3, seed: int = 0, **changes) -> World:
    return World(dataclasses.replace(SMALL, **changes), clients, seed)


def write(folder: Path, texts: list[str]) -> str:
    """Reviews in the published form: in both splits, every other one is positive."""
    for split, part in (("train", texts[::2]), ("test", texts[1::2])):
        with gzip.open(folder / f"{split}.jsonl.gz", "wt", encoding="utf-8") as file:
            for i, text in enumerate(part):
                label, name = i % 2, f"{split}/{('neg', 'pos')[i % 2]}/{i}"
                row = {"id": name, "label": label, "rating": 1 + 8 * label, "text": text}
                file.write(json.dumps(row) + "\n")
    return str(folder)


@pytest.mark.slow
@settings(deadline=None, max_examples=25)
@given(
    clients=st.integers(1, 4),
    seed=st.integers(0, 2**32),
    reviews=st.integers(2, 12),
    public=st.integers(0, 9),
    family=st.integers(0, 3),
    held_out=st.floats(0.05, 0.95),
)
def test_nothing_is_in_two_places(clients, seed, reviews, public, family, held_out):
    made = World(
        Settings(reviews=reviews, public=public, family=family, held_out=held_out), clients, seed
    )
    everything = [*made.public, *(r for part in (*made.train, *made.held) for r in part)]
    assert len({r.id for r in everything}) == len({r.text for r in everything}) == len(everything)
    assert len(made.public) == public
    assert len(made.train) == len(made.held) == clients
    for train, held in zip(made.train, made.held):
        assert train
        assert held
        assert len(train) + len(held) == reviews
        assert abs(len(held) - held_out * reviews) <= 1


def test_the_seed_deals_and_the_public_stays():
    first, again, other = world(seed=1), world(seed=1), world(seed=2)
    assert (first.train, first.held) == (again.train, again.held)
    assert first.train[0] != other.train[0]
    assert first.public == other.public == world(clients=5, seed=3, reviews=4).public
    assert first.public != world(seed=1, family=1).public
    more = world(clients=5, seed=1)
    assert (more.train[:3], more.held[:3]) == (first.train, first.held)


def test_no_seed_ever_deals_a_public_review(tmp_path):
    """With more public reviews than not, a draw that forgets them would hit one at once."""
    source = write(tmp_path, [f"{i} " + "word " * 60 for i in range(40)])
    public = {r.text for r in world(source=source, public=28, clients=1).public}
    for seed in range(20):
        made = world(source=source, public=28, clients=1, seed=seed)
        assert {r.text for r in made.public} == public
        assert not public & {r.text for r in (*made.train[0], *made.held[0])}


def test_what_leaks_is_refused():
    made = world()
    check_apart(made)
    made.held = (made.held[0], (*made.held[1], made.train[1][0]), made.held[2])
    with pytest.raises(UserError, match="training reviews of client 1 and in the held-out reviews"):
        check_apart(made)
    made = world()
    copied = made.public[3]._replace(id="another")  # the text alone is a leak too
    made.train = ((*made.train[0], copied), *made.train[1:])
    with pytest.raises(UserError, match="another is in the public reviews and in the training"):
        check_apart(made)


def test_short_ones_and_copies_are_left_out(tmp_path):
    texts = [f"{i} " + "word " * 50 for i in range(10)]
    source = write(tmp_path, [*texts, "short", *texts, *(t.replace(" ", "<br />") for t in texts)])
    made = world(source=source, reviews=4, public=2, clients=2)
    found = [r.text for part in (made.public, *made.train, *made.held) for r in part]
    assert sorted(found) == sorted(text.strip() for text in texts)
    with pytest.raises(UserError, match=r"world\.reviews is 5 for every client .* only 10 diff"):
        world(source=source, reviews=5, public=2, clients=2)
    everything = world(source=source, reviews=11, clients=1, public=0, shortest=5)
    assert "short" in {r.text for r in (*everything.train[0], *everything.held[0])}


def test_labels_stay_with_their_texts(tmp_path):
    source = write(tmp_path, [f"{i // 2 % 2} {i} " + "word " * 60 for i in range(60)])
    made = world(source=source)
    for review in (*made.public, *(r for part in (*made.train, *made.held) for r in part)):
        assert review.label == int(review.text[0])
        assert ("pos" in review.id) == bool(review.label)


def test_html_is_gone():
    assert clean("One.<br /><br />Two &amp; <i>three</i>.<BR>  Four\n") == "One. Two & three . Four"
    assert clean("a < b and c > d <sigh>") == "a < b and c > d <sigh>"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"reviews": 1}, "world.reviews is 1"),
        ({"held_out": 0.0}, "world.held_out is 0.0"),
        ({"public": -1}, "world.public is -1"),
        ({"family": -1}, "world.family is -1"),
        ({"shortest": 0}, "world.shortest is 0"),
        ({"source": "nowhere"}, "world.source is 'nowhere'"),
    ],
)
def test_mistakes_name_their_key(wrong, said):
    with pytest.raises(UserError, match=re.escape(said)):
        world(**wrong)


# Generated reviews

MANY = [imdb_generate.write(0, number) for number in range(600)]


def test_a_review_is_a_function_of_its_number():
    backwards = [imdb_generate.write(0, number) for number in reversed(range(600))]
    assert backwards[::-1] == MANY
    assert imdb_generate.write(1, 5) != MANY[5]
    assert len({text for text, _ in MANY}) == len(MANY)


def test_generated_reviews_look_like_reviews():
    lengths = [len(text) for text, _ in MANY]
    assert min(lengths) >= imdb_generate.SHORTEST
    assert max(lengths) <= imdb_generate.LONGEST
    assert np.std(lengths) > 50
    assert 0.4 < np.mean([label for _, label in MANY]) < 0.6
    words = Counter(word for text, _ in MANY for word in re.findall(r"\w+", text.lower()))
    assert 250 < len(words) < 500
    for text, _ in MANY:
        assert re.fullmatch(r"(?:[A-Z][a-z, A-Z]*\. ?)+", text), text
        sentences = text.split(". ")
        assert len(set(sentences)) == len(sentences)


def test_every_rule_of_the_grammar_is_used_and_known():
    named = {s for options in imdb_generate.GRAMMAR.values() for o in options
             for s in re.findall(r"\{(\w+)\}", o)}  # fmt: skip
    starts = {"opening", "verdict_liked", "verdict_disliked", *imdb_generate.KINDS}
    assert named | starts == set(imdb_generate.GRAMMAR)
    for shares in imdb_generate.MIXTURE.values():
        assert sum(shares) == pytest.approx(1)


def test_the_first_words_tell_little_and_the_kinds_follow_the_label():
    """Openings are as frequent under both labels; praise is not."""
    starts = Counter((text.split()[0], label) for text, label in MANY)
    each = [sum(label == want for _, label in MANY) for want in (0, 1)]
    for word in {word for word, _ in starts}:
        shares = [starts[word, label] / each[label] for label in (0, 1)]
        assert abs(shares[0] - shares[1]) < 0.1
    good = set(imdb_generate.GRAMMAR["good"])
    praise = [np.mean([len(good & set(re.findall(r"\w+", text))) for text, label in MANY
                       if label == want]) for want in (0, 1)]  # fmt: skip
    assert praise[1] > 2 * praise[0] > 0


@pytest.mark.slow
@pytest.mark.realdata
def test_the_genuine_reviews():
    realdata.data("imdb")
    made = World(Settings(source="imdb", reviews=9600, public=1000), 5, 0)  # of 49,329
    assert [len(part) for part in made.train] == [7680] * 5
    assert [len(part) for part in made.held] == [1920] * 5
    for part in made.train:
        assert 0.47 < np.mean([review.label for review in part]) < 0.53
        assert all("<br" not in review.text and len(review.text) >= 200 for review in part)
    with pytest.raises(UserError, match="only 49329"):
        World(Settings(source="imdb", reviews=10_000), 5, 0)
