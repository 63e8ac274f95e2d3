"""What is put around a client's work: attacks, faults, local noise, masked updates."""
