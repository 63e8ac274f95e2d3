"""What a rule declares decides: with whom it works, what it is given, and how it may fail."""

from __future__ import annotations

import pickle
from dataclasses import dataclass

import numpy as np
import pytest
from support.liars import NAMES, drawn, stream, vector
from support.rounds import Memory, play, same
from support.toy import Toy

from fedrl import privacy
from fedrl.aggregation import rules
from fedrl.aggregation.mean import mean
from fedrl.aggregation.rule import Need, Rule, rule
from fedrl.config.build import build_algorithm, packages
from fedrl.config.loading import as_dict, resolve, to_toml
from fedrl.core import tree
from fedrl.core.types import TooFew, UserError
from fedrl.engines.flower.driver import sent
from fedrl.engines.flower.node_recipes import configuration
from fedrl.federation.round_loop import QuorumLost
from fedrl.privacy.mechanism import Exchange, Mechanism

TABLE = {"algorithm": {"name": "pavg"}, "world": {"name": "random_mdp"}}
CHANGES = {"federation": {"clients": 5}, **TABLE}


@dataclass(frozen=True)
class Filter:
    """Settings such as FedPG-BR's."""

    # σ: bound of a gradient's noise.
    sigma: float = 1.0
    # δ: chance that an honest one is left out.
    delta: float = 0.1
    # α: share of Byzantine clients.
    alpha: float = 0.3


@rule(Settings=Filter, least=lambda size, **parameters: Need(4, why=" to filter"), values=True)
def filtered(updates, sigma, delta, alpha):
    """The first update, times all three."""
    return tree.map(lambda leaf: sigma * delta * alpha * leaf, updates[0][0])


@rule(least=1, secure=True, robust=False, values=True, by_number=False)
def signs(updates):
    """signSGD's step of the mean."""
    return tree.map(np.sign, mean(updates))


def undeclared(updates):
    return mean(updates)


@pytest.fixture(autouse=True)
def named(monkeypatch):
    monkeypatch.setattr(rules.AGGREGATORS, "registered", {})
    for name, thing in {"filter": filtered, "signs": signs, "undeclared": undeclared}.items():
        rules.AGGREGATORS.register(name, thing)


def using(function, **needs):
    """The aggregator of a rule from outside, for three clients."""
    rules.AGGREGATORS.register("mine", Rule(function, least=1, **needs) if needs else function)
    return rules.build(resolve(CHANGES, ["--aggregate.name", "mine"]).rule, 3)


# The table


def test_a_rule_that_comes_with_fedrl_is_declared_once():
    assert list(rules.AGGREGATORS.builtin) == [
        "mean", "weighted", "median", "trimmed", "krum", "multi-krum", "bulyan", "norm-bound",
        "fedpg-br",
    ]  # fmt: skip
    for name, entry in rules.AGGREGATORS.builtin.items():
        assert rules.find(name).name == name
        assert entry.summary.endswith(".") or ";" in entry.summary
        assert not entry.outside


def test_a_rule_is_itself_in_another_process():
    for one in (signs, filtered, rules.find("krum")):
        assert pickle.loads(pickle.dumps(one)) is one


@pytest.mark.parametrize("name", ["mean", "signs"])
def test_a_rule_that_is_declared_secure_needs_nothing_but_the_mean(name):
    """Or a secure sum would change what it says."""
    chosen = rules.find(name)
    assert chosen.secure
    updates = stream(drawn(0, 5))
    np.testing.assert_allclose(vector(chosen(updates)), vector(chosen([(mean(updates), 1.0)])))


def test_only_the_means_can_be_moved_by_one_liar_and_none_declares_otherwise():
    updates = stream(drawn(0, 9))
    lie = tree.map(lambda leaf: np.full_like(leaf, 1e30), updates[0][0])
    for name in NAMES:
        found = vector(rules.get(name, byzantine=1)([*updates, (lie, 1.0)]))
        assert (np.abs(found).max() > 1e20) != rules.find(name).robust, name


# Settings


