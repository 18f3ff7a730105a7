"""Probes on frozen features: features, the three probes, their training and the score of a cell."""
