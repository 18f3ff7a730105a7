"""Metrics of predictions, and intervals over seeds."""
