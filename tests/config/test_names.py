"""Names of methods and worlds from outside: one lookup, whoever reads them."""

from __future__ import annotations

import importlib
import pickle
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("jax", reason="needs the extra classic")

from support.packages import METHOD, install

import fedrl
import fedrl.algorithms.momentum  # an attribute of its package from here on, whatever ran before
from fedrl.algorithms import METHODS
from fedrl.cli.listing import list_
from fedrl.config import parts
from fedrl.config.help import show
from fedrl.config.loading import resolve
from fedrl.core.registry import fingerprint, only_packages
from fedrl.core.types import UserError

WORLD = {"name": "random_mdp", "horizon": 5}
SMALL = {"rounds": 2, "federation": {"clients": 2}, "world": WORLD}


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    points = {"fedrl.algorithms": {"doubled": "fedrl_doubled:Doubled"}}
    monkeypatch.syspath_prepend(install(tmp_path / "site", "fedrl-doubled", METHOD, points=points))
    yield "fedrl_doubled:Doubled"
    sys.modules.pop("fedrl_doubled", None)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(METHOD)
    return tmp_path / "mine.py"


def forget_files() -> None:
    for name in [name for name in sys.modules if name.startswith("fedrl_file_")]:
        del sys.modules[name]


def recipe(name: str, **settings: object) -> dict[str, object]:
    return {**SMALL, "algorithm": {"name": name, **settings}}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["doubled", "fedrl_doubled:Doubled"])
def test_an_installed_package_is_named_like_one_of_ours(installed: str, name: str, tmp_path: Path):
    run = fedrl.run(recipe(name, factor=3.0), out=tmp_path / "runs")
    assert run.config["algorithm"]["factor"] == 3.0
    assert run.config["algorithm"]["name"] == name
    (package,) = run.config["packages"]
    assert package.startswith("fedrl-doubled:0.1:")
    assert run.evaluate(episodes=1).mean == pytest.approx(run.rounds[2]["eval/return"])
    assert "doubled" in METHODS
    assert METHODS["doubled"].package == "fedrl-doubled"


@pytest.mark.slow
def test_what_it_computes_is_the_class_s_own(installed: str, tmp_path: Path):
    """With a factor of 1 it is PAvg; with 2 the server goes twice as far."""
    pavg = fedrl.run(recipe("pavg"), out=tmp_path / "a")
    same = fedrl.run(recipe(installed, factor=1.0), out=tmp_path / "b")
    other = fedrl.run(recipe(installed), out=tmp_path / "c")
    assert same.rounds == pavg.rounds
    assert other.rounds != pavg.rounds


def test_a_file_is_found_from_another_folder_when_the_run_goes_on(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    run = fedrl.run(recipe("./mine.py:Doubled"), out=tmp_path / "runs")
    assert run.path.name.startswith("Doubled-s0-")
    assert run.config["algorithm"]["name"] == f"{file}:Doubled"
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert fedrl.resume(run.path, rounds=3).round == 3
    assert "changed" not in (run.path / "log.txt").read_text()


def test_a_run_says_that_its_code_has_changed(file: Path, tmp_path: Path):
    run = fedrl.run(recipe("./mine.py:Doubled"), out=tmp_path / "runs")
    before = run.config["packages"]
    file.write_text(METHOD + "\n# another line\n")
    forget_files()
    fedrl.resume(run.path, rounds=3)
    assert "its code has changed: it began with mine.py:file:" in (run.path / "log.txt").read_text()
    again = fedrl.Run(run.path)
    assert again.config["packages"] != before


def test_workers_find_what_was_registered(tmp_path: Path, installed: str):
    """A configuration travels as its recipe, and what was registered by the place of its class."""
    thing = importlib.import_module("fedrl_doubled").Doubled
    try:
        assert fedrl.register(thing, name="mine") == "mine"
        config = fedrl.configure(recipe("mine"))
        METHODS.registered.clear()
        data = pickle.dumps(config)  # nothing is registered: nothing travels
        with pytest.raises(UserError, match=r"algorithm.name is 'mine'; "):
            pickle.loads(data)
        fedrl.register(thing, name="mine")
        data = pickle.dumps(config)
        METHODS.registered.clear()
        assert pickle.loads(data) == config
    finally:
        METHODS.registered.clear()


@pytest.mark.slow
def test_workers_compute_the_same(file: Path, tmp_path: Path):
    here = fedrl.run(recipe("./mine.py:Doubled"), out=tmp_path / "a")
    there = fedrl.run(recipe("./mine.py:Doubled"), out=tmp_path / "b", engine="workers", workers=1)
    assert there.rounds == here.rounds


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("class Doubled: pass", "has no Settings"),
        (METHOD.replace("frozen=True", ""), "frozen"),
        (METHOD.replace("factor: float = 2.0", "factor: float"), "default"),
        (METHOD.replace('kinds = ("control",)', "kinds = ()"), "has no kinds"),
        (METHOD.replace("class Doubled", "class Other"), "has no Doubled"),
        (
            METHOD.replace("factor: float = 2.0", "factor: list = None"),
            "factor .* is a list; a recipe",
        ),
        (
            METHOD.replace("(Momentum)", "(PolicyGradient)").replace(
                "Momentum\nfrom", "Momentum, PolicyGradient\nfrom"
            ),
            "must say direction",
        ),
        ("import not_there_at_all", "needs the package not_there_at_all: pip install"),
        (
            "import not_there_at_all, os\nfrom nor_this.part import x\nimport numpy",
            "needs the packages not_there_at_all, nor_this: pip install not_there_at_all nor_this$",
        ),
        (
            METHOD.replace("class Settings(Base):", "class Settings:"),
            r"Settings lack .*…, which Momentum reads: class Settings\(Momentum.Settings\)$",
        ),
    ],
)
def test_what_a_class_lacks_is_one_line(file: Path, source: str, why: str):
    file.write_text(source)
    forget_files()
    with pytest.raises((UserError, TypeError), match=why):
        resolve(recipe("./mine.py:Doubled"))


