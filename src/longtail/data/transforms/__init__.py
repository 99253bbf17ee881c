"""Augmentation on whole batches of uint8 images; see `views` for how they are put together."""
