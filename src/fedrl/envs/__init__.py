"""Worlds. A new one is a module with `Settings` and `World`, and a line in this table."""

from __future__ import annotations

from fedrl.core.registry import Entry, Table

_BUILTIN = {
    "random_mdp": Entry(
        "fedrl.envs.control.random_mdp",
        "classic",
        "random MDPs with exact solutions, three kernels",
        kinds=("control", "tabular"),
    ),
    "cartpole": Entry(
        "fedrl.envs.control.cartpole",
        "classic",
        "CartPole, compiled; clients differ in start and physics",
    ),
    "halfcheetah": Entry(
        "fedrl.envs.control.mujoco",
        "mujoco",
        "MuJoCo HalfCheetah; clients differ in start and body",
    ),
    "walker2d": Entry(
        "fedrl.envs.control.mujoco", "mujoco", "MuJoCo Walker2d; clients differ in start and body"
    ),
    "hopper": Entry(
        "fedrl.envs.control.mujoco", "mujoco", "MuJoCo Hopper; clients differ in start and body"
    ),
    **{
        name: Entry(
            "fedrl.envs.discrete.worlds",
            extra,
            f"Gymnasium's {title}{how}",
            kinds=("discrete", "control"),
        )
        for name, title, how, extra in (
            ("cartpole-v1", "CartPole-v1", ", compiled", "classic"),
            ("acrobot-v1", "Acrobot-v1", ", compiled", "classic"),
            ("mountaincar-v0", "MountainCar-v0", ", compiled", "classic"),
            ("lunarlander-v3", "LunarLander-v3", " by envpool or Gymnasium", "box2d"),
        )
    },
    "gymnasium": Entry(
        "fedrl.envs.gymnasium.world",
        "gym",
        "any Gymnasium environment by its id; clients differ in keywords and attributes",
        kinds=("control", "discrete"),
    ),
    "household": Entry(
        "fedrl.envs.household.world",
        "gym",
        "ALFWorld's text games, generated or genuine",
        kinds=("text",),
    ),
    "webshop": Entry(
        "fedrl.envs.webshop.shop",
        "gym",
        "WebShop: search, choose, buy; generated or genuine products",
        kinds=("text",),
    ),
    "prompts": Entry(
        "fedrl.envs.prompts.world",
        "llm",
        "prompts of your own with a reward function: one answer is an episode",
        kinds=("text",),
    ),
    "tools": Entry(
        "fedrl.envs.tools.world",
        "llm",
        "prompts whose answers may call Python functions of your own, over several turns",
        kinds=("text",),
    ),
    "openenv": Entry(
        "fedrl.envs.openenv.world",
        "openenv",
        "an environment of OpenEnv, played on its server",
        kinds=("text",),
    ),
    "verifiers": Entry(
        "fedrl.envs.verifiers.world",
        "verifiers",
        "an environment of the package verifiers, played by its own loop",
        kinds=("text",),
    ),
    "movielens": Entry(
        "fedrl.envs.movielens.world",
        "classic",
        "movie ratings, a user per client; generated or genuine MovieLens",
        kinds=("ratings",),
    ),
    "imdb": Entry(
        "fedrl.envs.imdb.world",
        "llm",
        "movie reviews to write on; generated or genuine IMDb",
        kinds=("reviews",),
    ),
}

WORLDS = Table("worlds", "world.name", _BUILTIN)
