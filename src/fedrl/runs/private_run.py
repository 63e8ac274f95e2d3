"""The parts of a private run: clients that protect themselves, the mechanism, and its ledger."""

from __future__ import annotations

import os
import secrets
from functools import partial
from pathlib import Path

from fedrl.config.schema import Config
from fedrl.core.atomic_files import OWNER_ONLY, write_atomically
from fedrl.core.types import Algorithm, Metrics, UserError
from fedrl.federation.client_sampling import first_cohort
from fedrl.privacy import accounting, secure_aggregation
from fedrl.privacy.mechanism import EXCHANGES, Mechanism


class Ledger:
    """How often clients were asked, on disk before each time: what a crash must not make forget.

    Only noise that cannot be repeated needs it: asked again after a crash, a client's answer comes
    with new noise, and both were seen.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "exchanges.txt"

    def read(self) -> int:
        if not os.path.lexists(self.path):
            return 0
        try:
            text = self.path.read_bytes().decode("ascii", "replace").strip()
        except OSError as error:
            raise UserError(f"cannot read {self.path}: {error.strerror}") from error
        if not (text.isascii() and text.isdigit()):
            raise UserError(f"{self.path}: {text[:40]!r} is no number of exchanges")
        return int(text)

    def write(self, count: int) -> None:
        try:
            write_atomically(self.path, f"{count}\n".encode(), OWNER_ONLY)
        except OSError as error:
            raise UserError(f"cannot write to {self.path}: {error.strerror}") from error


def secret(folder: Path) -> int:
    """What cohorts are drawn from where nobody may guess them; the run's folder keeps it.

    The run's own seed would not do: it is in the recipe that nodes get, and is 0 if nobody says.
    """
    path = folder / "cohorts.key"
    try:
        if not os.path.lexists(path):
            write_atomically(path, f"{secrets.token_hex(16)}\n".encode(), OWNER_ONLY)
        return int(path.read_text(encoding="utf-8"), 16)
    except OSError as error:
        raise UserError(
            f"cannot keep the secret of the cohorts: {path}: {error.strerror}"
        ) from error
    except ValueError as error:
        raise UserError(f"{path} is damaged: what it held cannot be made again") from error


def check_books(config: Config, folder: Path, totals: Metrics) -> None:
    """Refuse a run whose count or secret is damaged or lost, before any file of it is changed.

    The count is on disk before each exchange, so that no checkpoint can know of more.
    """
    if not config.privacy.noise or config.privacy.seeded:
        return
    ledger, exchanges = Ledger(folder), totals.get(EXCHANGES, 0)
    if (found := ledger.read()) < exchanges:
        raise UserError(
            f"{ledger.path} has {found} of the {exchanges:.0f} exchanges that the checkpoint "
            "remembers: put it back, or ε would be too small"
        )
    if secret_cohorts(config) and os.path.lexists(folder / "cohorts.key"):
        secret(folder)


def check_packages(config: Config) -> None:
    """Say what is not installed before there is a folder."""
    if config.privacy.noise:
        accounting.library()
    if config.privacy.secure:
        secure_aggregation.check_installed()


def secret_cohorts(config: Config) -> bool:
    """Whether ε counts on nobody knowing who was asked: on amplification by sampling."""
    settings = config.privacy
    central = settings.where == "central" and not settings.secure
    return settings.noise > 0 and central and not settings.seeded


def mechanism(config: Config, algorithm: Algorithm, folder: Path | None) -> Mechanism | None:
    """What the round loop does for privacy; `folder` is where exchanges are counted."""
    settings = config.privacy
    if not settings.on:
        return None
    counted = settings.noise and not settings.seeded and folder is not None
    amplified = counted and secret_cohorts(config)
    return Mechanism(
        settings,
        algorithm,
        config.seed,
        config.federation.clients,
        config.federation.clients_per_round,
        partial(first_cohort, config.federation, config.seed),
        Ledger(folder) if counted and folder is not None else None,
        summed=config.engine == "flower",
        cohorts=secret(folder) if amplified and folder is not None else None,
    )


def outlook(config: Config, algorithm: Algorithm) -> list[str]:
    """What all rounds will have cost, if none has to be tried again."""
    found = mechanism(config, algorithm, None)
    if found is None or not config.privacy.noise:
        return []
    exchanges = config.rounds + (1 if algorithm.initial_exchange else 0)
    epsilon = found.epsilon(config.rounds, exchanges)
    return [f"privacy: ε = {epsilon:.4g} at δ = {found.delta:.2g} after all rounds"]