def test_the_name_chooses_the_settings():
    config = resolve(CHANGES, ["--aggregate.name", "filter", "--aggregate.sigma", "2"])
    assert (config.aggregate.name, config.aggregate.sigma, config.aggregate.delta) == (
        "filter", 2.0, 0.1,
    )  # fmt: skip
    rule = rules.build(config.rule, 5)
    updates = stream(drawn(1, 5))
    np.testing.assert_allclose(vector(rule(updates)), 2 * 0.1 * 0.3 * vector(updates[0][0]))
    assert "sigma = 2.0" in to_toml(config)
    assert resolve(as_dict(config)) == config
    assert pickle.loads(pickle.dumps(config)) == config


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--aggregate.name", "filter", "--aggregate.trim", "0.1"], "unknown key --aggregate.trim"),
        (["--aggregate.sigma", "1"], "unknown key --aggregate.sigma"),
        (["--aggregate.name", "filter", "--aggregate.sigma", "x"], "aggregate.sigma"),
        (["--aggregate.name", "filtre"], "did you mean 'filter'"),
        (["--aggregate.name", "json:JSONDecoder"], "is no rule: it is a function"),
        (["--aggregate.name", "json:no_such"], "json has no no_such"),
        (["--aggregate.name", "no_such_package:rule"], "needs the package no_such_package"),
    ],
)
def test_wrong_names_and_keys_are_a_line(flags, words):
    with pytest.raises(UserError, match=words) as found:
        resolve(CHANGES, flags)
    assert "\n" not in str(found.value)


def test_a_flag_that_names_another_rule_leaves_out_what_only_the_recipes_has(caplog):
    caplog.set_level("INFO", "fedrl")
    data = CHANGES | {"aggregate": {"name": "filter", "sigma": 3.0}}
    assert resolve(data, ["--aggregate.name", "median"]).aggregate.name == "median"
    assert "which has no sigma" in caplog.text


def test_the_run_records_whose_code_it_was(tmp_path):
    (tmp_path / "mine.py").write_text("def first(updates):\n    return updates[0][0]\n")
    name = f"{tmp_path}/mine.py:first"
    (one,) = packages(resolve(CHANGES, ["--aggregate.name", name]))
    assert one.startswith("mine.py:file:")
    assert packages(resolve(CHANGES, ["--attack.kind", name])) == (one,)


def test_nodes_need_not_have_the_rules_package(tmp_path):
    """The driver combines; a node that lacks the package, or may not run it, goes on."""
    (tmp_path / "mine.py").write_text("def first(updates):\n    return updates[0][0]\n")
    flags = ["--engine", "flower", "--connection", "here"]
    config = resolve(CHANGES, [*flags, "--aggregate.name", f"{tmp_path}/mine.py:first"])
    recipe = to_toml(sent(config))
    assert "mine.py" not in recipe
    assert configuration(recipe, ()).aggregate.name == "mean"
    kept = resolve(CHANGES, [*flags, "--aggregate.name", "krum"])
    assert sent(kept).aggregate == kept.aggregate


# Needs


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--aggregate.name filter --federation.clients 3",
         '"filter" needs 4 clients per round to filter, and there are 3: raise'),
        ("--aggregate.name undeclared --federation.clients 2",
         "needs 3 clients per round .it does not declare how few it has a meaning for., and"),
        ("--aggregate.name undeclared --federation.kind independent", "each is alone"),
        ("--aggregate.name filter --async_buffer.size 3", "needs 4 updates, and async_buffer.size"),
        ("--aggregate.name undeclared --privacy.secure --privacy.clip 1", "at single updates"),
        ("--aggregate.name undeclared --privacy.noise 1 --privacy.clip 1", "is no sum"),
    ],
)  # fmt: skip
def test_what_a_rule_from_outside_cannot_do_is_refused_before_the_run(flags, words):
    with pytest.raises(UserError, match=words) as found:
        resolve(CHANGES, flags.split())
    assert "\n" not in str(found.value)


def test_what_it_declares_is_let_through():
    private = "--privacy.secure --privacy.clip 1 --privacy.noise 1"
    assert resolve(CHANGES, f"--aggregate.name signs {private}".split()).rule.rule is signs
    assert not resolve(CHANGES, ["--aggregate.name", "signs"]).rule.robust
    assert resolve(CHANGES, ["--aggregate.name", "undeclared"]).rule.robust
    alone = ["--aggregate.name", "signs", "--federation.kind", "independent"]
    assert resolve(CHANGES, alone).rule.least(5) == 1


def test_values_and_rows_with_single_holders_need_a_rule_that_says_so():
    values = {"algorithm": {"name": "fedqhd", "features": 8}, "world": {"name": "cartpole-v1"}}
    with pytest.raises(UserError, match="is for changes, but fedqhd sends values"):
        build_algorithm(resolve(values, ["--aggregate.name", "undeclared"]))
    build_algorithm(resolve(values, ["--aggregate.name", "filter"]))
    ratings = {
        "algorithm": {"name": "fedrlhf"},
        "world": {"name": "movielens", "users": 40, "movies": 60, "ratings": 50, "least": 10},
        "federation": {"clients": 5},
    }
    with pytest.raises(UserError, match="looks at every number over all clients"):
        build_algorithm(resolve(ratings, ["--aggregate.name", "undeclared"]))
    build_algorithm(resolve(ratings, ["--aggregate.name", "signs"]))


