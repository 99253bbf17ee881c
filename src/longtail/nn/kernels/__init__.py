"""The maths of `longtail.nn.functional`, fast: imported by its dispatch alone."""
