"""The documentation, built as a site."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.repository import ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The folder of the site; that it builds without a warning is asserted on the way."""
    if any(importlib.util.find_spec(name) is None for name in ("mkdocs", "material")):
        pytest.skip('needs the extra docs: pip install "fedrl[docs]"')
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder
