"""The layers' import rules, read from the source: downwards or within a folder, never sideways."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import fedrl

PACKAGE = Path(fedrl.__file__).parent
LAYERS = [
    {"types", "tree", "seeding", "threads", "registry", "plugin", "limits", "loopback", "files"},
    {"robust"},
    {"partition", "aggregate", "optimizers", "privacy", "wire", "datasets"},
    {"envs"},
    {"llm", "feedback"},
    {"algorithms", "play"},
    {"engines"},
    {"federation"},
    {"buffered"},
    {"experiment"},
    {"cli"},
    {"__main__"},
]
HEAVY = {"jax", "torch", "numba", "mujoco", "gymnasium", "flwr", "transformers", "matplotlib"}


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
        # The lowest layer is the vocabulary: its words may be built from each other.
        allowed = level(there) < level(here) or level(there) == level(here) == 0
        assert allowed, f"{here} must not import {module}"


def test_only_one_engine_knows_flower():
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        allowed = path.parent.name == "flower" or path.name in ("flower.py", "provenance.py")
        assert "flwr" not in text or allowed, path


def test_every_part_has_a_layer():
    parts = {p.relative_to(PACKAGE).with_suffix("").parts[0] for p in FILES}
    assert parts <= set().union(*LAYERS)


def test_the_core_imports_nothing_heavy():
    for layer in (*LAYERS[:3], {"federation"}, {"engines"}, {"cli"}):
        for path in FILES:
            if path.relative_to(PACKAGE).with_suffix("").parts[0] in layer:
                tree = ast.parse(path.read_text(encoding="utf-8"))
                for node in tree.body:
                    names = []
                    if isinstance(node, ast.Import):
                        names = [alias.name.split(".")[0] for alias in node.names]
                    elif isinstance(node, ast.ImportFrom):
                        names = [(node.module or "").split(".")[0]]
                    if path.parent.name == "flower":  # imported when it is asked for
                        names = [name for name in names if name != "flwr"]
                    assert not HEAVY & set(names), f"{path.name} imports {names} at its top"
