"""Methods that people compare with: one short file each, on the hooks of their families."""
