"""What others would do with the same folder and the same core-time, one script each, in environments of their own.

Nothing here imports longtail. `rival.py` has what the scripts share: arguments, clock, file list, output.
"""
