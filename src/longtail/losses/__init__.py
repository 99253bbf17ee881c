"""Losses for long-tailed classification, one file each."""
