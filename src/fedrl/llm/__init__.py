"""Language models as policies: prompts, generation, learning."""
