"""Which head on frozen features? Every one on four folders."""
