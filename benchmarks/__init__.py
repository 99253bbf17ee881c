"""Measurements, kept as ratios against a named reference."""
