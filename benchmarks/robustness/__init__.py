"""What a run survives."""
