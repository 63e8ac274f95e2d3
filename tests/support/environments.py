"""Virtual environments with packages of their own, made without the network.

They see the packages of the environment that runs the tests, and what was installed into them.
"""

from __future__ import annotations

import os
import shutil
import site
import subprocess
import sys
import venv
from importlib.util import find_spec
from pathlib import Path

import pytest

import fedrl
from support.repository import ROOT

EXAMPLES = ROOT / "examples"
needs_pip = pytest.mark.skipif(
    not all(map(find_spec, ("pip", "setuptools"))), reason="installs packages with pip, setuptools"
)


def make(folder: Path) -> Path:
    """A new environment; its Python."""
    venv.create(folder, with_pip=False, symlinks=True)
    places = [str(Path(fedrl.__file__).parents[1]), *site.getsitepackages()]
    places += [path for path in sys.path if path.endswith("site-packages") and path not in places]
    packages(folder).joinpath("_parent.pth").write_text("\n".join(places) + "\n")
    return folder / "bin" / "python"


def packages(folder: Path) -> Path:
    (found,) = folder.glob("lib/python3*/site-packages")
    return found


def install(folder: Path, example: str, version: str = "", scratch: Path | None = None) -> None:
    """Install a package of `examples/` with pip, in another version if one is named."""
    source = (scratch or folder) / f"source-{example}-{version}"
    ignored = shutil.ignore_patterns("build", "*.egg-info", "__pycache__")
    shutil.copytree(EXAMPLES / example, source, ignore=ignored)
    if version:
        about = source / "pyproject.toml"
        about.write_text(about.read_text().replace('version = "0.1.0"', f'version = "{version}"'))
    install_from(folder, source)


def install_from(folder: Path, source: Path) -> None:
    """Install the package in this folder with pip."""
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation",
         "--no-index", "--target", str(packages(folder)), str(source)],
        check=True, capture_output=True, text=True,
    )  # fmt: skip


def run_own_tests(python: Path, example: str, folder: Path) -> None:
    """The tests that a package of `examples/` has, in an environment, from another folder."""
    done = subprocess.run(
        [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull,
         "--rootdir", str(folder), str(EXAMPLES / example / "tests")],
        cwd=folder, capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
