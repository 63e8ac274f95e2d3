"""How a situation is put into words, and how an answer becomes a command."""
