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

from fedrl.core.types import UserError


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


def neighbours(file: Path) -> dict[str, list[Path]]:
    """Modules beside a file that it imports, and that these do, wherever in their lines: by name
    their files, a package's `__init__` first. Python's own are none, whatever lies there."""
    found: dict[str, list[Path]] = {}
    waiting, folder = [file], file.resolve().parent
    while waiting:
        for name in {name.partition(".")[0] for name in _imported(waiting.pop())}:
            if name in found or name in sys.stdlib_module_names:
                continue
            plain, package = folder / f"{name}.py", folder / name / "__init__.py"
            if package.is_file():
                found[name] = [package, *sorted({*package.parent.rglob("*.py")} - {package})]
            elif plain.is_file():
                found[name] = [plain]
            waiting += found.get(name, [])
    return found


def _imported(file: Path) -> list[str]:
    """Names of the modules that a file imports; none of one that is no Python."""
    try:
        nodes = list(ast.walk(ast.parse(file.read_bytes())))
    except (SyntaxError, ValueError):
        return []
    plain = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    return plain + [
        node.module
        for node in nodes
        if isinstance(node, ast.ImportFrom) and node.module and not node.level
    ]


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


def without_folders(name: str) -> str:
    """A name of code as others may see it: of a file's, nothing of where it lies here."""
    return name.rpartition("/")[2]


def module_of_file(place: str) -> ModuleType:
    """The module of a file, once per process and content of its path.

    It finds modules beside it as a script does, after those that are installed.
    """
    path = Path(place).resolve()
    name = f"fedrl_file_{path.stem}_{sha256(str(path).encode()).hexdigest()[:8]}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        if str(path.parent) not in sys.path:
            sys.path.append(str(path.parent))
        try:
            spec.loader.exec_module(module)
            _require_neighbours(path)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


def _require_neighbours(path: Path) -> None:
    """Refuse a file that was given another module than the one beside it, of the same name."""
    for name, (first, *_) in neighbours(path).items():
        got = getattr(sys.modules.get(name), "__file__", None)
        if got is not None and Path(got).resolve() != first.resolve():
            raise UserError(
                f"{path.name} imports {name}, which lies beside it, and got {got}: give one of "
                "them another name"
            )


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
