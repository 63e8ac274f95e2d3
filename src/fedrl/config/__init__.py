"""Settings: their schema, recipes and flags, help, and what is built from them."""
