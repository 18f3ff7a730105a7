"""Scores of all heads, a file for each method; the smallest become constant first."""
