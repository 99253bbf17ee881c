"""Every method and preset on the embedded digits: does each learn, and what does it gain on cross-entropy?"""
