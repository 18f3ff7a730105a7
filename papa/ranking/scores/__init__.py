"""Scores of all heads, a file for each method."""
