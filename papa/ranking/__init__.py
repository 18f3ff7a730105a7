"""λ of every head: trained with the probe, its certainty over seeds, when its order stands."""
