"""The maths of `longtail.nn.functional.naive`, fast: three backends behind one dispatcher."""
