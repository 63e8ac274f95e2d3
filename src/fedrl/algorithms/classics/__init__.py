"""Methods that people compare with: one short file each, on the families' hooks."""
