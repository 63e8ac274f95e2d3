"""Clients that lie: each does what its name says, with every engine, and nothing else changes."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.rounds import Memory, play, same
from support.toy import BatchedToy, Toy

from fedrl.aggregation import rules
from fedrl.algorithms.qhd.dqn import network as dqn
from fedrl.clients.attacks import ATTACKS, Attacked, Settings, attack_update, byzantine_clients
from fedrl.clients.faults import Faulty
from fedrl.clients.faults import Settings as Faults
from fedrl.config.build import build_algorithm, build_clients
from fedrl.config.loading import find_recipe, read_recipe, resolve
from fedrl.core import seeding, tree
from fedrl.core.abilities import Batched, sends_parameters
from fedrl.core.types import Job, UserError
from fedrl.engines.in_process import InProcess
from fedrl.engines.worker_pool import WorkerPool
from fedrl.federation import round_loop
from fedrl.runs.train import plan

KINDS = [kind for kind in ATTACKS.builtin if kind != "poison"]


def jobs(algorithm, count=4, seed=7, round=1):
    state = algorithm.init(seed)
    sent = algorithm.broadcast(state, round)
    return [Job(c, sent, None, seeding.derive(seed, "local/0", round, c)) for c in range(count)]


def told(kind, update, base=None, strength=3.0, seed=0):
    return attack_update(update, base or {}, Settings(kind=kind, strength=strength), seed)


UPDATE = {"x": {"y": np.array([[1.0, -2.0]])}, "z": np.array([2.0], np.float32)}
RMS = math.sqrt((1 + 4 + 4) / 3)


def test_what_each_attack_sends():
    flipped = told("sign-flip", UPDATE)
    assert flipped["x"]["y"].tolist() == [[-3.0, 6.0]]
    assert flipped["z"].tolist() == [-6.0]
    assert told("scale", UPDATE)["x"]["y"].tolist() == [[3.0, -6.0]]
    level = told("same-value", UPDATE)
    np.testing.assert_allclose(level["x"]["y"], 3 * RMS)
    np.testing.assert_allclose(level["z"], 3 * RMS, rtol=1e-6)
    assert not any(leaf.any() for _, leaf in tree.leaves(told("free-rider", UPDATE)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_lie_has_the_form_of_an_update(kind):
    for name, leaf in tree.leaves(told(kind, UPDATE)):
        true = tree.flatten(UPDATE)[name]
        assert (leaf.dtype, leaf.shape) == (true.dtype, true.shape)


def test_noise_is_as_large_as_asked_and_follows_the_seed():
    update = {"x": np.full(20_000, 0.5), "y": np.full(20_000, -0.5)}
    noise = told("noise", update, strength=4.0)
    for leaf in noise.values():
        assert leaf.std() == pytest.approx(2.0, rel=0.05)
        assert leaf.mean() == pytest.approx(0.0, abs=0.05)
    assert abs(np.corrcoef(noise["x"], noise["y"])[0, 1]) < 0.05
    same(noise, told("noise", update, strength=4.0))
    assert not np.array_equal(noise["x"], told("noise", update, strength=4.0, seed=1)["x"])


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-10, 10), min_size=2, max_size=5), st.sampled_from(KINDS))
def test_of_values_the_change_is_what_is_lied_about(base, kind):
    start = np.array(base)
    honest = start + np.arange(len(base))
    wrong = told(kind, {"w": honest}, {"w": start, "other": np.zeros(3)})["w"]
    expected = told(kind, {"w": honest - start})["w"]
    np.testing.assert_allclose(wrong - start, expected, atol=1e-9)


def test_a_lie_too_large_for_its_dtype_is_still_a_number():
    wrong = told("scale", {"x": np.array([6e4, -6e4], np.float16)}, strength=100.0)["x"]
    assert wrong.tolist() == [65504.0, -65504.0]


def halved(change, strength, random):
    """A lie of one's own: half of the change, with the strength in one place."""
    return {name: 0.5 * part + strength * (random.random() < 2) for name, part in change.items()}


