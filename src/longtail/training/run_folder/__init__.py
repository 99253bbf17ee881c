"""The folder of a run: written while it trains, read when it is over, reported, and its model."""
