"""Compound batch normalization as torch layers, and the conversion of existing models."""
