"""Prefect and the command line, imported as ``papa.flows``; ``papa/flows`` is a link to here."""
