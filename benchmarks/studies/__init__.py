"""One folder for each question: a README with the answer, the scripts, and `results.jsonl`."""
