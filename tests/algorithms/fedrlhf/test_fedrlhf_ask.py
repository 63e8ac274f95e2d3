"""Feedback that is asked for before every local step, as the paper's Algorithm 1 has it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.ratings import CLIENTS, built, world

from fedrl.algorithms.fedrlhf.ratings import algorithm as ratings
from fedrl.algorithms.fedrlhf.ratings.algorithm import FedRLHF
from fedrl.algorithms.fedrlhf.ratings.step_feedback import FedRLHFByStep
from fedrl.core.types import Job, Tensors


def by_step(**settings) -> FedRLHFByStep:
    """As a recipe would build it."""
    found = world()
    ids = [[client] for client in range(CLIENTS)]
    settings = ratings.Settings(ask="step", **settings)
    algorithm = ratings.build(settings, found, 1, ids)
    assert isinstance(algorithm, FedRLHFByStep)
    return algorithm


def one_round(algorithm: FedRLHF, client: int = 1, state: Tensors | None = None, seed: int = 7):
    return algorithm.local(Job(client, algorithm.init(3), state, seed))


def same(one: Tensors, other: Tensors) -> bool:
    return all(np.array_equal(one[name], other[name]) for name in one.keys() | other.keys())


class Hears:
    """A source that notes what was asked, of an algorithm's own person."""

    def __init__(self, algorithm: FedRLHF) -> None:
        self.turns: list[list[str]] = []
        usual = algorithm.feedback_source

        def source(data):
            person = usual(data)

            class Noted:
                def answers(noted, questions, seed):
                    self.turns.append([question.id for question in questions])
                    return person(int(data.users[0])).answers(questions, seed)

            return lambda user: Noted()

        algorithm.feedback_source = source


ONE_STEP = {"local_epochs": 1, "batch": 1000}
"""On all of a client's movies."""


@pytest.mark.parametrize("method", ["q-learning", "policy-gradient"])
def test_where_a_round_is_one_step_both_ask_alike_to_the_bit(method):
    first = [one_round(make(method=method, **ONE_STEP)) for make in (built, by_step)]
    second = [
        one_round(make(method=method, **ONE_STEP), state=before.state, seed=8)
        for make, before in zip((built, by_step), first, strict=True)
    ]
    for whole, steps in (first, second):
        assert same(whole.update, steps.update)
        assert whole.metrics == pytest.approx(steps.metrics)
        assert np.array_equal(whole.state["model"], steps.state["model"])
        assert same(whole.state["answers"], steps.state["answers"])
    assert not same(first[0].update, second[0].update)


def test_steps_without_feedback_are_those_of_a_round_to_the_bit():
    """Many steps, one after another, are what the compiled loop takes at once."""
    for settings in ({"feedback": "none"}, {"lam": (0.0,)}, {"feedback": "none", "local_steps": 6}):
        whole, steps = (one_round(make(**settings)) for make in (built, by_step))
        assert same(whole.update, steps.update)
        assert whole.metrics == pytest.approx(steps.metrics)


def test_before_every_step_people_are_asked_about_its_movies():
    algorithm = by_step(local_steps=5, batch=4, rating_queries=50, preference_queries=2)
    heard = Hears(algorithm)
    one_round(algorithm)
    assert len(heard.turns) == 5
    data = algorithm.client_data[1]
    known = {data.key(place) for place in range(len(data.appeal))}
    rated = [{name.split("/")[1] for name in turn if name.startswith("rate/")}
             for turn in heard.turns]  # fmt: skip
    assert all(len(names) <= 4 and names <= known for names in rated)
    assert len(rated[0]) > 1
    assert len(set().union(*rated)) > 4  # other movies in other steps
    asked = [name for turn in heard.turns for name in turn]
    assert len(set(asked)) == len(asked)  # what was answered is not asked again


def test_scores_that_are_asked_about_are_those_of_the_clients_own_network_by_then():
    algorithm = by_step(local_steps=4, batch=1000, lr=0.3, rating_queries=500,
                        preference_queries=0)  # fmt: skip
    heard = Hears(algorithm)
    one_round(algorithm)
    scores = [sorted(float(name.rpartition("/")[2]) for name in turn) for turn in heard.turns]
    assert len(set(scores[0])) < len(set(scores[-1]))  # the first network rates all alike


def test_the_opposite_of_every_answer_moves_the_policy():
    algorithm = by_step(local_steps=4)
    job = Job(1, algorithm.init(3), None, 7)
    honest, lied = algorithm.local(job), algorithm.poisoned(job)
    assert not same(honest.update, lied.update)
    alone = by_step(feedback="none", local_steps=4)
    assert not same(alone.local(job).update, alone.poisoned(job).update)


@pytest.mark.slow
def test_texts_of_one_batch_are_asked_about_alike_in_both(tmp_path: Path):
    pytest.importorskip("torch", reason="models that write need the extra llm")
    from support.review_runs import make_model, recipe

    from fedrl.algorithms.fedrlhf.text.algorithm import FedRLHFText
    from fedrl.config.build import build_world
    from fedrl.feedback.store import Folder, client_folder

    model = make_model(tmp_path / "model")

    def asked(ask: str, batches: int) -> tuple[Tensors, list[str]]:
        folder = tmp_path / f"{ask}-{batches}"
        config = recipe(model, algorithm={
            "feedback": "live", "feedback_folder": str(folder), "preference_queries": 3,
            "lam": (0.0, 1.0, 0.0), "ask": ask, "batches": batches,
        })  # fmt: skip
        world = build_world(config)
        algorithm = FedRLHFText(config.algorithm, world, [[k] for k in range(world.clients)])
        found = algorithm.local(Job(1, algorithm.init(3), None, 7))
        waiting = Folder(client_folder(folder, 1)).pending()
        return found.update, [question.id for question in waiting]

    (whole, once), (steps, also) = asked("round", 1), asked("step", 1)
    assert same(whole, steps)
    assert once == also
    (_, few), (_, many) = asked("round", 3), asked("step", 3)
    assert set(few) < set(many)
