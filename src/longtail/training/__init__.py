"""Training runs: the one place that imports Lightning."""
