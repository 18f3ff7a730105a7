"""Artifacts on disk and behind URIs: one interface, two kinds of store."""
