"""The level of every test and interval."""

LEVEL = 0.05
"""The probability of an error that tests allow."""
CONFIDENCE = 1 - LEVEL
"""The probability with which an interval holds the true value."""
