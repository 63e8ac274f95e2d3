"""What `fedrl doctor` finds."""

from __future__ import annotations

import json
import os
import shutil
from types import SimpleNamespace

import pytest

import fedrl
from fedrl.api import diagnosis as looking
from fedrl.cli import call
from fedrl.runs import provenance


@pytest.mark.slow
def test_it_names_versions_extras_data_and_space(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("FEDRL_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert call(["doctor", "--out", str(tmp_path), "--json"]) == 0
    found = {one["about"]: one for one in json.loads(capsys.readouterr().out)}
    assert found["fedrl"]["text"].startswith(fedrl.__version__)
    assert "numba" in found["[classic]"]["text"]
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert f", {memory / 1e9:.1f} GB, " in found["machine"]["text"]  # as a dry run counts it
    assert found["movielens"]["remedy"] == "fedrl data movielens"
    assert found["disk"]["state"] == "good"
    assert not (set(found) & {"[all]", "[dev]"})
    assert call(["doctor", "--out", str(tmp_path)]) == 0
    assert "→ fedrl data movielens" in capsys.readouterr().out


def test_extras_follow_those_that_they_name():
    found = looking.extras()
    assert any(need.startswith("jax") for need in found["mujoco"])
    assert any(need.lower().startswith("box2d") for need in found["box2d"])
    assert not any(need.startswith("fedrl[") for needs in found.values() for need in needs)


def test_a_missing_package_and_a_full_disk_are_said_with_what_helps(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(looking, "_version", lambda name: None if name == "numba" else "1")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1e9))
    assert call(["doctor", "--out", str(tmp_path / "not" / "yet")]) == 1
    told = capsys.readouterr().out
    assert "not installed: numba" in told
    assert '→ pip install -c constraints.txt -e ".[classic]"' in told  # tests run in a checkout
    assert "✗ disk" in told
    assert not (tmp_path / "not").exists()


def test_without_a_checkout_an_extra_is_installed_by_its_name(tmp_path, monkeypatch):
    monkeypatch.setattr(fedrl, "__file__", str(tmp_path / "lib" / "fedrl" / "__init__.py"))
    assert provenance.installs("serve") == 'pip install "fedrl[serve]"'