@pytest.mark.slow
def test_an_attack_from_outside_is_a_function_of_the_change(tmp_path, monkeypatch):
    monkeypatch.setattr(ATTACKS, "registered", {})
    ATTACKS.register("halved", halved)
    assert told("halved", UPDATE)["x"]["y"].tolist() == [[3.5, 2.0]]
    of_values = told("halved", {"w": np.full(2, 5.0)}, {"w": np.full(2, 3.0)})
    assert of_values["w"].tolist() == [7.0, 7.0]  # 3 + 2 / 2 + 3
    (tmp_path / "mine.py").write_text(
        "def none(change, strength, random):\n    return {n: 0 * x for n, x in change.items()}\n"
    )
    name = f"{tmp_path}/mine.py:none"
    work = jobs(Toy())[0]
    found = Attacked(Toy(), Settings(kind=name), {0}).local(work)
    same(found.update, Attacked(Toy(), Settings(kind="free-rider"), {0}).local(work).update)
    with pytest.raises(UserError, match="there is no file"):
        Settings(kind=f"{tmp_path}/other.py:none")
    with pytest.raises(UserError, match=r"is no function .change, strength, random."):
        Attacked(Toy(), Settings(kind="json:JSONDecoder"), {0})


# Who lies


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 200), st.integers(0, 100), st.floats(0, 1), st.floats(0, 1))
def test_a_larger_share_adds_liars_and_keeps_the_others(clients, seed, one, two):
    few, many = (byzantine_clients(Settings(share=s), clients, seed) for s in sorted((one, two)))
    assert few <= many <= set(range(clients))
    assert len(many) == math.ceil(max(one, two) * clients - 1e-9)


def test_the_seed_draws_the_liars_and_names_are_taken_as_they_are():
    assert len({byzantine_clients(Settings(share=0.2), 50, seed) for seed in range(5)}) == 5
    assert byzantine_clients(Settings(clients=(3, 1)), 50, 0) == {1, 3}
    assert byzantine_clients(Settings(), 50, 0) == frozenset()
    assert len(byzantine_clients(Settings(share=0.07), 100, 0)) == 7


# In the round loop


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("toy", [Toy, BatchedToy])
def test_only_the_liars_updates_change(kind, toy):
    attacked = Attacked(toy(), Settings(kind=kind), {1, 3})
    work = jobs(toy())
    one_by_one = [attacked.local(job) for job in work]
    assert isinstance(attacked, Batched) == (toy is BatchedToy)
    if toy is BatchedToy:
        for alone, together in zip(one_by_one, attacked.local_many(work), strict=True):
            same(alone.update, together.update)
    for job, result in zip(work, one_by_one, strict=True):
        honest = toy().local(job)
        assert (result.weight, result.metrics) == (honest.weight, honest.metrics)
        same(result.state, honest.state)
        if job.client in (1, 3):
            same(result.update, attack_update(honest.update, {}, attacked.settings, job.seed))
            assert not np.array_equal(result.update["a"], honest.update["a"])
        else:
            same(result.update, honest.update)


def attacked_toy(kind="noise"):
    return Attacked(Toy(), Settings(kind=kind), frozenset({0, 4}))


@pytest.mark.slow
def test_every_engine_hears_the_same_lies():
    with WorkerPool(attacked_toy, 1) as engine:
        apart = play(attacked_toy(), rounds=2, engine=engine)
    batched = Attacked(BatchedToy(), Settings(kind="noise"), frozenset({0, 4}))
    for store in (play(attacked_toy(), rounds=2), play(batched, rounds=2)):
        same(store.last.states[0], apart.last.states[0])
        assert [r.clients for r in store.rounds] == [r.clients for r in apart.rounds]


def test_a_client_can_lie_and_another_fail():
    both = Faulty(attacked_toy("scale"), Faults(clients=(2,), kind="nan"))
    store = play(both, rounds=1)
    assert [r["client"] for r in store.rounds[1].clients if r["status"] == "failed"] == [2]
    alone = play(Faulty(Toy(), Faults(clients=(2,), kind="nan")), rounds=1)
    assert not np.array_equal(
        store.last.states[0]["theta"]["a"], alone.last.states[0]["theta"]["a"]
    )


class Named(Toy):
    """The toy, whose changes have the names of what was broadcast, as FedRLHF's do."""

    def broadcast(self, state, round):
        return {"round": round, "theta": state["theta"], **state["theta"]}


class Valued(Named):
    """The toy, but clients send θ itself."""

    sends_parameters = True

    def local(self, job):
        result = super().local(job)
        for name in result.update:
            result.update[name] = job.broadcast[name] + result.update[name]
        return result

    def step(self, state, mean, round):
        return {"theta": mean, "steps": state["steps"] + 1}


@pytest.mark.parametrize("kind", KINDS)
def test_a_name_does_not_make_a_change_a_value(kind):
    plain, named = (Attacked(toy(), Settings(kind=kind), {0, 4}) for toy in (Toy, Named))
    same(play(plain).last.states[0], play(named).last.states[0])


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "noise"])
def test_methods_that_send_values_meet_the_same_attack(kind):
    changes = play(Attacked(Toy(), Settings(kind=kind), {0, 4}), rounds=3)
    values = play(Attacked(Valued(), Settings(kind=kind), {0, 4}), rounds=3)
    for name in ("a", "b"):
        one, other = (s.last.states[0]["theta"][name] for s in (changes, values))
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
    assert sends_parameters(Faulty(Attacked(Valued(), Settings(), {0}), Faults(clients=(1,))))
    assert not sends_parameters(Attacked(Toy(), Settings(), {0}))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_two_liars_of_eleven_do_not_carry_robust_rules_away(kind):
    """Clients pull towards 0 … 10; where the honest ones alone would end, the rules end nearly."""
    honest = play(Toy(11), rounds=40, clients=11).last.states[0]["theta"]["a"].mean()
    attack = Settings(kind=kind, strength=50.0)
    off = {}
    for name in ("mean", "median", "trimmed", "krum", "multi-krum", "bulyan", "norm-bound"):
        rule = rules.get(name, byzantine=2)
        store = play(Attacked(Toy(11), attack, {2, 7}), rounds=40, clients=11, mean=rule)
        off[name] = abs(store.last.states[0]["theta"]["a"].mean() - honest)
    if kind == "sign-flip":
        assert off["mean"] > 100
    assert max(value for name, value in off.items() if name != "mean") < 4, off


# Poison


def test_a_method_without_poison_refuses_it():
    with pytest.raises(UserError, match=r'attack.kind is "poison", which Toy cannot show'):
        Attacked(Toy(), Settings(kind="poison"), {0})


class Bitter(BatchedToy):
    def poisoned(self, job):
        return Toy.local(self, Job(-job.client, job.broadcast, job.state, job.seed))


def test_poison_is_taken_by_the_liars_alone():
    work = jobs(Bitter())
    attacked = Attacked(Bitter(), Settings(kind="poison"), {1, 3})
    expected = [Bitter().poisoned(j) if j.client in (1, 3) else Toy().local(j) for j in work]
    for found in (attacked.local_many(work), [attacked.local(job) for job in work]):
        for one, other in zip(found, expected, strict=True):
            same(one.update, other.update)
    everybody = Attacked(Bitter(), Settings(kind="poison"), {0, 1, 2, 3})
    assert len(everybody.local_many(work)) == 4


@pytest.mark.parametrize("world", ["random_mdp", pytest.param("cartpole", marks=pytest.mark.slow)])
def test_rewards_turned_round_turn_a_policy_gradient_round(world):
    config = resolve(
        {
            "algorithm": {"name": "pavg", "local_steps": 1},
            "world": {"name": world, "horizon": 10},
            "federation": {"clients": 2},
        }
    )
    algorithm = build_algorithm(config)
    for job in jobs(algorithm, 2):
        honest, wrong = algorithm.local(job).update, algorithm.poisoned(job).update
        for name, leaf in honest.items():
            assert leaf.any()
            np.testing.assert_allclose(wrong[name], -leaf, rtol=1e-4, atol=1e-7)
        same(algorithm.local(job).update, honest)  # it stays with the poisoned one


