"""Code of others as files: which they are, what they hold, and a file as a module."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import sys
import traceback
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any


def python_files(module: str) -> list[Path]:
    """The Python files of a module's package, or its own; nothing is imported."""
    try:
        spec = importlib.util.find_spec(module.partition(".")[0])
    except (ImportError, ValueError):  # such as of __main__
        spec = None
    if spec is None:
        return []
    if folders := spec.submodule_search_locations:
        return sorted(file for folder in folders for file in Path(folder).rglob("*.py"))
    return [Path(spec.origin)] if spec.has_location and spec.origin else []


def files_digest(files: list[Path]) -> str:
    total = sha256()
    for file in files:
        total.update(file.name.encode() + b"\0" + file.read_bytes())
    return total.hexdigest()[:16]


def source_digest(thing: Any) -> str:
    """Of what was registered in a script or a notebook: its own lines, as far as they are known."""
    try:
        text = inspect.getsource(inspect.unwrap(thing))
    except (OSError, TypeError):
        text = ""
    return sha256(text.encode()).hexdigest()[:16]


def module_of_file(place: str) -> ModuleType:
    """The module of a file, once per process and content of its path."""
    path = Path(place).resolve()
    name = f"fedrl_file_{path.stem}_{sha256(str(path).encode()).hexdigest()[:8]}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


def absent_imports(error: ModuleNotFoundError) -> list[str]:
    """Packages that the file with the failed import asks for at its top and that are not here."""
    files = [Path(frame.filename) for frame in traceback.extract_tb(error.__traceback__)]
    asking = [file for file in files if file.is_file()]  # none of the import system's own
    if not asking:
        return []
    asked: list[str] = []
    for node in ast.parse(asking[-1].read_bytes()).body:
        if isinstance(node, ast.Import):
            asked += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            asked.append(node.module)
    tops = dict.fromkeys(name.partition(".")[0] for name in asked)
    return [name for name in tops if not _is_here(name)]


def _is_here(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False
