"""Does compound batch norm beat a tuned batch norm? See the README."""