@pytest.mark.parametrize("name", ["./absent.py:Doubled", "a b:C", ":C", "os.path:", "../x:Y"])
def test_a_name_that_leads_nowhere_is_one_line(name: str, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"algorithm.name is"):
        resolve(recipe(name))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("./mine.py", r"say what in that file: ./mine.py:Name"),
        ("mine:Doubled", r"for the file here say ./mine.py:Doubled"),
        ("./yours.py:Doubled", "no file ./yours.py in .*, where fedrl was started"),
    ],
)
def test_a_file_that_is_named_wrongly_says_how(file: Path, name: str, why: str):
    with pytest.raises(UserError, match=why):
        resolve(recipe(name))


def test_settings_without_a_docstring_show_no_signature(
    file: Path, capsys: pytest.CaptureFixture[str]
):
    show(resolve(recipe("./mine.py:Doubled")), "fedrl run mine")
    shown = capsys.readouterr().out
    assert "[algorithm]" in shown
    assert "Settings(" not in shown
    assert "./file.py:Name" in " ".join(shown.split())


def test_settings_need_no_name_of_their_own(file: Path):
    file.write_text(
        METHOD
        + '''
class Nameless:
    """Without, and on no base whose settings it would need."""

    kinds = ("control",)

    @dataclass(frozen=True)
    class Settings:
        # A number.
        lr: float = 0.5
'''
    )
    forget_files()
    config = resolve(recipe("./mine.py:Nameless"))
    assert (config.algorithm.name, config.algorithm.lr) == ("./mine.py:Nameless", 0.5)
    assert pickle.loads(pickle.dumps(config)) == config


@pytest.mark.slow
def test_within_a_node_names_lead_to_what_its_owner_allows(installed: str, file: Path):
    with only_packages(["fedrl_Doubled"]):  # as pip compares names
        assert parts.method("doubled").entry.package == "fedrl-doubled"
    with only_packages([]):
        assert parts.method("pavg").entry.package == "fedrl"
        for name in (installed, "doubled", "pytest:main", "os:system"):
            with pytest.raises(UserError, match=r"has not allowed|no package that is installed"):
                parts.method(name)
        with pytest.raises(UserError, match="a node takes installed packages only"):
            parts.method("./mine.py:Doubled")
    assert "fedrl_doubled" in sys.modules


@pytest.mark.slow
def test_within_a_node_nothing_that_is_not_allowed_is_imported(installed: str):
    sys.modules.pop("fedrl_doubled", None)
    with only_packages([]), pytest.raises(UserError):
        parts.method(installed)
    assert "fedrl_doubled" not in sys.modules


@pytest.mark.parametrize(
    "name",
    ["fedrl.core.registry:os.system", "fedrl.core.registry:os", "fedrl.algorithms:momentum"],
)
@pytest.mark.parametrize("table", ["algorithm", "world", "aggregate"])
def test_no_name_leads_through_a_module_that_is_only_imported_there(name: str, table: str):
    with pytest.raises(UserError, match="leads to the module"):
        parts.find(table, name)


@pytest.mark.parametrize(
    "name",
    [
        "fedrl.__main__:main",
        "fedrl.api:run",
        "fedrl.engines.flower.adapter:OFFLINE",
        "fedrl.envsx:World",
        "gymnasium.utils.play:play",
        "fedrl:run",
    ],
)
@pytest.mark.parametrize("table", ["algorithm", "world", "aggregate", "attack"])
def test_within_a_node_names_lead_only_where_the_things_of_recipes_are(name: str, table: str):
    with only_packages([]), pytest.raises(UserError, match="a node looks for nothing there"):
        parts.TABLES[table].find(name)


def test_what_a_script_registered_is_known_by_its_lines(tmp_path: Path, monkeypatch):
    """Else all scripts' code would have one hash, and no resumed run would say that it changed."""
    found = set()
    for number, factor in enumerate(("2.0", "3.0")):
        file = tmp_path / f"script{number}.py"
        file.write_text(METHOD.replace("factor: float = 2.0", f"factor: float = {factor}"))
        script = ModuleType("a_script")
        script.__file__ = str(file)
        monkeypatch.setitem(sys.modules, "a_script", script)
        exec(compile(file.read_text(), file, "exec"), vars(script))
        fedrl.register(script.Doubled, "scripted")
        found.add(fingerprint(METHODS.registered.pop("scripted")))
    assert len(found) == 2
    assert all(one.startswith("a_script:script:") for one in found)


