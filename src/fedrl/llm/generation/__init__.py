"""A model's answers: by transformers, by a decoder of our own on a GPU, by vLLM."""
