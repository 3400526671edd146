"""Metrics, the decision log and logging."""
