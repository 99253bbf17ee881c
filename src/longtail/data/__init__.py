"""Long-tailed data: the named benchmarks and anybody's own images."""
