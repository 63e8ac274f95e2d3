"""Registers the text worlds with Gymnasium after `import fedrl`, without importing Gymnasium.

Gymnasium finds third-party environments only if their package has registered them. Importing it
from here would slow every command down and load NumPy before the number of threads is set, so the
registration waits until somebody imports gymnasium, or happens at once if that is done already.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

ENVIRONMENTS = {"fedrl/Household-v0": "household", "fedrl/WebShop-v0": "webshop"}


def register(gymnasium: ModuleType) -> None:
    for name, maker in ENVIRONMENTS.items():
        if name not in gymnasium.registry:
            gymnasium.register(name, entry_point=f"fedrl.envs.gymnasium.text_worlds:{maker}")


class AfterGymnasium(MetaPathFinder):
    """Lets the import of gymnasium go its way, and registers when it is complete.

    Who only asks whether there is a gymnasium (`importlib.util.find_spec`) changes nothing.
    """

    def __init__(self) -> None:
        self._looking = False

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "gymnasium" or self._looking:
            return None
        self._looking = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._looking = False
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_register(module: ModuleType) -> None:
                execute(module)
                register(module)
                if self in sys.meta_path:
                    sys.meta_path.remove(self)

            spec.loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return spec


def install() -> None:
    if "gymnasium" in sys.modules:
        register(sys.modules["gymnasium"])
    else:
        sys.meta_path.insert(0, AfterGymnasium())
