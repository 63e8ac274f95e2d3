"""Language agents: rollouts, learning and whole epochs, against `generate` and a padded loop.

python benchmarks/llm.py [rollout] [stream] [learn] [epoch] [profile] [shapes] [memory]
                         [attention] [prompts] [recipe] [--model FOLDER] [--compile] [--quick]
                         [--json FILE]

The model has SmolLM2-135M's shape and random weights, prompts are 400 random tokens and answers
24; with --model it is the folder's model, and prompts are those of the household (chat) in its
own tokens. Answers never end early, so both sides decode the same number of tokens; in `stream`
they end after lengths that are drawn beforehand. There is no KL term on either side. Without a GPU
everything runs with tiny shapes, which only shows that it runs. The parts are in language/.

`recipe` is only run if it is named: it takes minutes. It plays the main recipes round by round with
random weights of the paper's shape (--shape; of --model it takes the tokenizer alone).
"""

from __future__ import annotations

import harness
import torch
from language.attention import attention
from language.bench import Bench
from language.learning import epoch, learn
from language.profiles import profile
from language.prompt_sharing import prompts
from language.recipe import add_options, recipe
from language.rollout import rollout, stream
from language.shapes import memory, shapes
from language.timing import GPU

PARTS = {
    "rollout": rollout, "stream": stream, "learn": learn, "epoch": epoch, "profile": profile,
    "shapes": shapes, "memory": memory, "attention": attention, "prompts": prompts,
    "recipe": recipe,
}  # fmt: skip
ASKED_FOR = ("recipe",)
"""Parts that are only run if they are named."""


def main() -> None:
    parser = harness.options(__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", help=f"{', '.join(PARTS)}; all but the last by default")
    parser.add_argument("--model", metavar="FOLDER", help="a model and its tokenizer")
    parser.add_argument(
        "--compile", action="store_true", help="also the padded learner with torch.compile"
    )
    add_options(parser)
    asked = parser.parse_args()
    if unknown := set(asked.parts) - set(PARTS):
        parser.error(f"no part {', '.join(unknown)}; choose from {', '.join(PARTS)}")
    harness.header("language agents")
    import transformers

    place = torch.cuda.get_device_name() if GPU else "no GPU: tiny shapes"
    print(f"{place}; torch {torch.__version__}, transformers {transformers.__version__}")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(0)
    bench = Bench(asked)
    try:
        for part in asked.parts or [name for name in PARTS if name not in ASKED_FOR]:
            print(f"## {part}", flush=True)
            PARTS[part](bench)
    finally:  # what was measured before an interruption is kept
        bench.results.finish(asked.json)
    if bench.failed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
