"""An environment written with verifiers: find a word; every wrong guess is answered with a letter.

    pip install "verifiers<0.4"
    fedrl run word_hints.toml                     # environment = "./word_hints.py:load_environment"

One word of nine, three guesses. Who listens always wins; guesses at random win 30% of the games.
"""

import verifiers as vf
from datasets import Dataset

WORDS = ("bat", "bit", "but", "cat", "cot", "cut", "hat", "hot", "hut")
GUESSES = 3
RULES = "Find the secret word."


class WordHints(vf.MultiTurnEnv):
    async def env_response(self, messages: vf.Messages, state: vf.State) -> vf.Messages:
        guess = str(messages[-1].content).strip().lower()
        if guess == state["answer"]:
            state["final_env_response"] = [vf.UserMessage(content="Found.")]
            return state["final_env_response"]
        known = state["answer"][: len(state["trajectory"])]
        return [vf.UserMessage(content=f"It begins with {known}.")]


def found(completion: vf.Messages, answer: str) -> float:
    """1 if a guess was the word."""
    said = [str(m.content).strip().lower() for m in completion if m.role == "assistant"]
    return float(answer in said)


def load_environment(copies: int = 40) -> vf.Environment:
    rows = [
        {"question": RULES, "answer": word, "info": {"copy": i}}
        for i in range(copies + 5)
        for word in WORDS
    ]
    held = 5 * len(WORDS)
    return WordHints(
        dataset=Dataset.from_list(rows[held:]),
        eval_dataset=Dataset.from_list(rows[:held]),
        rubric=vf.Rubric(funcs=[found]),
        max_turns=GUESSES,
    )
