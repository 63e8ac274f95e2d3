"""How updates become one, and how the server steps with it."""
