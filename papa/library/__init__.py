"""The public surface of ``papa``: thin over the rooms that the method lives in."""
