"""The columns by which the rows of a study's tables are grouped."""

LINE = ["encoder", "task", "constants", "order"]
"""What the cells of one line of a table or figure share."""
GROUP = LINE[:3]
"""Within which head orders are compared."""
PAIR = LINE[:2]
"""An encoder and a task."""
