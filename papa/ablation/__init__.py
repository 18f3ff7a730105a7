"""Heads of any model behind transformers' attention interface, replaced in the user's own loop."""
