"""Environments whose package is not installed: which one it is, and what installs it."""

from __future__ import annotations

from gymnasium.envs.registration import EnvSpec

EXTRAS = {"gymnasium.envs.box2d": "box2d", "gymnasium.envs.mujoco": "mujoco"}
"""By the module of an environment of Gymnasium's own, the extra of fedrl that has what it needs."""
NAMESPACES = {"ALE": ("ale-py", "ale_py")}
"""By the first part of an id, who registers such ids: the package to install, and its module."""


def of_namespace(name: str) -> str:
    """How an id gets registered whose first part, `ALE` of `ALE/Pong-v5`, is nobody's here."""
    package, module = NAMESPACES.get(name.partition("/")[0], ("", "package"))
    install = f"pip install {package}, and say" if package else "say its package, too:"
    return f'{install} "{module}:{name}", which imports what registers it'


def of_environment(spec: EnvSpec) -> str:
    """The command that installs what an environment of Gymnasium's own needs; of others none."""
    place = spec.entry_point if isinstance(spec.entry_point, str) else ""
    found = [extra for module, extra in EXTRAS.items() if place.startswith(module)]
    return f'pip install "fedrl[{found[0]}]"' if found else ""
