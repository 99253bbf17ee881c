"""The paper's tables and figures, run again: ours beside theirs.

`tables/*.yaml` holds the paper's numbers and, for each row that we can run, its settings. From there: `tables` reads
them, `plan` makes ordinary runs of them, `estimate` says how long these take here, `running` carries them out,
`outcome` reads what they found from their folders, and `writing` puts it down.

Reference: Cheng et al., "Compound Batch Normalization for Long-tailed Image Classification", MM 2022.
"""
