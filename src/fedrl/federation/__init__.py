"""The round loop and its parts: who takes part, what is accepted, when a round ends."""
