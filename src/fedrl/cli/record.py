"""`fedrl record`: an animation of what a run has learned."""

from pathlib import Path

from fedrl.cli.parser import Parser

RECORD = """\
Play episodes with the policy of a run's newest checkpoint, in one client's environment, and write
them as an animation. For control worlds: CartPole, Acrobot, MountainCar, LunarLander, MuJoCo's
bodies, whatever of Gymnasium has pictures, and worlds of your own whose environments have a method
render() or frame()."""


def record(argv: list[str]) -> int:
    """An animation of a run's policy."""
    parser = Parser("fedrl record", description=RECORD)
    parser.add_argument("run", type=Path, metavar="RUN", help="the run's folder")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="a .gif (RUN/episode.gif), or an .mp4"
    )
    parser.add_argument("--client", type=int, default=0, help="whose environment (0)")
    parser.add_argument("--episodes", type=int, default=1, help="one after the other (1)")
    parser.add_argument("--seed", type=int, default=0, help="of the first one (0)")
    parser.add_argument(
        "--greedy", action="store_true", help="the likeliest action, where a policy draws them"
    )
    parser.add_argument(
        "--own", action="store_true", help="what the client itself held after its last round"
    )
    asked = parser.parse_args(argv)
    from fedrl import api

    done = api.Run(asked.run).record(
        asked.out,
        client=asked.client,
        episodes=asked.episodes,
        seed=asked.seed,
        own=asked.own,
        greedy=asked.greedy,
    )
    shown = zip(done.returns, done.steps, strict=True)
    print("; ".join(f"return {total:.4g} in {steps} steps" for total, steps in shown))
    print(f"animation: {done.path}")
    return 0
