"""Training methods, one file each: each turns a batch into a loss, in plain torch."""
