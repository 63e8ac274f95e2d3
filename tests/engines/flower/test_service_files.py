"""The files that run a node and a coordinator as services: systemd reads them, and their words are
those of our commands."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.repository import ROOT

DEPLOY = ROOT / "deploy"
UNITS = sorted(DEPLOY.glob("*.service"))


def test_there_is_one_for_each_side():
    assert [unit.name for unit in UNITS] == ["fedrl-coordinator@.service", "fedrl-node@.service"]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_finds_nothing_wrong(unit: Path, tmp_path: Path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze")
    text = unit.read_text().replace("/opt/fedrl/bin/fedrl", sys.executable)
    place = tmp_path / unit.name.replace("@", "@north")
    place.write_text(text)
    found = subprocess.run(
        ["systemd-analyze", "verify", str(place)], capture_output=True, text=True, timeout=60
    )
    assert (found.returncode, unit.name.partition("@")[0] in found.stderr) == (0, False)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_two_federations_share_nothing(unit: Path):
    """All that a service writes is under its own name."""
    text = unit.read_text()
    places = re.findall(r"^(?:EnvironmentFile|StateDirectory|WorkingDirectory)=(.*)$", text, re.M)
    assert len(places) == 3
    assert all("%i" in place for place in places)
    assert "--folder /var/lib/fedrl/" in text


def test_images_and_services_call_commands_that_there_are():
    pytest.importorskip("flwr", reason="needs the extra flower")
    from fedrl.cli.flower import HELP

    said = " ".join(file.read_text() for file in DEPLOY.iterdir() if file.is_file())
    for part in re.findall(r'fedrl flower (\w+)|"flower", "(\w+)"', said):
        assert f"fedrl flower {''.join(part)}" in HELP
    targets = re.findall(r"^FROM fedrl AS (\w+)$", (DEPLOY / "Containerfile").read_text(), re.M)
    assert targets == ["node", "coordinator"]
    assert not re.search(r"COPY .*(key|pem|secret)", said)  # nothing private is in an image
