"""Kinds of constants that are outputs, in place of A·V itself: ``papa.attention.outputs``."""

OPTIMAL, RESAMPLED = "optimal_output", "resampled_output"
OUTPUTS = ("mean_output", "mean_output_by_slot", RESAMPLED, OPTIMAL)
OPTIMAL_RATE = 2e-3
"""The learning rate of an optimal output (Li and Janson, 2024)."""