@pytest.mark.parametrize("encoders", ["shared", "own"])
def test_rewards_turned_round_turn_linear_values_round(encoders):
    """Without a look ahead, and with actions that depend on no value, to the bit."""
    blind = {"gamma": 0.0, "epsilon": 1.0, "epsilon_floor": 1.0, "episodes": 3, "replay": 100}
    sizes = {"features": 64, "sizes": (32, 64), "anchors": 40, "encoders": encoders}
    data = {"algorithm": {"name": "fedqhd", **blind, **sizes}, "world": {"name": "cartpole-v1"}}
    algorithm = build_algorithm(resolve(data | {"federation": {"clients": 2}}))
    for job in jobs(algorithm, 2):
        (honest,), (wrong,) = (
            work(job).update.values() for work in (algorithm.local, algorithm.poisoned)
        )
        assert honest.any()
        np.testing.assert_array_equal(wrong, -honest)
        np.testing.assert_array_equal(*algorithm.local(job).update.values(), honest)


@pytest.mark.parametrize("name", ["feddqn", "distill-dqn"])
def test_rewards_turned_round_in_a_replay_or_in_the_rules_are_the_same(name):
    small = {"episodes": 3, "replay": 100, "batch": 8, "hidden": (8, 8)}
    data = {"algorithm": {"name": name, **small}, "world": {"name": "cartpole-v1"}}
    algorithm = build_algorithm(resolve(data | {"federation": {"clients": 2}}))
    job = jobs(algorithm, 1)[0]
    state = algorithm.local(job).state
    learner = dqn.Learner(**{name: np.array(state[name]) for name in dqn.Learner._fields})
    turned = learner._replace(rewards=-learner.rewards)
    settings, limit = algorithm.settings, algorithm.world.limit
    rules = settings.rules(settings.lr, settings.batch, limit, algorithm.sign)
    shape, slopes = algorithm.shape_of((8, 8)), []
    for one, how in ((learner, rules._replace(sign=-1.0)), (turned, rules)):
        work = dqn.work(shape, 8)
        work.picks[:] = np.arange(8)
        dqn.td_slopes(one, shape, how, work)
        slopes.append(work.dq[:8].copy())
    assert slopes[0].any()
    np.testing.assert_array_equal(*slopes)
    (honest,), (wrong,) = (
        work(job).update.values() for work in (algorithm.local, algorithm.poisoned)
    )
    assert not np.array_equal(honest, wrong)


@pytest.mark.slow
def test_a_poisoned_person_says_the_opposite():
    ratings = {"users": 40, "movies": 60, "ratings": 50, "least": 10}
    data = {
        "algorithm": {
            "name": "fedrlhf",
            "local_epochs": 1,
            "rating_queries": 20,
            "preference_queries": 5,
        },
        "world": {"name": "movielens", **ratings},
        "federation": {"clients": 2},
    }
    algorithm = build_algorithm(resolve(data))
    job = jobs(algorithm, 1)[0]
    honest, wrong = algorithm.local(job), algorithm.poisoned(job)
    said, contrary = (r.state["answers"] for r in (honest, wrong))
    assert np.count_nonzero(said["value"]) > 3
    np.testing.assert_array_equal(contrary["value"], -said["value"])
    np.testing.assert_array_equal(contrary["first"], said["first"])
    assert not np.array_equal(wrong.update["layers"], honest.update["layers"])
    unheard = build_algorithm(resolve(data, ["--algorithm.feedback", "none"]))
    assert not np.array_equal(
        unheard.poisoned(job).update["layers"], unheard.local(job).update["layers"]
    )


