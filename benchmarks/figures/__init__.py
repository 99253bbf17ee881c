"""The pictures of README.md and of the documentation, drawn from the records of the studies."""
