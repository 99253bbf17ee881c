"""Every method under one protocol: the same images, network, compute, trials and seeds."""
