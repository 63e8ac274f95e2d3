"""Any Gymnasium environment as a world, and the text worlds as Gymnasium environments."""
