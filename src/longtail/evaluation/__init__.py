"""From predictions to metrics to a report."""
