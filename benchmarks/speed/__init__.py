"""Speed and memory, as ratios against a named reference."""

from pathlib import Path

RESULTS = Path(__file__).parent / "results.jsonl"