def test_what_a_run_does_not_use_is_not_sent_to_its_workers(installed: str):
    """A class within a function cannot be sent at all, and stopped every run with workers."""
    base = parts.method("doubled").maker

    class Hidden(base):
        pass

    fedrl.register(Hidden, "hidden")
    try:
        config = resolve(recipe("pavg"))
        assert pickle.loads(pickle.dumps(config)) == config
        with pytest.raises((AttributeError, pickle.PicklingError)):
            pickle.dumps(resolve(recipe("hidden")))
    finally:
        del METHODS.registered["hidden"]


def test_a_plain_function_cannot_be_registered():
    """It could be a rule, an attack or a reward, and was told that it is no world."""
    with pytest.raises(UserError, match=r"halved is a plain function: declare a rule by @fedrl"):
        fedrl.register(lambda updates: updates, "halved")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gone", "fedrl_gone:Gone"])
def test_a_run_whose_package_is_gone_says_which(name: str):
    """Resumed, evaluated or reported: the nearest other name would be no help."""
    used = {"packages": ["fedrl-gone:0.1:0123456789abcdef", "mine.py:file:0123456789abcdef"]}
    with pytest.raises(
        UserError, match=r"\nfedrl-gone 0.1 is not installed here, and the run used"
    ):
        resolve(recipe(name) | used)
    with pytest.raises(UserError) as without:
        resolve(recipe(name))
    assert "the run used it" not in str(without.value)


@pytest.mark.parametrize("table", ["algorithm", "world"])
def test_a_run_whose_name_was_registered_elsewhere_says_so(table: str):
    """The nearest other name would be another thing; the module says whose script it was."""
    used = {"packages": ["__main__:script:0123456789abcdef"]}
    named = {table: {"name": "Pavgg" if table == "algorithm" else "cartpol"}}
    with pytest.raises(UserError) as told:
        resolve(SMALL | named | used)
    first, second = str(told.value).splitlines()
    assert "which a program had registered (fedrl.register, of __main__)" in first
    assert "register it again and call fedrl.resume" in first
    assert "package.module:Name or ./file.py:Name" in second
    assert "did you mean" not in str(told.value)
    with pytest.raises(UserError, match="did you mean"):
        resolve(SMALL | named)
    with pytest.raises(UserError, match="did you mean"):  # known, but another key is wrong
        resolve(recipe("pavg", lrr=1.0) | used)


def share(site: Path, package: str, part: str) -> None:
    """A distribution with one module of the namespace `shared_names`."""
    (site / "shared_names").mkdir(parents=True, exist_ok=True)
    (site / "shared_names" / f"{part}.py").write_text(METHOD)
    info = site / f"{package.replace('-', '_')}-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 0.1\n")
    (info / "RECORD").write_text(f"shared_names/{part}.py,,\n")


@pytest.mark.slow
def test_of_a_namespace_each_package_is_allowed_by_itself(tmp_path: Path, monkeypatch):
    """Several distributions have modules under one first name; an owner allows one of them."""
    share(tmp_path, "a-trusted", "good")
    share(tmp_path, "z-other", "bad")
    share(tmp_path, "0-first", "worse")
    monkeypatch.syspath_prepend(tmp_path)
    with only_packages(["a-trusted"]):
        assert METHODS.find("shared_names.good:Doubled").package == "a-trusted"
        for name in ("shared_names.bad:Doubled", "shared_names.worse:Doubled", "shared_names:D"):
            with pytest.raises(UserError, match="has not allowed"):
                METHODS.find(name)
    assert METHODS.find("shared_names.bad:Doubled").package == "z-other"


@pytest.mark.slow
def test_a_name_that_two_packages_offer_is_nobody_s(installed: str, tmp_path: Path, monkeypatch):
    """Which one is found first depends on folders and machines."""
    points = {
        "fedrl.algorithms": {"doubled": "fedrl_twice:Doubled [extra]", "pavg": "fedrl_twice:P"}
    }
    monkeypatch.syspath_prepend(install(tmp_path / "two", "fedrl-twice", METHOD, points=points))
    line = "fedrl-doubled and fedrl-twice offer: say fedrl_doubled:Doubled or fedrl_twice:Doubled"
    with pytest.raises(UserError, match=line):
        METHODS.find("doubled")
    with only_packages(["fedrl-twice"]):
        assert METHODS.find("doubled").package == "fedrl-twice"
    assert not METHODS.find("pavg").outside
    assert {"fedrl_doubled:Doubled", "fedrl_twice:Doubled", "fedrl_twice:P"} < set(METHODS)
    assert "doubled" not in METHODS
    assert list_([]) == 0


def test_the_list_says_where_things_come_from(installed: str, capsys: pytest.CaptureFixture[str]):
    assert list_([]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "  doubled" in line]
    assert "made by a test" in line
    assert "[fedrl-doubled 0.1]" in line
