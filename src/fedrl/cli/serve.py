"""`fedrl serve`: a run's language model behind an OpenAI-compatible endpoint."""

from pathlib import Path

from fedrl.cli.parser import Parser

SERVE = """\
Put what a run's newest checkpoint has learned behind an OpenAI-compatible endpoint of this machine:
a language agent, or a model that writes texts. The server is transformers' own or vLLM's; the
exported model is kept in the run's folder, under exports/. Ctrl-C stops it."""


def serve(argv: list[str]) -> int:
    """A run's model as an endpoint."""
    parser = Parser("fedrl serve", description=SERVE)
    parser.add_argument("run", type=Path, metavar="RUN", help="the run's folder")
    parser.add_argument(
        "--server", default="auto", metavar="NAME",
        help="transformers, vllm, or auto: vllm where it is installed and there is a GPU (default)",
    )  # fmt: skip
    parser.add_argument(
        "--host", default="127.0.0.1", help="where it listens (127.0.0.1: this machine alone)"
    )
    parser.add_argument("--port", type=int, default=8000, help="0 is any free one (8000)")
    asked = parser.parse_args(argv)
    from fedrl import api
    from fedrl.cli.text_world import patience

    with patience("starting the server"):
        endpoint = api.Run(asked.run).serve(host=asked.host, port=asked.port, server=asked.server)
    with endpoint:
        print(f"{endpoint.model} answers at {endpoint.url} (Ctrl-C stops it)\n\n{endpoint.curl}\n")
        if asked.host not in ("127.0.0.1", "localhost", "::1"):
            print("It has no password: whoever reaches this address may ask.")
        print(f"what the server says: {endpoint.log}", flush=True)
        try:
            endpoint.wait()
        except KeyboardInterrupt:
            print("\nthe server is stopped")
    return 0
