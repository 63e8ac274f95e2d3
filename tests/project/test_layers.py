"""The layers' import rules, read from the source: downwards or within a folder, never sideways."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from support.repository import ROOT

import fedrl

PACKAGE = Path(fedrl.__file__).parent
LAYERS = [
    {"core"},
    {"partition", "aggregation", "privacy", "datasets"},
    {"envs"},
    {"llm"},
    {"feedback"},
    {"algorithms", "play"},
    {"clients"},
    {"federation"},
    {"config"},
    {"engines"},
    {"runs"},
    {"report"},
    {"analysis"},
    {"api"},
    {"cli"},
    {"__main__"},
]
FAMILIES = {"momentum", "qhd", "fedagent", "fedrlhf"}
ALGORITHMS = {p.name for p in (PACKAGE / "algorithms").iterdir() if (p / "__init__.py").is_file()}
HEAVY = {"jax", "torch", "numba", "mujoco", "gymnasium", "flwr", "transformers", "matplotlib"}
LIGHT = {"core", "partition", "aggregation", "privacy", "datasets"} | {
    "clients",
    "federation",
    "engines",
    "config",
    "api",
    "cli",
}
"""Folders none of whose modules loads a heavy package when it is imported."""


def part_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def level(part: str) -> int:
    return next(i for i, layer in enumerate(LAYERS) if part in layer)


def imports(path: Path) -> set[str]:
    """Modules of ours that a file imports, wherever in the file."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in found if name.split(".")[0] == "fedrl"}


FILES = sorted(p for p in PACKAGE.rglob("*.py") if p != PACKAGE / "__init__.py")


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_down_the_layers(path: Path):
    here = path.relative_to(PACKAGE).with_suffix("").parts[0]
    for module in imports(path):
        there = part_of(module)
        if there in ("", "__version__") or there == here:
            continue
        assert level(there) < level(here), f"{here} must not import {module}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_families_of_methods_do_not_know_each_other(path: Path):
    """What two of them need lies beside their folders, in `algorithms/` itself."""
    parts = path.relative_to(PACKAGE).parts
    if parts[0] == "algorithms" and parts[1] in FAMILIES:
        for module in imports(path):
            names = module.split(".")
            if names[1:2] == ["algorithms"] and len(names) > 2:
                assert names[2] not in FAMILIES - {parts[1]}, f"{path} must not import {module}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_the_classics_stand_on_the_families(path: Path):
    """Nothing in `algorithms` imports them, and the bases do not know each other."""
    folder = path.relative_to(PACKAGE).parts[:2]
    above = {("algorithms", name): {"classics"} for name in ALGORITHMS - {"classics"}} | {
        ("algorithms", "policy_gradient"): {"classics", "q_learning", *FAMILIES},
        ("algorithms", "q_learning"): {"classics", "policy_gradient", *FAMILIES - {"qhd"}},
    }
    found = {tuple(module.split(".")[1:3]) for module in imports(path)}
    assert not found & {("algorithms", name) for name in above.get(folder, set())}, path


ADAPTER = PACKAGE / "engines" / "flower" / "adapter"


def test_only_the_adapter_knows_flower():
    named = {path for path in FILES if "flwr" in path.read_text(encoding="utf-8")}
    elsewhere = {path for path in named if path.parent != ADAPTER}
    assert elsewhere == {PACKAGE / "runs" / "provenance.py"}  # which only names the package
    assert named > elsewhere


def test_every_part_has_a_layer():
    parts = {p.relative_to(PACKAGE).with_suffix("").parts[0] for p in FILES}
    assert parts <= set().union(*LAYERS)


def test_the_package_does_not_import_its_reproductions():
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                assert (node.module or "").split(".")[0] != "reproductions", path
    assert (ROOT / "reproductions").is_dir()


def test_the_core_imports_nothing_heavy():
    for path in FILES:
        if path.relative_to(PACKAGE).with_suffix("").parts[0] in LIGHT:
            tree = ast.parse(path.read_text(encoding="utf-8"))
            for node in tree.body:
                names = []
                if isinstance(node, ast.Import):
                    names = [alias.name.split(".")[0] for alias in node.names]
                elif isinstance(node, ast.ImportFrom):
                    names = [(node.module or "").split(".")[0]]
                if path.parent == ADAPTER:  # imported when it is asked for
                    names = [name for name in names if name != "flwr"]
                assert not HEAVY & set(names), f"{path.name} imports {names} at its top"