def test_rewards_of_language_agents_are_turned_round():
    pytest.importorskip("torch", reason="needs the extra llm")
    from support.tiny_model import rollout

    from fedrl.llm.rl.advantages import ESTIMATORS, negate_rewards

    for name, estimate in ESTIMATORS.items():
        played = rollout([[("s", 0.0), ("t", 1.0)], [("s", 0.5)], [("s", 0.0)]], [0, 0, 0])
        honest = estimate(played)
        negate_rewards(played)
        assert honest.any()
        np.testing.assert_allclose(estimate(played), -honest, err_msg=name)


ONE_STEP = {"tasks": 8, "group": 4, "minibatch": 1000, "entropy": 0.0, "weight_decay": 0.0}


@pytest.mark.slow
def test_a_poisoned_agent_learns_the_opposite(tmp_path, monkeypatch):
    pytest.importorskip("transformers", reason="needs the extra llm")
    from support.agent_runs import make_model, recipe, won_by_walking

    from fedrl.envs.household.game import Game

    monkeypatch.setattr(Game, "_goal_holds", won_by_walking)
    algorithm = build_algorithm(recipe(make_model(tmp_path / "tiny"), algorithm=ONE_STEP))
    job = Job(0, {"theta": algorithm.init(0)["theta"]}, None, 5)
    name = "model.embed_tokens.weight"
    honest, wrong = (
        work(job).update[name].ravel() for work in (algorithm.local, algorithm.poisoned)
    )
    assert honest.any()
    assert honest @ wrong < -0.9 * np.linalg.norm(honest) * np.linalg.norm(wrong)


# Settings

BASE = {"algorithm": {"name": "pavg"}, "world": {"name": "cartpole"}}


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--attack.share", "1.2"], "a share from 0 to 1"),
        (["--attack.share", "0.2", "--attack.clients", "1"], "both say who lies"),
        (["--attack.clients", "5"], "outside 0 to 4"),
        (["--attack.clients", "1", "--attack.strength", "0"], "must be above 0"),
        (["--attack.kind", "sign-flop"], "did you mean 'sign-flip'"),
        (["--attack.share", "0.2", "--federation.kind", "local"], "clients that share a model"),
    ],
)
def test_impossible_attacks_are_refused(flags, words):
    with pytest.raises(UserError, match=words):
        resolve(BASE, flags)


def test_a_run_is_attacked_as_its_settings_say():
    config = resolve(BASE, ["--attack.share", "0.4", "--attack.kind", "scale"])
    built = build_clients(config)
    assert isinstance(built, Attacked)
    assert built.byzantine == byzantine_clients(config.attack, 5, config.seed)
    assert not isinstance(build_clients(resolve(BASE)), Attacked)
    assert plan(config) == plan(resolve(BASE))


@pytest.mark.slow
def test_a_fifth_of_sign_flippers_ruins_the_mean_on_cartpole_and_not_robust_rules():
    def reached(*flags):
        common = ["--rounds", "30", "--eval_every", "30", "--federation.clients", "10"]
        recipe = read_recipe(find_recipe("momentum/cartpole"))
        config = resolve(recipe, [*common, "--seed", "1", *flags])
        algorithm, store = build_clients(config), Memory()
        rule = rules.build(config.rule, config.federation.clients_per_round)
        round_loop.run(
            config.federation, algorithm, InProcess(algorithm), rule, store, seed=config.seed,
            rounds=config.rounds, eval_every=config.eval_every,
        )  # fmt: skip
        return [
            done.metrics["eval/return"] for done in store.rounds if "eval/return" in done.metrics
        ]

    attack = partial(reached, "--attack.share", "0.2")
    start, clean = reached()
    assert clean > 3 * start
    assert attack()[-1] < start  # worse than nothing learned
    for name, share in (("median", 0.6), ("krum", 0.8)):  # 0.70 and 0.95 were seen
        assert attack("--aggregate.name", name)[-1] > share * clean, name
