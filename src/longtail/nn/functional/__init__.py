"""The maths of compound batch normalization as pure functions: eager, readable, the definition."""
