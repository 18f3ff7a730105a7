"""Metrics of predictions, baselines, and intervals over seeds and over validation examples."""
