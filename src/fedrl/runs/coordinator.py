"""Which coordinator a run on Flower is of, by the digest of its CA's key: in its meta.json.

A run knows its connection by a name, and a name may be another coordinator's later: then it must
neither go on there nor be signed there, unless somebody says so.
"""

from __future__ import annotations

from pathlib import Path

from fedrl.config.schema import Config
from fedrl.core.types import UserError
from fedrl.engines.flower import connection as connections
from fedrl.runs.run_dir import RunDir

KEY = "coordinator"


def connected(config: Config) -> str:
    """Whose the run's connection is now; empty where there is none, or it has no CA."""
    if config.engine != "flower" or not (ca := connections.find(config.connection).ca):
        return ""
    from fedrl.engines.flower.keys import coordinator_digest

    return coordinator_digest(Path(ca))


def kept(run: Path) -> str:
    """Whose nodes it trained with; empty of one on a single machine, or that does not know."""
    found = RunDir(run).read_meta().get(KEY)
    return found if isinstance(found, str) else ""


def require_same(config: Config, run: Path) -> None:
    """For a run that goes on, and was not told where."""
    known, now = kept(run), connected(config)
    if known and known != now:
        raise UserError(
            f"connection {config.connection} is now of {words(now)}, and {run} is of coordinator "
            f"{known[:16]}: say --connection NAME, of its own, or of the other if that is meant"
        )


def words(digest: str) -> str:
    return f"coordinator {digest[:16]}" if digest else "one without a CA"
