"""Measurements: `speed` and `robustness` of the library, and `studies`, one folder for each question."""
