"""The text worlds for Gymnasium."""
