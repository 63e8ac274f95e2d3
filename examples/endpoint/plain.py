"""Answers of an exported agent by transformers alone: prompts as JSON in, answers as JSON out.

echo '["task …"]' | python plain.py FOLDER
"""

import json
import sys

from transformers import AutoModelForCausalLM, AutoTokenizer


def main(folder: str, prompts: list[str]) -> list[str]:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    answers = []
    for prompt in prompts:
        asked = tokenizer.apply_chat_template(
            [{"role": "user", "content": prompt}],
            add_generation_prompt=True,
            return_dict=True,
            return_tensors="pt",
        )
        answered = model.generate(**asked, do_sample=False)[0, asked["input_ids"].shape[1] :]
        answers.append(tokenizer.decode(answered, skip_special_tokens=True))
    return answers


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], json.load(sys.stdin))))
    assert "fedrl" not in sys.modules
