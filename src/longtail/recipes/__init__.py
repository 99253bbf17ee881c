"""Packaged settings, `<dataset>/<method>.yaml`."""
