"""The paper's tables and figures, run again: ours beside theirs.

`tables/*.yaml` holds the paper's numbers and, for each row that we can run, its settings. `tables` reads them, `plan`
turns them into ordinary runs, `estimate` says how long these take here, `carry_out` runs them, `run_outcome` reads the
results from their folders, and `write_outcome` writes the table.

Reference: Cheng et al., "Compound Batch Normalization for Long-tailed Image Classification", MM 2022.
"""
