"""OpenEnv servers as text worlds: the wire, the mapping of fields, the world."""
