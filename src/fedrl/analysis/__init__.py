"""What can be computed about runs and plans: gaps, constants, partitions."""
