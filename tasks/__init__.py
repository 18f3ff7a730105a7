"""The steps of a study, imported as ``papa.tasks``; ``papa/tasks`` is a link to here."""
