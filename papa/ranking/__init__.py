"""λ of every head: trained with the probe, its certainty over seeds, and when its order stands
still.
"""