def test_a_secure_rule_must_be_of_a_mean():
    with pytest.raises(UserError, match="declared secure, and so needs least=1"):
        rule(secure=True, least=3)(undeclared)


def test_who_does_not_declare_it_reads_no_weights():
    def weights(updates):
        return tree.map(lambda leaf: np.full_like(leaf, sum(w for _, w in updates)), updates[0][0])

    updates = stream(drawn(0, 3))  # that claim 1, 2 and 3
    assert set(vector(using(weights)(updates))) == {3.0}
    assert set(vector(using(weights, weighs=True)(updates))) == {6.0}


def test_a_secure_or_noisy_sum_goes_through_the_rule():
    chosen = resolve(CHANGES, ["--aggregate.name", "signs"]).rule
    settings = privacy.Settings(clip=100.0, noise=1e-9, seeded=True)
    mechanism = Mechanism(settings, Toy(), 1, 6, 6, lambda round: range(6))
    toy = Toy()
    broadcast = toy.broadcast(toy.init(0), 1)
    combine = mechanism.aggregator(rules.build(chosen, 6), broadcast, Exchange(1, 0, 3))
    updates = [({"a": np.full(3, x), "b": np.full((2, 2), -x, np.float32)}, 1.0) for x in (1, 2, 4)]
    found = combine(updates)
    assert found["a"].tolist() == [1.0] * 3
    assert found["b"].tolist() == [[-1.0] * 2] * 2


# A rule that fails


def test_too_few_are_as_below_the_quorum():
    chosen = resolve(CHANGES, ["--aggregate.name", "filter"]).rule
    with pytest.raises(TooFew, match="filter needs 4 updates, and 3 were usable"):
        rules.build(chosen, 5)(stream(drawn(0, 3)))
    with pytest.raises(QuorumLost, match="filter needs 4 updates, and 3 were usable"):
        play(Toy(3), mean=rules.build(chosen, 5), clients=3)


def broken(how):
    def rule(updates):
        first = {name: leaf.copy() for name, leaf in updates[0][0].items()}
        if how == "raises":
            return first["no such"]
        if how == "NaN":
            first["b"][0, 0] = np.nan
        if how == "infinite":
            first["b"] = np.full((2, 2), 1e39)  # in double precision a number
        if how == "shape":
            first["a"] = first["a"][:1]
        if how == "lacks":
            del first["a"]
        if how == "texts":
            first["a"] = np.array(["x", "y", "z"])
        return None if how == "none" else first

    return rule


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("raises", "the rule raised KeyError: 'no such'"),
        ("NaN", "the rule made b NaN or infinite of finite updates"),
        ("infinite", "the rule made b NaN or infinite of finite updates"),
        ("shape", r"the rule made a a float64 of shape \(1,\), and not float64 of \(3,\)"),
        ("lacks", "lacks, or adds, a"),
        ("texts", "the rule made a a str"),
        ("none", "the rule returned a NoneType, not named tensors"),
    ],
)
def test_a_broken_rule_ends_the_run_in_a_line_and_with_a_checkpoint(how, words):
    good, bad, store, calls = using(undeclared), using(broken(how)), Memory(), []

    def third_time(updates):
        calls.append(1)
        return (bad if len(calls) == 3 else good)(updates)

    with pytest.raises(UserError, match=f'aggregate.name = "mine": .*{words}') as found:
        play(Toy(), rounds=5, store=store, mean=third_time, more={"checkpoint_every": 5})
    assert "\n" not in str(found.value)
    assert store.last.round == 2  # the last that was good


def test_the_result_has_the_updates_dtypes_and_form():
    wide = using(lambda updates: tree.map(lambda leaf: leaf.astype(float).tolist(), updates[0][0]))
    update = {"x": {"y": np.ones(2, np.float32)}, "z": np.ones((), np.float16)}
    found = wide([(update, 1.0)] * 3)
    same(found, update)
    assert (found["x"]["y"].dtype, found["z"].dtype) == (np.float32, np.float16)


def test_what_an_engine_raises_is_not_the_rules_fault():
    def dies():
        yield {"x": np.ones(1)}, 1.0
        raise KeyError("the engine's")

    with pytest.raises(KeyError, match="the engine's"):
        using(undeclared)(dies())
