"""An environment written with verifiers: find a word by how many of its letters are in place.

    pip install "verifiers<0.4"
    fedrl run hot_words.toml                      # environment = "./hot_words.py:load_environment"

A secret word of eight, three guesses; each answer says how many letters of the guess were right.
"""

import verifiers as vf
from datasets import Dataset

WORDS = ("bat", "bit", "but", "cat", "cut", "hat", "hit", "hut")
GUESSES = 3
RULES = "Find the secret word. Words: " + " ".join(WORDS)


class HotWords(vf.MultiTurnEnv):
    async def env_response(self, messages: vf.Messages, state: vf.State) -> vf.Messages:
        guess = str(messages[-1].content).strip().lower()
        if guess == state["answer"]:
            state["final_env_response"] = [vf.UserMessage(content="Found.")]
            return state["final_env_response"]
        if guess not in WORDS:
            return [vf.UserMessage(content="That is no word of the list.")]
        right = sum(a == b for a, b in zip(guess, state["answer"]))
        return [vf.UserMessage(content=f"{right} letters are right.")]


def found(completion: vf.Messages, answer: str) -> float:
    """1 if a guess was the word."""
    said = [str(m.content).strip().lower() for m in completion if m.role == "assistant"]
    return float(answer in said)


def load_environment(copies: int = 40) -> vf.Environment:
    rows = [{"question": RULES, "answer": word} for word in WORDS]
    many = [row | {"info": {"copy": i}} for i in range(copies) for row in rows]
    held = [row | {"info": {"copy": copies}} for row in rows]
    return HotWords(
        dataset=Dataset.from_list(many),
        eval_dataset=Dataset.from_list(held),
        rubric=vf.Rubric(funcs=[found]),
        max_turns=GUESSES,
    )
