"""Ask a trained agent the same three times: in evaluation, in plain transformers, at an endpoint.

    python compare.py                           # the compact prompts of small models
    python compare.py --format chat             # the model's own chat template
    python compare.py --format chat --model SmolLM2-135M-Instruct.gguf --out elsewhere

A small model is warm-started, or another one taken, and trained for a round. It then plays held-out
tasks, always with its most likely answers; the prompts of these episodes are what is asked again.
Ends with 1 if any answer differs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import urllib.request
from pathlib import Path

import fedrl
from fedrl.runs.agents import load_agent

HOUSEHOLD = {"name": "household", "size": "tiny", "train": 40, "unseen": 12, "max_steps": 6}
TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>\n{{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
"""Of the small model in chat, which has none of its own."""


def first_model(folder: Path, format: str, steps: int) -> Path:
    """A small model that has imitated the expert for a while."""
    if folder.exists():
        return folder
    how = {"format": format, "thinking": False, "prompt_tokens": 400}
    fedrl.warm_start(
        HOUSEHOLD, folder, tasks=40, steps=steps, batch=16, width=32, layers=1, lr=1e-2, **how
    )
    if format == "chat":
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(folder)
        tokenizer.chat_template = TEMPLATE
        tokenizer.save_pretrained(folder)
    return folder


def trained(model: Path, format: str, out: Path, answer_tokens: int) -> fedrl.Run:
    """A federation of two clients, after a round."""
    return fedrl.run(
        {
            "name": f"agent-{format}", "rounds": 1, "out": str(out / "runs"),
            "federation": {"clients": 2},
            "algorithm": {
                "name": "fedagent", "model": str(model), "format": format, "thinking": False,
                "local_epochs": 1, "tasks": 2, "group": 2, "lr": 1e-3, "kl": 0.0,
                "answer_tokens": answer_tokens, "prompt_tokens": 1500, "eval_temperature": 0.0,
                "eval_tasks": 4, "device": "cpu",
            },
            "world": HOUSEHOLD,
            "partition": {"size": 10},
        }
    )  # fmt: skip


def evaluated(run: fedrl.Run) -> dict[str, str]:
    """Prompts of held-out tasks, and what evaluation answers to them."""
    agent, newest = load_agent(run.path)
    played = agent.play_tasks(newest.states[0]["theta"], agent.eval_tasks, seed=0)
    return {prompt: said for steps in played.transcripts for prompt, said, _ in steps}


def in_transformers(folder: Path, prompts: list[str]) -> list[str]:
    script = [sys.executable, str(Path(__file__).with_name("plain.py")), str(folder)]
    done = subprocess.run(
        script, input=json.dumps(prompts), capture_output=True, text=True, check=True
    )
    return list(json.loads(done.stdout))


def at_endpoint(endpoint, prompt: str, answer_tokens: int) -> str:
    body = {
        "model": endpoint.model,
        "messages": [{"role": "user", "content": prompt}],
        "temperature": 0,
        "max_tokens": answer_tokens,
    }
    headers = {"Content-Type": "application/json"}
    asked = urllib.request.Request(
        f"{endpoint.url}/chat/completions", json.dumps(body).encode(), headers
    )
    with urllib.request.urlopen(asked) as answer:
        return str(json.load(answer)["choices"][0]["message"]["content"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--format", choices=("compact", "chat"), default="compact")
    parser.add_argument("--model", type=Path, help="instead of a small new one")
    parser.add_argument("--prompts", type=int, default=12, help="how many are asked (12)")
    parser.add_argument("--steps", type=int, default=100, help="of the warm start (100)")
    parser.add_argument("--answer-tokens", type=int, default=12, help="of the longest answer (12)")
    parser.add_argument("--server", default="auto", help="transformers or vllm (auto)")
    parser.add_argument("--out", type=Path, default=Path("endpoint"), help="for what is made here")
    asked = parser.parse_args()
    model = asked.model or first_model(asked.out / asked.format, asked.format, asked.steps)
    run = trained(model, asked.format, asked.out, asked.answer_tokens)
    answers = evaluated(run)
    prompts = list(answers)[: asked.prompts]
    policy = run.policy()
    exported = run.export(run.path / "agent").path
    plain = in_transformers(exported, prompts)
    with run.serve(server=asked.server) as endpoint:
        served = [at_endpoint(endpoint, prompt, asked.answer_tokens) for prompt in prompts]
    different = 0
    for prompt, second, third in zip(prompts, plain, served, strict=True):
        said = {answers[prompt], policy.act(prompt), second, third}
        different += len(said) > 1
        print(" ≠ ".join(map(repr, said)))
    print(
        f"{len(prompts)} prompts, {len(set(served))} different answers; {different} are not alike"
    )
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main())
