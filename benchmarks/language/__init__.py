"""The parts of `llm.py`."""
