"""Where clients run: in this process, in worker processes, on other machines."""
