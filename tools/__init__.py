"""What the repository needs to build what it publishes."""
