"""Artifacts on disk and behind URIs: one interface (``store``), two kinds of store (``local``,
``remote``).
"""
