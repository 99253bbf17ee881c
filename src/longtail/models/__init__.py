"""Backbones: the CIFAR ResNets of the long-tail literature, and any timm model."""
